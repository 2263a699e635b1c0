"""Elementary functions in machine code: how many instructions an element costs, and that none branches.

Pointwise kernels of 16-bit floats are bound by these. Takes NVRTC and NVIDIA's disassembler, and no GPU."""

from pathlib import Path

import pytest

from codegen.hardware.gpus import specified
from codegen.kernel import Kernel, Launch
from fusion_ir.dtype import DType, bf16, f32
from fusion_ir.ops import OPS
from testing.vec_harness import Function
from tests.nvrtc.test_sass import machine_code
from tests.nvrtc.test_vec_headers import kernel
from tests.support.sass import Sass, nvdisasm
from tests.support.whole import in_turn

pytestmark = pytest.mark.skipif(nvdisasm() is None, reason="needs nvidia-cuda-nvdisasm: the extra `dev`")

# name: expression, type, instructions an element
EXPECTED: dict[str, tuple[str, DType, float]] = {
    "exp": (OPS["exp"].cpp, f32, 8),
    "exp2": (OPS["exp2"].cpp, f32, 4),
    "sigmoid": (OPS["sigmoid"].cpp, f32, 10),
    "tanh": (OPS["tanh"].cpp, f32, 14),
    "erf": (OPS["erf"].cpp, f32, 16),
    "rsqrt": (OPS["rsqrt"].cpp, f32, 4),
    "twice": ("narrow_add_({0}, {0})", bf16, 0.5),
}
NARROW, WIDE = 8, 16  # elements of a thread: what both have is not the elements'


def of_thread(name: str, width: int) -> Kernel:
    expression, dtype, _ = EXPECTED[name]
    entry = f"{name}_{width}"
    source = kernel(Function(entry, expression, (dtype,), dtype, width))
    return Kernel(entry, source, "cuda", "hand", entry, Launch())


def computing(sass: Sass) -> int:
    moves = sass.count("LDG", "STG", "MOV", "NOP", "IADD3", "HFMA2")  # IADD3: addresses; HFMA2: constants
    return len(sass.instructions) - moves + sum(name == "HFMA2.MMA.BF16_V2" for name, _ in sass.instructions)


@pytest.mark.turn("machine code: accesses and functions")
@pytest.mark.soak
def test_instructions_an_element(tmp_path: Path) -> None:
    drawn = in_turn(EXPECTED, 2)
    kernels = {f"{name}_{width}": of_thread(name, width) for name in drawn for width in (NARROW, WIDE)}
    sass = machine_code(specified("h100", ""), kernels, tmp_path)
    for name in drawn:
        most = EXPECTED[name][2]
        few, many = sass[f"{name}_{NARROW}"], sass[f"{name}_{WIDE}"]
        assert few.count("BRA") == many.count("BRA"), f"{name} branches"
        each = (computing(many) - computing(few)) / (WIDE - NARROW)
        assert 0 < each <= most + 0.5, f"{name}: {each} an element"
