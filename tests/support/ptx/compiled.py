"""Kernels by NVRTC, run as PTX."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codegen.toolchain.compiler import INCLUDE
from tests.support.ptx.accesses import accesses
from tests.support.ptx.arithmetic import arithmetic
from tests.support.ptx.machine import Argument, Machine
from tests.support.ptx.sm90 import sm90
from tests.support.ptx.syntax import Module, parse
from tests.support.ptx.values import Array
from tests.support.ptx.warp import Handler, control
from tests.support.ptx.warps import warps
from tests.support.ptx.wgmma import products

HANDLERS: dict[str, Handler] = {**control(), **arithmetic(), **accesses(), **warps(), **sm90(), **products()}


def compile_ptx(source: str, arch: str, include: Path = Path(INCLUDE)) -> str:
    """PTX for compute_<arch> of kernels over the headers in `include`. Fails where they do not compile; skips without
    NVRTC."""
    nvrtc = pytest.importorskip("cupy.cuda", reason="needs cupy and NVRTC").nvrtc
    headers = '#include "loops_cuda.cuh"\n' + ('#include "device_sm90.cuh"\n' if arch == "90a" else "")
    program = nvrtc.createProgram(headers + source, "kernels.cu", [], [])
    flags = [f"--gpu-architecture=compute_{arch}", "-std=c++17", "--fmad=false", "-default-device", f"-I{include}"]
    try:
        nvrtc.compileProgram(program, flags)
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program)[:4000])
    return str(nvrtc.getPTX(program).decode())


def run_ptx(module: Module | str, kernel: str, arguments: Sequence[Argument], **launch: Any) -> list[Array]:
    """Runs a launch, see `Machine`, and gives the arrays among the arguments afterwards. Raises PtxError."""
    parsed = parse(module) if isinstance(module, str) else module
    return Machine(parsed, kernel, HANDLERS, arguments, **launch).run()
