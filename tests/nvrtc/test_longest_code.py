"""Machine code of the tiled kernels with the longest code that a family allows: `codegen.tiled.code_length` counts what
NVRTC unrolls. Takes no GPU."""

from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.schedule import schedule_text, schedule_values
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cuda import CudaCompiler
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from testing.tensors import graph_of, spec
from tests.support.devices import CUDA_DEVICE
from tests.support.whole import in_turn

MOST_INSTRUCTIONS = 48_000
INSTRUCTION_BYTES = 16
MOST_FUNCTIONS = 32


def functions(x: Node, count: int) -> Node:
    """`count` functions with long code (sin, tanh, erf, pow), each applied to the sum before it."""
    for i in range(count):
        x = B.add((B.sin, B.tanh, B.erf, lambda y: B.pow_(y, y))[i % 4](x), x)
    return x


def graph(where: str, count: int) -> Graph:
    """A product of matrices with `count` functions of its left operand, its scores or its result, by `where`."""
    dtype = bf16 if where == "scores" else f32
    x = spec((256, 64 if where == "scores" else 256), dtype)
    if where == "left":
        return graph_of([x, x], lambda x, w: B.matmul(functions(x, count), w))
    if where == "scores":
        return graph_of([x, x], lambda q, k: B.softmax(functions(B.matmul(q, B.permute(k, (1, 0))), count)))
    return graph_of([x, x], lambda x, w: functions(B.matmul(x, w), count))


def longest(family: str, where: str, schedule: str) -> Kernel:
    """The kernel with as many functions as the family lets the schedule have."""
    found: list[Kernel] = []
    for count in range(MOST_FUNCTIONS):
        segment = graph(where, count)
        if FAMILIES[family].accepts(segment, CUDA_DEVICE) is not None:
            break
        try:
            found.append(FAMILIES[family].emit(segment, schedule, CUDA_DEVICE))
        except EmitError:
            break
    assert 0 < len(found) < MOST_FUNCTIONS, f"{len(found)} kernels"
    return found[-1]


SUMS = schedule_values("matmul{path=fma,bm=128,bn=64,bk=16,stages=2,warps_m=2,warps_n=1,group=8}")


LONGEST = {
    "many sums": ("matmul", "behind", schedule_text("matmul", SUMS)),
    "few sums": ("matmul", "behind", schedule_text("matmul", {**SUMS, "bm": "32", "bn": "32", "warps_m": "1"})),
    "operand": ("matmul", "left", schedule_text("matmul", {**SUMS, "bk": "32"})),
    "strips": ("attention", "scores", "attention{rows=32,warps=4,groups=1,stages=2,turns=1,blocks=1}"),
}


@pytest.mark.turn("machine code: accesses and functions")
@pytest.mark.soak
@pytest.mark.parametrize(
    ("family", "where", "schedule"), [pytest.param(*LONGEST[name], id=name) for name in in_turn(LONGEST, 1)]
)
def test_code_is_no_longer_than_it_may_be(family: str, where: str, schedule: str, tmp_path: Path) -> None:
    builder = Builder(CudaCompiler(CUDA_DEVICE), ObjectCache(tmp_path), Limits(compile_seconds=280.0))
    try:
        (built,) = builder.compile([longest(family, where, schedule)])
    finally:
        builder.close()
    assert isinstance(built, Binary), built.detail
    assert built.report and built.report.code_bytes
    assert built.report.code_bytes <= MOST_INSTRUCTIONS * INSTRUCTION_BYTES


def test_steps_of_many_products_are_no_schedules_of_many_sums() -> None:
    """128 products for each of 128 sums of a thread took NVRTC half a minute, whatever was behind."""
    plain = graph("behind", 0)
    with pytest.raises(EmitError, match="its code would be as long as 16"):
        FAMILIES["matmul"].emit(plain, schedule_text("matmul", {**SUMS, "bk": "128"}), CUDA_DEVICE)
    FAMILIES["matmul"].emit(plain, schedule_text("matmul", {**SUMS, "bk": "32"}), CUDA_DEVICE)
