"""Machine code of family `attention`: tensor cores, whole accesses, no local memory, nothing of a row's size stored.
Takes NVRTC and NVIDIA's disassembler, and no GPU."""

from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.hardware.gpus import specified
from codegen.kernel import Kernel
from codegen.schedule import schedule_values
from tests.nvrtc.test_sass import machine_code
from tests.nvrtc.test_sass_matmul import without_idle_loads
from tests.support.attention import causal, masked
from tests.support.sass import nvdisasm
from tests.support.whole import in_turn

pytestmark = pytest.mark.skipif(nvdisasm() is None, reason="needs nvidia-cuda-nvdisasm: the extra `dev`")

ATTENTION = FAMILIES["attention"]
HEADS, TOKENS, SIZE = 12, 1024, 64
GRAPHS = {"probabilities": masked(HEADS, TOKENS, TOKENS, SIZE), "attention": causal(HEADS, TOKENS, TOKENS, SIZE, SIZE)}


def multiplications(kernel: Kernel, products: int) -> int:
    """Instructions that multiply, of a warp: in each of its slices of 32 columns, of 16 x 8 x 16 products."""
    s = {name: int(value) for name, value in schedule_values(kernel.schedule).items()}
    return products * (s["rows"] // 16) * (TOKENS // (32 * s["warps"])) * 4 * (SIZE // 16)


@pytest.mark.soak
@pytest.mark.parametrize("target", in_turn(["a100", "h100"], 1))
@pytest.mark.turn("machine code: epilogues and attention")
def test_attention(target: str, tmp_path: Path) -> None:
    device = specified(target, "")
    kernels = {name: ATTENTION.emit(graph, ATTENTION.space(graph, device)[0], device) for name, graph in GRAPHS.items()}
    for name, found in machine_code(device, kernels, tmp_path).items():
        sass, schedule = without_idle_loads(found), kernels[name].schedule
        assert not sass.local, schedule
        assert set(sass.global_loads) == {16} == set(sass.global_stores), (schedule, sass.global_loads)
        assert sass.count("HMMA") == multiplications(kernels[name], 1 + (name == "attention")), schedule
        assert sass.count("LDSM") and sass.count("LDGSTS")
