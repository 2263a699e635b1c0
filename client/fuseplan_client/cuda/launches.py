"""A plan's steps on the current device, ready to be queued: kernels with their parameters, and library calls."""

import ctypes
import importlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fuseplan_client.bundle import Bundle
from fuseplan_client.cuda.driver import MAX_DYNAMIC_SHARED_SIZE_BYTES, STATIC_SHARED_BYTES
from fuseplan_client.cuda.library import NAME, Call
from fuseplan_client.cuda.tensor_maps import encode
from fuseplan_client.plan import Plan, Ref, Step


class DeviceError(RuntimeError):
    """The plan was made for another architecture than the current device has."""


@lru_cache(maxsize=1)
def cupy() -> Any:
    """The package CuPy. Raises ImportError, which says what to install."""
    try:
        return importlib.import_module("cupy")
    except ImportError as e:
        raise ImportError(
            f"plans are run through CuPy, which cannot be imported ({e}): "
            "pip install 'fuseplan-client[cuda13]' or 'fuseplan-client[cuda12]'"
        ) from e


def check_arch(arch: str, capability: str) -> None:
    """Raises DeviceError unless code for `arch` runs on a device of a compute capability ("90"): the one of `arch`
    where code uses that architecture's own features ("sm_90a"), else also any later one of its generation."""
    number = int("".join(c for c in arch if c.isdigit()))
    there = int(capability)
    same = number // 10 == there // 10 and number <= there
    if number != there and (arch[-1].isalpha() or not same):
        raise DeviceError(f"the plan is for {arch}; this device is sm_{there}")


class Launches:
    """All steps of a plan, in order. Raises LibraryError, and CuPy's errors for binaries that cannot be loaded."""

    def __init__(self, bundle: Bundle, device: int) -> None:
        self.plan = bundle.plan
        self._modules: dict[str, Any] = {}
        self._steps: list[tuple[Step, tuple[int, ...], Any]] = []
        for step in bundle.plan.steps:
            places = tuple(position(bundle.plan, ref) for ref in step.args)
            data = bundle.binaries[step.binary]
            ready = Call(data, device) if NAME in step.libraries else self._kernel(step, data)
            self._steps.append((step, places, ready))

    def queue(self, addresses: Sequence[int], stream: int, *, prologue: bool = False) -> None:
        """Queues the steps of the prologue, or with `prologue` False all other steps. addresses: of inputs, outputs and
        temporaries. Raises LibraryError, and CuPy's errors."""
        once = self.plan.once
        for step, places, ready in self._steps[:once] if prologue else self._steps[once:]:
            args = [addresses[p] for p in places]
            if isinstance(ready, Call):
                ready.launch(args, stream)
            else:
                _launch(step, ready, args, stream)

    def is_capturing(self, stream: int) -> bool:
        """Whether somebody captures what is queued on a stream."""
        return bool(of_address(stream).is_capturing())

    def _kernel(self, step: Step, data: bytes) -> Any:
        module = self._modules.get(step.binary)
        if module is None:
            module = self._modules[step.binary] = cupy().cuda.function.Module()
            module.load(data)
        function = module.get_function(step.entry)
        if step.shared_bytes > STATIC_SHARED_BYTES:
            cupy().cuda.driver.funcSetAttribute(function.ptr, MAX_DYNAMIC_SHARED_SIZE_BYTES, step.shared_bytes)
        return function


class _Address:
    """A stream of somebody else's by the CUDA stream protocol."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.at  # version of the protocol, cudaStream_t


def of_address(at: int) -> Any:
    """CuPy's object for a cudaStream_t: by the stream protocol, or by `ExternalStream` where CuPy is older than 14."""
    cuda = cupy().cuda
    take = getattr(cuda.Stream, "from_external", None)
    return take(_Address(at)) if take else cuda.ExternalStream(at)


def position(plan: Plan, ref: Ref) -> int:
    """The index of a tensor in the table of inputs, outputs and temporaries."""
    first = {"in": 0, "out": len(plan.inputs), "tmp": len(plan.inputs) + len(plan.outputs)}
    return first[ref.place] + ref.index


def _launch(step: Step, function: Any, args: Sequence[int], stream: int) -> None:
    """One kernel. Its parameters: addresses, then tensor maps by value. The driver has copied them when it returns."""
    pointers = (ctypes.c_uint64 * max(len(args), 1))(*args)
    maps = [encode(m, args[m.argument]) for m in step.tensor_maps]
    first = ctypes.addressof(pointers)
    places = [first + 8 * i for i in range(len(args))] + [ctypes.addressof(m) for m in maps]
    parameters = (ctypes.c_void_p * max(len(places), 1))(*places)
    cupy().cuda.driver.launchKernel(
        function.ptr, *step.grid, *step.block, step.shared_bytes, stream, ctypes.addressof(parameters), 0
    )
