"""Families `scatter` and `naive` against the interpreter: every dtype, each axis, what leads to slices and follows sums."""

from collections.abc import Callable

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, f32, i64
from fusion_ir.ops import make_input
from fusion_ir.records import Status
from fusion_ir.reference.interpreter import interpret
from testing.tensors import graph_of, spec
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.one_kernel import run_kernel

SCATTER, NAIVE = FAMILIES["scatter"], FAMILIES["naive"]
SHORT = "scatter{lanes=16,fetch=0,store=plain,tile=64,block=0,interleave=0,tasks=3}"
WIDE = "scatter{lanes=64,fetch=0,store=stream,tile=1024,block=0,interleave=0,tasks=1}"

Build = Callable[..., Node | list[Node]]


def check(bench: Workbench, g: Graph, naive: bool = True) -> None:
    assert SCATTER.accepts(g, bench.device) is None
    kernels = [SCATTER.emit(g, s, bench.device) for s in (SHORT, WIDE)]
    if naive:
        kernels.append(NAIVE.emit(g, NAIVE.space(g, bench.device)[0], bench.device))
    rows = bench.measure(g, "", kernels)
    assert [r.status for r in rows] == [Status.ok] * len(rows), [(r.schedule, r.detail) for r in rows]


def scattered(sizes: tuple[int, ...], axis: int, extent: int, dtype: str = "f32", places: str = "i64") -> Graph:
    return graph_of(
        [spec(sizes, DTYPES[dtype]), spec((sizes[axis],), DTYPES[places])],
        lambda x, index: B.scatter_sum(x, axis, index, extent),
    )


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.sweep(0.3)
def test_every_dtype(bench: Workbench, dtype: str) -> None:
    check(bench, scattered((37, 70), 0, 11, dtype))


@pytest.mark.sweep(0.4)
@pytest.mark.parametrize("extent", [1, 2, 50])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 33, 130), (40, 1, 1), (2, 129, 64), (7, 2, 300)])
def test_each_axis(bench: Workbench, sizes: tuple[int, ...], axis: int, extent: int) -> None:
    check(bench, scattered(sizes, axis, extent, places="i32" if extent == 2 else "i64"))


def test_one_axis_alone_has_no_lanes(bench: Workbench) -> None:
    check(bench, scattered((1000,), 0, 17))
    check(bench, scattered((1000,), 0, 17, "i32"))


def test_few_slices_and_none(bench: Workbench) -> None:
    for n in (0, 1, 2, 7):
        check(bench, scattered((n, 20), 0, 9, "bf16"))


def around(x: Node, source: Node, index: Node, weight: Node, base: Node) -> list[Node]:
    wide = B.mul(B.index_select(x, 0, source), B.broadcast_in_dim(weight, (300, 33), [0]))
    total = B.scatter_sum(wide, 0, index, 40)
    return [B.add(base, B.mul(total, 0.5)), B.cast(total, DTYPES["bf16"])]


def test_messages_are_computed_as_they_are_added(bench: Workbench) -> None:
    inputs = [spec(sizes, f32) for sizes in ((50, 33), (300,), (40, 33))]
    inputs[1:1] = [spec((300,), i64), spec((300,), i64)]
    check(bench, graph_of(inputs, around))


FORMS: dict[str, tuple[list[tuple[tuple[int, ...], str]], Build]] = {
    "places computed of two tensors": (
        [((60, 40), "f32"), ((60,), "i64"), ((60,), "i64")],
        lambda x, i, j: B.scatter_sum(x, 0, B.add(B.mul(i, 5), B.remainder(j, 5)), 50),
    ),
    "places that are masked": (
        [((60, 40), "f16"), ((60,), "i64")],
        lambda x, i: B.scatter_sum(x, 0, B.where(B.eq(i, 3), -1, i), 12),
    ),
    "places joined of two": (
        [((60, 40), "f32"), ((20,), "i64"), ((40,), "i64")],
        lambda x, i, j: B.scatter_sum(x, 0, B.cat([i, j], 0), 12),
    ),
    "places gathered": (
        [((60, 40), "f32"), ((9,), "i64"), ((60,), "i64")],
        lambda x, i, j: B.scatter_sum(x, 0, B.index_select(i, 0, j), 12),
    ),
    "two with one index": (
        [((60, 40), "f32"), ((60, 8), "f32"), ((60,), "i64")],
        lambda x, y, i: [B.scatter_sum(x, 0, i, 12), B.scatter_sum(y, 0, i, 12)],
    ),
    "the sum of two": (
        [((60, 40), "f32"), ((30, 40), "f32"), ((60,), "i64"), ((30,), "i64")],
        lambda x, y, i, j: B.add(B.scatter_sum(x, 0, i, 12), B.scatter_sum(y, 0, j, 12)),
    ),
    "turned": (
        [((60, 40), "f32"), ((60,), "i64")],
        lambda x, i: B.transpose(B.scatter_sum(B.permute(B.exp(B.permute(x, [1, 0])), [1, 0]), 0, i, 12), 0, 1),
    ),
    "reshaped": (
        [((3, 20, 8, 5), "f32"), ((60,), "i64")],
        lambda x, i: B.reshape(B.scatter_sum(B.reshape(x, [60, 40]), 0, i, 12), [4, 3, 8, 5]),
    ),
    "slices joined and padded": (
        [((20, 30), "f32"), ((40, 30), "f32"), ((64,), "i64")],
        lambda x, y, i: B.scatter_sum(B.pad(B.cat([x, y], 0), [1, 2], [3, 0], 1.0), 0, i, 12),
    ),
    "some of the sums": (
        [((60, 40), "f32"), ((60,), "i64")],
        lambda x, i: B.slice_(B.scatter_sum(x, 0, i, 12), [3, 0], [11, 40], [2, 1]),
    ),
    "beside what is scattered": (
        [((60, 40), "f32"), ((60,), "i64")],
        lambda x, i: [B.exp(x), B.scatter_sum(B.exp(x), 0, i, 12)],
    ),
    "a constant for each slice": (
        [((60,), "i64")],
        lambda i: B.scatter_sum(B.full((60,), 1.0, f32), 0, i, 12),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(bench: Workbench, form: str) -> None:
    inputs, build = FORMS[form]
    g = graph_of([spec(sizes, DTYPES[dtype]) for sizes, dtype in inputs], build)
    check(bench, g, naive=NAIVE.accepts(g, bench.device) is None)


def test_bits_are_equal_however_tasks_share_the_places(bench: Workbench) -> None:
    """Each sum has one order of terms, whatever its schedule."""
    g = scattered((3000, 48), 0, 61)
    rng = np.random.default_rng(7)
    inputs = [rng.standard_normal((3000, 48)).astype(np.float32), rng.integers(0, 61, 3000)]
    found = [run_kernel(bench, g, "scatter", s, inputs)[0] for s in (SHORT, WIDE)]
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[0], interpret(g, inputs)[0], rtol=1e-4, atol=1e-4)


REFUSED: dict[str, tuple[list[tuple[tuple[int, ...], str]], Build, str]] = {
    "a gather of sums": (
        [((60, 40), "f32"), ((60,), "i64"), ((90,), "i64")],
        lambda x, i, j: B.index_select(B.scatter_sum(x, 0, i, 12), 0, j),
        "over and over",
    ),
    "sums spread over more": (
        [((60, 40), "f32"), ((60,), "i64")],
        lambda x, i: B.broadcast_in_dim(B.scatter_sum(x, 0, i, 12), [12, 7, 40], [0, 2]),
        "over and over",
    ),
    "a scatter of sums": (
        [((60, 40), "f32"), ((60,), "i64"), ((12,), "i64")],
        lambda x, i, j: B.scatter_sum(B.scatter_sum(x, 0, i, 12), 0, j, 5),
        "come out of another one",
    ),
    "places by a reduction": (
        [((60, 40), "f32")],
        lambda x: B.scatter_sum(x, 0, B.argmax(x, 1), 40),
        "argmax is no scatter",
    ),
    "nothing scattered": ([((60, 40), "f32")], B.exp, "nothing is scattered"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    inputs, build, why = REFUSED[name]
    reject = SCATTER.accepts(graph_of([spec(sizes, DTYPES[dtype]) for sizes, dtype in inputs], build), CPU_DEVICE)
    assert reject is not None and why in reject.reason


def test_cuda_says_why_not() -> None:
    reject = SCATTER.accepts(scattered((30, 40), 0, 9), CUDA_DEVICE)
    assert reject is not None and "naive" in reject.reason


def test_an_index_that_is_overwritten_is_no_donor() -> None:
    """Tasks list slices while others write already."""
    inputs = (spec((60,), i64), spec((60,), i64))
    total = B.scatter_sum(make_input(0, inputs[0]), 0, make_input(1, inputs[1]), 60)
    g = Graph(inputs, (OutputSpec(total, (1,), 1),))
    assert SCATTER.emit(g, SHORT, CPU_DEVICE).in_place == ()


def test_what_sums_are_added_to_is_a_donor() -> None:
    inputs = (spec((12, 40), f32), spec((60, 40), f32), spec((60,), i64))
    base, x, index = (make_input(i, s) for i, s in enumerate(inputs))
    g = Graph(inputs, (OutputSpec(B.add(base, B.scatter_sum(x, 0, index, 12)), (40, 1), 0),))
    assert SCATTER.emit(g, SHORT, CPU_DEVICE).in_place == (0,)
