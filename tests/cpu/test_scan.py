"""Family `scan` against the interpreter: every dtype, each axis, odd sizes, prologues and epilogues, rows in tasks."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError
from codegen.toolchain.compiler import INCLUDE
from codegen.toolchain.cpu import host_features
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES
from fusion_ir.ops import make
from fusion_ir.records import Status
from fusion_ir.reference.interpreter import interpret
from testing.tensors import graph_of, spec
from testing.vec_harness import compiled_library
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.one_kernel import run_kernel
from tests.support.scan_graphs import CONES, graph, scan

SCAN = FAMILIES["scan"]
SHORT = "scan{lanes=16,fetch=0,store=plain,tile=256,block=0,interleave=0,tasks=1}"
WIDE = "scan{lanes=64,fetch=0,store=stream,tile=1024,block=0,interleave=0,tasks=1}"


def check(bench: Workbench, g: Graph, schedules: tuple[str, ...] = (SHORT, WIDE)) -> None:
    assert SCAN.accepts(g, bench.device) is None
    rows = bench.measure(g, "", [SCAN.emit(g, s, bench.device) for s in schedules])
    assert [r.status for r in rows] == [Status.ok] * len(rows), [(r.schedule, r.detail) for r in rows]


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.sweep(0.2)
def test_every_dtype_along_lanes_and_across(bench: Workbench, dtype: str) -> None:
    check(bench, graph((5, 67), dtype, lambda x: [scan(x, 0), scan(x, 1)]), (WIDE,))
    check(bench, graph((5, 67), dtype, lambda x: scan(x, 1)))
    check(bench, graph((67, 5), dtype, lambda x: scan(x, 0)))


@pytest.mark.sweep(0.2)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 33, 130), (40, 1, 1), (2, 129, 64), (7, 2, 300)])
def test_each_axis(bench: Workbench, sizes: tuple[int, ...], axis: int) -> None:
    check(bench, graph(sizes, "f32", lambda x: scan(x, axis)))


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 64, 65, 1000, 40_000])
def test_one_row_is_one_task(bench: Workbench, n: int) -> None:
    check(bench, graph((n,), "f32", lambda x: scan(x, 0)))


@pytest.mark.sweep(0.15)
@pytest.mark.parametrize("name", CONES)
def test_cones(bench: Workbench, name: str) -> None:
    check(bench, graph((37, 70), "f32", CONES[name]))


@pytest.mark.parametrize("name", ["normalised", "of_a_softmax", "exclusive"])
def test_rows_longer_than_what_is_kept(bench: Workbench, name: str) -> None:
    """The scan is computed again in the second pass."""
    check(bench, graph((3, 20000), "f32", CONES[name]), (SHORT,))


def test_permuted_memory(bench: Workbench) -> None:
    g = graph_of([spec((40, 50), DTYPES["f32"], strides=(1, 40))], lambda x: scan(x, 1))
    check(bench, g)


def test_signs_infinities_and_nan(bench: Workbench) -> None:
    x = np.ones((4, 40), np.float32)
    x[0, 7], x[1, 20:22], x[2, 33] = np.inf, (np.inf, -np.inf), np.nan
    g = graph((4, 40), "f32", lambda n: scan(n, 1))
    (expected,) = interpret(g, [x])
    (got,) = run_kernel(bench, g, "scan", SHORT, [x])
    np.testing.assert_array_equal(got, expected)


def test_integers_wrap(bench: Workbench) -> None:
    x = np.full((3, 50), np.iinfo(np.int64).max // 3, np.int64)
    g = graph((3, 50), "i64", lambda n: scan(n, 1))
    (got,) = run_kernel(bench, g, "scan", SHORT, [x])
    np.testing.assert_array_equal(got, interpret(g, [x])[0])


PARTS: dict[str, Callable[[Node, Node], Node]] = {
    "later": lambda x, i: B.slice_(scan(x, 1), (0, 3), (4, 40)),
    "every other": lambda x, i: B.slice_(scan(x, 1), (0, 0), (4, 40), (1, 2)),
    "picked": lambda x, i: B.index_select(scan(x, 1), 1, i),
    "picked behind ops": lambda x, i: B.index_select(B.mul(B.exp(scan(x, 1)), 2.0), 1, i),
    "picked of rows and columns": lambda x, i: B.index_select(B.reshape(scan(x, 1), (160,)), 0, i),
    "picked of pieces": lambda x, i: B.index_select(B.reshape(scan(x, 1), (4, 8, 5)), 2, i),
    "picked behind turns": lambda x, i: B.index_select(B.permute(scan(x, 1), (1, 0)), 0, i),
    "picked behind a sum": lambda x, i: B.index_select(B.sum_(scan(x, 1), [0]), 0, i),
    "later behind a best": lambda x, i: B.slice_(make("argmax", (scan(x, 1),), {"axis": 0}), (3,), (40,)),
    "picked of a second scan": lambda x, i: B.index_select(scan(scan(x, 1), 0), 1, i),
}  # fmt: skip
WHOLE: dict[str, Callable[[Node, Node], Node]] = {
    "the first": lambda x, i: B.slice_(scan(x, 1), (0, 0), (4, 9)),
    "picked rows": lambda x, i: B.index_select(scan(x, 1), 0, i),
    "scanned of picked": lambda x, i: scan(B.index_select(x, 1, i), 1),
    "a later row": lambda x, i: B.slice_(scan(x, 1), (2, 0), (4, 40)),
    "beside a column": lambda x, i: B.cat([B.slice_(x, (0, 0), (4, 1)), scan(x, 1)], 1),
    "summed and picked": lambda x, i: B.index_select(B.sum_(scan(x, 1), [1]), 0, i),
}  # fmt: skip


def with_index(build: Callable[[Node, Node], Node]) -> Graph:
    return graph_of([spec((4, 40), DTYPES["f32"]), spec((3,), DTYPES["i64"])], build)


@pytest.mark.parametrize("name", PARTS)
def test_some_of_the_sums_are_refused_before_they_are_lowered(name: str) -> None:
    """Planners choose what families accept, and learn of each refusal behind that by a cover of its own."""
    g = with_index(PARTS[name])
    reject = SCAN.accepts(g, CPU_DEVICE)
    assert reject is not None and "reads some of what is scanned" in reject.reason
    with pytest.raises(EmitError, match="not all that comes before"):
        SCAN.emit(g, SHORT, CPU_DEVICE)


@pytest.mark.parametrize("name", WHOLE)
def test_all_of_the_sums_are_accepted(name: str) -> None:
    g = with_index(WHOLE[name])
    assert SCAN.accepts(g, CPU_DEVICE) is None
    SCAN.emit(g, SHORT, CPU_DEVICE)


def test_digits_merge_in_the_order_of_the_scan_only() -> None:
    """In memory the rows come first, in the sum the columns: reading along memory would add up something else."""

    def build(x: Node) -> Node:
        turned = B.reshape(B.permute(x, (1, 0)), (40 * 12,))
        return B.permute(B.reshape(scan(turned, 0), (40, 12)), (1, 0))

    with pytest.raises(EmitError, match="do not make up one"):
        SCAN.emit(graph((12, 40), "f32", build), SHORT, CPU_DEVICE)


def test_a_short_sum_over_a_scan_is_not_unrolled(bench: Workbench) -> None:
    check(bench, graph((5, 40), "f32", lambda x: B.sum_(scan(x, 0), [0])))


def test_sums_of_long_sums_are_refused() -> None:
    g = graph((64, 1024), "f32", lambda x: scan(B.sum_(x, [1]), 0))
    for device in (CPU_DEVICE, CUDA_DEVICE):
        reject = SCAN.accepts(g, device)
        assert reject is not None and "a kernel of their own" in reject.reason


def test_what_is_scanned_is_not_shared() -> None:
    """A loop that carries sums is inside the one that tasks share, or one task's alone."""
    along = SCAN.emit(graph((64, 256), "f32", lambda x: scan(x, 0)), SHORT, CPU_DEVICE).source
    assert "ONCE {" in along and "GRID(" not in along
    strips = SCAN.emit(graph((64, 1024), "f32", lambda x: scan(x, 0)), SHORT, CPU_DEVICE).source
    assert strips.index("GRID(") < strips.index("ROWS(")


MACHINES = {
    "native": ["-march=native"],
    "sse2": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "no shuffles": ["-march=native", "-DVEC_NO_SHUFFLES"],
}


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", ["i32", "f32"])
def test_any_instructions(machine: str, dtype: str) -> None:
    """Registers of every size, with and without shuffles: whole numbers, so that the order of sums does not show."""
    if machine == "avx2" and "avx2" not in host_features():
        pytest.skip("this machine has no AVX2")
    kernel = SCAN.emit(graph((3, 77), dtype, lambda x: scan(x, 1)), WIDE, CPU_DEVICE)
    flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-w", f"-I{INCLUDE}", *MACHINES[machine]]
    library = compiled_library(f'#include "loops_cpu.h"\n{kernel.source}', ["g++", *flags])
    x = np.random.default_rng(0).integers(-9, 10, (3, 77)).astype(DTYPES[dtype].numpy)
    got = np.empty((3, 77), np.int64 if dtype == "i32" else np.float32)
    arguments = (ctypes.c_void_p * 2)(x.ctypes.data, got.ctypes.data)
    ctypes.CDLL(str(library))[kernel.entry](arguments, ctypes.c_long(0), ctypes.c_long(1))
    np.testing.assert_array_equal(got, np.cumsum(x, axis=1, dtype=got.dtype))


@pytest.mark.parametrize("sizes", [(0,), (4, 0), (0, 4)])
def test_nothing_to_add(sizes: tuple[int, ...]) -> None:
    g = graph(sizes, "f32", lambda x: scan(x, len(sizes) - 1))
    assert "store" not in SCAN.emit(g, SHORT, CPU_DEVICE).source
