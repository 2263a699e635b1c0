"""Golden loop programs and texts of gathers and scans."""

from collections.abc import Callable

import pytest

from codegen.families import FAMILIES
from codegen.families.loop_nest import lower
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DTYPES
from fusion_ir.ops import make
from testing.tensors import graph_of, spec
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE

f32, bf16, i32, i64 = (DTYPES[name] for name in ("f32", "bf16", "i32", "i64"))


def embedding() -> Graph:
    """Rows of a table of narrow weights, and positions beside them."""
    inputs = [spec((1000, 768), bf16), spec((64,), i32), spec((64, 768), bf16)]
    return graph_of(inputs, lambda table, index, at: B.add(make("index_select", (table, index), {"axis": 0}), at))


def along_rows() -> Graph:
    """An index for each lane."""
    inputs = [spec((64, 1000), f32), spec((64, 300), i64)]
    return graph_of(inputs, lambda x, index: make("take_along_axis", (x, index), {"axis": 1}))


def cross_entropy() -> Graph:
    """One element of each row beside the sums over it: one read of the row from memory."""
    return graph_of([spec((64, 1000), f32), spec((64,), i64)], lambda x, target: B.cross_entropy(x, target, "none"))


def running_sum() -> Graph:
    """Along lanes, of a mask, with what it leads to."""
    return graph_of([spec((64, 1000), f32)], lambda x: B.mul(B.cast(B.cumsum(B.gt(x, 0), 1), f32), x))


def running_sum_across() -> Graph:
    """Along rows: a sum for each lane, in strips that tasks share."""
    return graph_of([spec((64, 1000), bf16)], lambda x: B.cumsum(x, 0))


CASES: dict[str, tuple[Callable[[], Graph], str]] = {
    "embedding": (embedding, "pointwise{lanes=32,fetch=0,store=stream,tile=4096,block=0,interleave=0,tasks=1,rows=1}"),
    "along_rows": (along_rows, "pointwise{lanes=16,fetch=0,store=plain,tile=4096,block=0,interleave=0,tasks=1,rows=1}"),
    "running_sum": (running_sum, "scan{lanes=32,fetch=0,store=stream,tile=4096,block=0,interleave=0,tasks=1}"),
    "running_sum_across": (
        running_sum_across,
        "scan{lanes=32,fetch=0,store=plain,tile=256,block=0,interleave=0,tasks=1}",
    ),
}

ON_CUDA: dict[str, tuple[Callable[[], Graph], str]] = {
    "running_sum": (running_sum, "scan{vec=4,x=64,y=1,per=1,keep=registers,dear=0}"),
    "running_sum_across": (running_sum_across, "scan{vec=8,x=64,y=1,per=1,keep=registers,dear=0}"),
}


@pytest.mark.parametrize("build", [embedding, cross_entropy, running_sum, running_sum_across])
def test_loop_program(build: Callable[[], Graph], golden: Callable[[str, str], None]) -> None:
    golden(f"{build.__name__}.loops", str(lower(build(), 32, 256, 4096, least_tasks=16, keep_bytes=64 << 10)))


@pytest.mark.parametrize("name", CASES)
def test_cpp(name: str, golden: Callable[[str, str], None]) -> None:
    build, schedule = CASES[name]
    golden(f"{name}.cpp", FAMILIES[schedule.split("{")[0]].emit(build(), schedule, CPU_DEVICE).source)


@pytest.mark.parametrize("build", [embedding, along_rows])
def test_cuda(build: Callable[[], Graph], golden: Callable[[str, str], None]) -> None:
    kernel = FAMILIES["pointwise"].emit(build(), "pointwise{vec=4,x=16,y=16,per=1}", CUDA_DEVICE)
    golden(f"{build.__name__}.cu", f"{kernel.source}// grid {kernel.launch.grid}, block {kernel.launch.block}\n")


@pytest.mark.parametrize("name", ON_CUDA)
def test_cuda_scans(name: str, golden: Callable[[str, str], None]) -> None:
    build, schedule = ON_CUDA[name]
    kernel = FAMILIES["scan"].emit(build(), schedule, CUDA_DEVICE)
    golden(f"{name}.cu", f"{kernel.source}// grid {kernel.launch.grid}, block {kernel.launch.block}\n")
