"""Machine code of products with operands in their epilogues: loads are as wide as the kernel says of each tensor. Takes
NVRTC and NVIDIA's disassembler, and no GPU."""

from pathlib import Path

import pytest

from benchmarks.seeds_widths import OPERAND, OPERANDS, found_widths, kernels
from codegen.gpus import specified
from codegen.kernel import Kernel
from fusion_ir.dtype import f16
from tests.nvrtc.test_sass import machine_code
from tests.support.sass import nvdisasm
from tests.support.sass_origins import accesses_by_parameter

pytestmark = pytest.mark.skipif(nvdisasm() is None, reason="needs nvidia-cuda-nvdisasm: the extra `dev`")

# Widths in elements of two bytes.
SHOWN = {
    "residual [M, N]": 8,
    "residual, rows 2 elements apart": 2,
    "bias [N, M], transposed": 1,
    "columns 4... of [M, N + 16]": 4,
}


def test_operands_are_loaded_as_wide_as_the_kernel_says(tmp_path: Path) -> None:
    device = specified("h200", "")
    made: dict[str, Kernel] = {}
    for operand in (o for o in OPERANDS if o.name in SHOWN):
        kernel = dict(kernels(operand, f16, device))["matmul"]
        assert isinstance(kernel, Kernel)
        assert found_widths(kernel)[0][1] == SHOWN[operand.name]
        made[operand.name] = kernel
    for name, sass in machine_code(device, made, tmp_path).items():
        found = accesses_by_parameter(sass, device.arch)
        loads = [f.widths for f in found if f.place == OPERAND and not f.stores]
        assert [set(widths) for widths in loads] == [{2 * SHOWN[name]}], name
