"""The timing child's own kernels compile. There CuPy compiles them; here nothing else would."""

from pathlib import Path

import pytest

from codegen.child.cuda_kernels import SOURCE
from codegen.toolchain.cuda import CudaCompiler
from tests.support.devices import CUDA_DEVICE


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_they_compile(arch: str, tmp_path: Path) -> None:
    request = {"job": "compile", "source": SOURCE, "flags": [f"--gpu-architecture={arch}"],
               "file": str(tmp_path / "unit.cubin")}  # fmt: skip
    with CudaCompiler(CUDA_DEVICE).slot() as slot:
        answer = slot.call(request, seconds=100.0)
    assert answer["ok"], answer["log"]
