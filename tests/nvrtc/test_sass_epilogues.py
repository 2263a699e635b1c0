"""Machine code of products with operands in their epilogues: loads are as wide as the kernel says of each tensor. Takes
NVRTC and NVIDIA's disassembler, and no GPU."""

from math import gcd
from pathlib import Path

import pytest

from benchmarks.seeds.widths import OPERAND, OPERANDS, found_widths, kernels
from codegen.hardware.gpus import specified
from codegen.kernel import Kernel
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import f16, f32
from fusion_ir.ops import make_input
from tests.nvrtc.test_sass import default_kernel, machine_code
from tests.support.sass import nvdisasm
from tests.support.sass_origins import accesses_by_parameter
from tests.support.whole import in_turn

pytestmark = pytest.mark.skipif(nvdisasm() is None, reason="needs nvidia-cuda-nvdisasm: the extra `dev`")

# Widths in elements of two bytes.
SHOWN = {
    "residual [M, N]": 8,
    "residual, rows 2 elements apart": 2,
    "bias [N, M], transposed": 1,
    "columns 4... of [M, N + 16]": 4,
}


@pytest.mark.soak
@pytest.mark.turn("machine code: epilogues and attention")
def test_operands_are_loaded_as_wide_as_the_kernel_says(tmp_path: Path) -> None:
    device = specified("h200", "")
    made: dict[str, Kernel] = {}
    for operand in in_turn((o for o in OPERANDS if o.name in SHOWN), 2):
        kernel = dict(kernels(operand, f16, device))["matmul"]
        assert isinstance(kernel, Kernel)
        assert found_widths(kernel)[0][1] == SHOWN[operand.name]
        made[operand.name] = kernel
    for name, sass in machine_code(device, made, tmp_path).items():
        found = accesses_by_parameter(sass, device.arch)
        loads = [f.widths for f in found if f.place == OPERAND and not f.stores]
        assert [set(widths) for widths in loads] == [{2 * SHOWN[name]}], name


@pytest.mark.soak
@pytest.mark.parametrize("columns", in_turn([100, 102], 1))
def test_columns_behind_whole_runs_are_as_wide_as_rows_are_aligned(columns: int, tmp_path: Path) -> None:
    """Products whose last run of 8 columns is cut short: each width that the machine code has is told, and no other."""
    device, rows, depth = specified("h200", ""), 96, 64
    sizes = ((rows, depth), (depth, columns), (rows, columns))
    specs = tuple(InputSpec(shape_of(s), f16, dense_strides(s), 16) for s in sizes)
    x, w, r = (make_input(i, spec) for i, spec in enumerate(specs))
    out = build.cast(build.add(build.matmul(x, w, f32), build.cast(r, f32)), f16)
    kernel = default_kernel("matmul", Graph(specs, (OutputSpec(out, (columns, 1)),)), device)
    found = accesses_by_parameter(machine_code(device, {"": kernel}, tmp_path)[""], device.arch)
    said = {(a.tensor, 2 * a.width) for a in kernel.accesses}
    names = {0: "in0", 1: "in1", 2: "in2", 3: "out0"}
    assert {(names.get(f.place) if isinstance(f.place, int) else None, w) for f in found for w in f.widths} == said
    assert {w for tensor, w in said if tensor in ("in2", "out0")} == {2 * gcd(8, columns)}
