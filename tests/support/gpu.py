"""The first CUDA device in the process of a test: kernels compiled by NVRTC, loaded and launched through CuPy."""

import importlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from codegen.child.tensor_maps import Parameters
from codegen.devices.detection import DeviceError, detect
from codegen.kernel import Kernel
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import CompilerMissing, Failure
from codegen.toolchain.cuda import CudaCompiler
from fusion_ir.records import Device

SECONDS = 300.0  # for one file
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CUfunction_attribute
STATIC_SHARED_BYTES = 48 << 10
BUDGET_SECONDS = float(os.environ.get("FUSEPLAN_GPU_SECONDS", "500"))
STARTED = time.monotonic()

Array = np.ndarray[Any, Any]


_answers: list[Device | str] = []


def found(folder: str) -> Device | str:
    """The device, or why there is none."""
    if not _answers:
        try:
            _answers.append(detect("cuda", ObjectCache(folder), ceilings=False))
        except (DeviceError, CompilerMissing) as e:
            _answers.append(str(e))
    return _answers[0]


def time_is_up() -> bool:
    """Whether tests that have not begun are to be left out: the whole run has a budget (FUSEPLAN_GPU_SECONDS)."""
    return time.monotonic() - STARTED > BUDGET_SECONDS


def context_error() -> str:
    """The error that every call on the device raises in this process since a kernel broke its context; "" where the
    context is sound, and where CuPy was not used. Such errors stay until the process ends (CUDA runtime API,
    cudaErrorIllegalInstruction and its like)."""
    cp = sys.modules.get("cupy")
    if cp is None or not _answers or isinstance(_answers[0], str):
        return ""
    try:
        cp.cuda.Device().synchronize()
    except cp.cuda.runtime.CUDARuntimeError as e:
        return str(e)
    return ""


def arch_number(arch: str) -> int:
    """90 of "sm_90a"."""
    return int("".join(c for c in arch if c.isdigit()))


class Loaded:
    """Kernels compiled in one file for a device, ready to run on arrays."""

    def __init__(self, kernels: Sequence[Kernel], device: Device) -> None:
        compiler = CudaCompiler(device)
        with compiler.slot() as slot:
            built = compiler.compile(slot, compiler.unit(kernels), [k.entry for k in kernels], SECONDS)
        assert not isinstance(built, Failure), built.detail
        self._cupy: Any = importlib.import_module("cupy")
        self._module = self._cupy.cuda.function.Module()
        self._module.load(built[0])
        self._kernels = {k.entry: k for k in kernels}

    def run(self, entry: str, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[Array]:
        """The outputs of a kernel; arrays of their shapes and types say what they hold before. Raises CuPy's errors."""
        cp, launch = self._cupy, self._kernels[entry].launch
        function = self._module.get_function(entry)
        if launch.shared_bytes > STATIC_SHARED_BYTES:
            cp.cuda.driver.funcSetAttribute(function.ptr, MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes)
        memory = [cp.asarray(np.ascontiguousarray(a).reshape(-1).view(np.uint8)) for a in (*inputs, *outputs)]
        parameters = Parameters([int(m.data.ptr) for m in memory], launch.tensor_maps)
        shape, stream = (*launch.grid, *launch.block, launch.shared_bytes), cp.cuda.get_current_stream().ptr
        cp.cuda.driver.launchKernel(function.ptr, *shape, stream, parameters.address, 0)
        cp.cuda.Device().synchronize()
        results = memory[len(inputs) :]
        return [cp.asnumpy(m).view(a.dtype).reshape(a.shape) for m, a in zip(results, outputs, strict=True)]


def skip_or_fail(reason: str) -> None:
    """Without a device: `make test-gpu` (FUSEPLAN_NEED_GPU) fails, `pytest` skips."""
    if os.environ.get("FUSEPLAN_NEED_GPU"):
        pytest.exit(f"test-gpu needs a CUDA device: {reason}", returncode=3)
    pytest.skip(f"no CUDA device: {reason}")
