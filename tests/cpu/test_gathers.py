"""Gathers beyond family `naive` against the interpreter: every dtype, each axis, odd sizes, indices out of range."""

from collections.abc import Callable

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.kernel import Access
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES
from fusion_ir.ops import make
from fusion_ir.records import Status
from fusion_ir.reference.interpreter import interpret
from testing.tensors import graph_of, spec
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.one_kernel import run_kernel
from tests.support.whole import in_turn

POINTWISE = FAMILIES["pointwise"]
PLAIN = "pointwise{lanes=32,fetch=0,store=plain,tile=4096,block=0,interleave=0,tasks=1,rows=1}"


def gathered(
    op: str, axis: int, x: tuple[int, ...], index: tuple[int, ...], dtype: str = "f32", of: str = "i64",
    after: Callable[[Node], Node] = lambda y: y,
) -> Graph:  # fmt: skip
    inputs = [spec(x, DTYPES[dtype]), spec(index, DTYPES[of])]
    return graph_of(inputs, lambda a, i: after(make(op, (a, i), {"axis": axis})))


def check(bench: Workbench, g: Graph, family: str = "pointwise", few: int = 2) -> None:
    made = FAMILIES[family]
    assert made.accepts(g, bench.device) is None
    rows = bench.measure(g, "", [made.emit(g, s, bench.device) for s in made.space(g, bench.device)[:few]])
    assert [r.status for r in rows] == [Status.ok] * len(rows), [(r.schedule, r.detail) for r in rows]


@pytest.mark.parametrize("of", ["i32", "i64"])
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.sweep(0.1)
def test_every_dtype(bench: Workbench, dtype: str, of: str) -> None:
    check(bench, gathered("index_select", 0, (11, 40), (29,), dtype, of), few=1)
    check(bench, gathered("take_along_axis", 1, (7, 40), (7, 37), dtype, of), few=1)


@pytest.mark.soak
@pytest.mark.parametrize("axis", in_turn([0, 1, 2], 1, "gathers"))
def test_each_axis(bench: Workbench, axis: int) -> None:
    x = (6, 9, 35)
    check(bench, gathered("index_select", axis, x, (21,)))
    check(bench, gathered("take_along_axis", axis, x, tuple(13 if d == axis else n for d, n in enumerate(x))))
    check(bench, gathered("gather", axis, x, tuple(13 if d == axis else n - 1 for d, n in enumerate(x))))


@pytest.mark.sweep(0.5)
@pytest.mark.parametrize("n", [1, 15, 33, 64, 130])
def test_odd_rows(bench: Workbench, n: int) -> None:
    check(bench, gathered("index_select", 0, (17, n), (50,), "bf16", "i32"))


def test_a_column_for_all(bench: Workbench) -> None:
    """take_along_axis with an index that is broadcast over rows and over columns."""
    inputs = [spec((9, 40), DTYPES["f32"]), spec((40,), DTYPES["i64"]), spec((9, 1), DTYPES["i64"])]

    def build(x: Node, row: Node, column: Node) -> list[Node]:
        rows = B.expand(B.reshape(row, (1, 40)), (9, 40))
        columns = B.expand(column, (9, 40))
        return [make("take_along_axis", (x, rows), {"axis": 1}), make("take_along_axis", (x, columns), {"axis": 1})]

    check(bench, graph_of(inputs, build))


CONES: dict[str, Callable[[Node, Node], Node | list[Node]]] = {
    "of_a_computed_table": lambda x, i: make("index_select", (B.exp(x), i), {"axis": 0}),
    "by_a_computed_index": lambda x, i: make("index_select", (x, B.mul(B.add(i, 3), 2)), {"axis": 0}),
    "reshaped": lambda x, i: B.reshape(make("index_select", (x, i), {"axis": 0}), (21, 8, 5)),
    "of_a_reshaped_table": lambda x, i: make("index_select", (B.reshape(x, (55, 8)), i), {"axis": 0}),
    "transposed": lambda x, i: B.neg(B.permute(make("index_select", (x, i), {"axis": 0}), (1, 0))),
    "cut": lambda x, i: B.slice_(make("index_select", (x, i), {"axis": 0}), (2, 3), (21, 40)),
    "padded": lambda x, i: B.pad(make("index_select", (x, i), {"axis": 0}), (1, 2), (0, 1), 7),
    "of_a_padded_table": lambda x, i: make("index_select", (B.pad(x, (2, 0), (2, 0), 7), i), {"axis": 0}),
    "of_two_tables": lambda x, i: make("index_select", (B.cat([x, B.exp(x)], 0), i), {"axis": 0}),
    "twice": lambda x, i: make("index_select", (make("index_select", (x, i), {"axis": 0}), i), {"axis": 0}),
    "both_axes": lambda x, i: make("index_select", (make("index_select", (x, i), {"axis": 0}), i), {"axis": 1}),
    "the_index_too": lambda x, i: [make("index_select", (x, i), {"axis": 0}), B.add(i, 1)],
    "with_positions": lambda x, i: B.add(
        make("index_select", (x, i), {"axis": 0}), B.slice_(B.cat([x, x], 0), (0, 0), (21, 40))
    ),
}  # fmt: skip


@pytest.mark.sweep(0.2)
@pytest.mark.parametrize("name", CONES)
def test_cones(bench: Workbench, name: str) -> None:
    check(bench, graph_of([spec((11, 40), DTYPES["f32"]), spec((21,), DTYPES["i64"])], CONES[name]))


def test_summed_bags(bench: Workbench) -> None:
    """Rows of a table, added up: an index for each step of the sum."""
    inputs = [spec((50, 40), DTYPES["f32"]), spec((12, 9), DTYPES["i64"])]

    def build(table: Node, bags: Node) -> Node:
        rows = make("index_select", (table, B.reshape(bags, (108,))), {"axis": 0})
        return B.sum_(B.reshape(rows, (12, 9, 40)), [1])

    check(bench, graph_of(inputs, build), "reduction")


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy_is_one_kernel(bench: Workbench, reduction: str, dtype: str) -> None:
    inputs = [spec((13, 69), DTYPES[dtype]), spec((13,), DTYPES["i64"])]
    check(bench, graph_of(inputs, lambda x, t: B.cross_entropy(x, t, reduction, 3)), "normalization")  # type: ignore[arg-type]


def test_gradient_of_cross_entropy_is_one_kernel(bench: Workbench) -> None:
    inputs = [spec((13, 69), DTYPES["f32"]), spec((13, 1), DTYPES["i64"]), spec((13, 1), DTYPES["f32"])]

    def build(x: Node, target: Node, grad: Node) -> Node:
        one_hot = B.eq(B.iota((1, 69), 1), target)
        return B.mul(B.sub(B.softmax(x, 1), B.cast(one_hot, x.dtype)), grad)

    check(bench, graph_of(inputs, build), "normalization")


def test_the_best_of_each_row(bench: Workbench) -> None:
    """An index that a reduction of the same rows gives."""
    inputs = [spec((13, 69), DTYPES["f32"]), spec((13, 69), DTYPES["f32"])]

    def build(x: Node, y: Node) -> Node:
        return make("gather", (y, B.reshape(B.argmax(x, 1), (13, 1))), {"axis": 1})

    g = graph_of(inputs, build)
    family = next(f for f in ("reduction", "normalization") if FAMILIES[f].accepts(g, bench.device) is None)
    check(bench, g, family)


def test_reduced_rows_are_not_gathered_more_often_than_there_are() -> None:
    """Each would be reduced again wherever it is read."""

    def build(x: Node, i: Node) -> Node:
        return make("index_select", (B.sum_(x, [1]), i), {"axis": 0})

    few, many = (graph_of([spec((50, 40), DTYPES["f32"]), spec((n,), DTYPES["i64"])], build) for n in (9, 90))
    assert FAMILIES["reduction"].accepts(few, CPU_DEVICE) is None
    reject = FAMILIES["reduction"].accepts(many, CPU_DEVICE)
    assert reject is not None and "90 times" in reject.reason


def test_indices_out_of_range_are_clamped(bench: Workbench) -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for of in (np.int32, np.int64):
        limits = np.iinfo(of)
        index = np.array([limits.min, -1, 0, 3, 4, limits.max], of)
        g = gathered("index_select", 0, (4, 3), (6,), of=f"i{8 * index.itemsize}")
        (got,) = run_kernel(bench, g, "pointwise", PLAIN, [x, index])
        np.testing.assert_array_equal(got, x[[0, 0, 0, 3, 3, 3]])
        np.testing.assert_array_equal(got, interpret(g, [x, index])[0])


def test_constant_indices_are_clamped_when_compiling(bench: Workbench) -> None:
    def build(x: Node) -> Node:
        return make("index_select", (x, B.full((3,), 99, DTYPES["i64"])), {"axis": 0})

    g = graph_of([spec((4, 40), DTYPES["f32"])], build)
    check(bench, g)
    assert "clamp" not in POINTWISE.emit(g, PLAIN, CPU_DEVICE).source


@pytest.mark.parametrize("sizes", [((4, 0), (3,)), ((4, 5), (0,)), ((0, 5), (0,))])
def test_nothing_to_gather(sizes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    assert "store" not in POINTWISE.emit(gathered("index_select", 0, *sizes), PLAIN, CPU_DEVICE).source


@pytest.mark.parametrize("rows", [768, 776, 770, 769])
def test_rows_of_a_table_are_copied_in_vectors(rows: int) -> None:
    """By whole registers, whatever the rows' distance keeps aligned; the index is read once for each row."""
    g = gathered("index_select", 0, (1000, rows), (64,), "f32")
    kernel = POINTWISE.emit(g, PLAIN, CPU_DEVICE)
    found = {a.tensor: a for a in kernel.accesses}
    assert found["in0"] == Access("in0", "vector", CPU_DEVICE.vector_bytes // 4), found
    assert found["in1"].kind == "splat"
    index, copy = kernel.source.index("load<1, 1>(in1"), kernel.source.index("LANES(")
    assert index < copy, "the index is read inside the loop over a row"


def test_on_cuda_pointwise_has_them() -> None:
    g = gathered("index_select", 0, (1000, 768), (64,), "f32")
    assert POINTWISE.accepts(g, CUDA_DEVICE) is None
    kernel = POINTWISE.emit(g, POINTWISE.space(g, CUDA_DEVICE)[0], CUDA_DEVICE)
    assert Access("in0", "vector", 4) in kernel.accesses
