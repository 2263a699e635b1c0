"""Kernels of every family as one file: nvcc takes it as its command line says, which tells it less than NVRTC."""

import shutil
from pathlib import Path

import pytest

from codegen.standalone import standalone
from tests.support.devices import CUDA_DEVICE
from tests.support.standalone import CUDA, compiles, sources
from tests.support.whole import few_or_all, in_turn

ARCHITECTURES = few_or_all(["sm_90a"], ["sm_80", "sm_120"])
NOWHERE = {("wgmma", "sm_80"), ("wgmma", "sm_120")}


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("family", in_turn(CUDA, 2, "standalone"))
def test_nvcc_takes_it(family: str, arch: str, tmp_path: Path) -> None:
    device = CUDA_DEVICE.model_copy(update={"arch": arch})
    made = sources(family, device)
    assert bool(made) == ((family, arch) not in NOWHERE)
    if made:
        compiles(standalone(in_turn(made, 1, family)), device, tmp_path)
