"""Families `scatter` and `naive` against the interpreter: dtypes, axes, what leads to slices and follows sums."""

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.dtype import DTYPES, f32, i64
from fusion_ir.ops import make_input
from fusion_ir.records import Status
from fusion_ir.reference.interpreter import interpret
from testing.tensors import graph_of, spec
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.one_kernel import run_kernel
from tests.support.scatters import SCATTERS, Build

SCATTER, NAIVE = FAMILIES["scatter"], FAMILIES["naive"]
SHORT = "scatter{lanes=16,fetch=0,store=plain,tile=64,block=0,interleave=0,tasks=3}"
WIDE = "scatter{lanes=64,fetch=0,store=stream,tile=1024,block=0,interleave=0,tasks=1}"


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


def test_lists_that_no_stack_holds(bench: Workbench) -> None:
    check(bench, scattered((100_000, 2), 0, 50_000), naive=False)


def test_few_slices_and_none(bench: Workbench) -> None:
    for n in (0, 1, 2, 7):
        check(bench, scattered((n, 20), 0, 9, "bf16"))


@pytest.mark.parametrize("form", SCATTERS)
def test_forms(bench: Workbench, form: str) -> None:
    g = SCATTERS[form]
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
        "argmax is of no sums",
    ),
    "sums over places": (
        [((60, 40), "f32"), ((60,), "i64")],
        lambda x, i: B.sum_(B.permute(B.scatter_sum(x, 0, i, 12), [1, 0]), 1),
        "runs over places",
    ),
    "a long product": (
        [((60, 40), "f32"), ((40, 30), "f32"), ((60,), "i64")],
        lambda x, y, i: B.scatter_sum(B.matmul(x, y), 0, i, 9),
        "too long to unroll",
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
