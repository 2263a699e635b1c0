"""A kernel or a plan as the timing child launches it on a CUDA device."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from codegen.child import cublaslt
from codegen.child.bench_protocol import read_program
from codegen.child.cuda_memory import cupy
from codegen.child.tensor_maps import Parameters
from codegen.hardware.libraries import is_call
from codegen.sandbox.object_cache import object_bytes
from codegen.sandbox.shared_object import private_copy
from fusion_ir.accuracy.tolerance import Order
from fusion_ir.records import LibraryCall, TensorMapSpec

STATIC_SHARED_BYTES = 48 << 10


class CudaCandidate:
    """A kernel or a plan, its functions loaded: steps over a table of inputs, outputs and temporaries. once: number of
    first steps that are a prologue, which writes the temporaries `kept`. Raises CallError and ImportError for library
    calls that cannot be made here."""

    def __init__(self, text: Mapping[str, Any], inputs: int, outputs: int) -> None:
        read = read_program(text, inputs, outputs)
        self.once, self.buffers, self.kept = read.once, read.buffers, read.kept
        self.order: Order = read.order  # see `judge`
        self.aliases = read.aliases
        self._steps: list[tuple[Any, dict[str, Any], list[int], list[TensorMapSpec]]] = []
        for step, places in read.steps:
            if is_call(step["libraries"]):
                self._steps.append((_call(step["binary"]), step, places, []))
                continue
            function = _module(step["binary"]).get_function(step["entry"])
            if step["shared_bytes"] > STATIC_SHARED_BYTES:
                function.max_dynamic_shared_size_bytes = step["shared_bytes"]
            maps = [TensorMapSpec.model_validate(m) for m in step.get("tensor_maps", ())]
            self._steps.append((function, step, places, maps))

    def launch(self, addresses: Sequence[int], *, prologue: bool = False) -> None:
        """Queues all steps behind the prologue on the current stream, or those of the prologue."""
        for function, step, places, maps in self._steps[: self.once] if prologue else self._steps[self.once :]:
            if isinstance(function, cublaslt.CublasLtCall):
                function.launch([addresses[p] for p in places], cupy().cuda.get_current_stream().ptr)
                continue
            if maps:  # CuPy's own way of launching takes no parameters of 128 bytes
                parameters = Parameters([addresses[p] for p in places], maps)
                shape = (*step["grid"], *step["block"], step["shared_bytes"])
                stream = cupy().cuda.get_current_stream().ptr
                cupy().cuda.driver.launchKernel(function.kernel.ptr, *shape, stream, parameters.address, 0)
                continue
            args = tuple(np.uint64(addresses[p]) for p in places)
            function(tuple(step["grid"]), tuple(step["block"]), args, shared_mem=step["shared_bytes"])

    @property
    def temporaries(self) -> tuple[int, ...]:
        """Bytes of each temporary; 0 for the kept ones, which have memory of their own."""
        return tuple(0 if k in self.kept else size for k, size in enumerate(self.buffers))

    def table(self, tensors: Sequence[int], temporaries: Sequence[int], kept: Sequence[int]) -> list[int]:
        """Addresses of inputs and outputs (`tensors`), then of temporaries. kept: addresses of the kept ones, in
        order."""
        addresses = [*tensors, *temporaries[: len(self.buffers)]]
        for k, address in zip(self.kept, kept, strict=True):
            addresses[len(tensors) + k] = address
        return addresses

    def captured(self, addresses: Sequence[int], stream: Any, *, prologue: bool = False) -> Any:
        """The steps that `launch` queues as a CUDA graph. They run once before: what a library or the driver loads at a
        first launch cannot be loaded while launches are only noted down."""
        with stream:
            self.launch(addresses, prologue=prologue)
            stream.synchronize()
            stream.begin_capture()
            self.launch(addresses, prologue=prologue)
            return stream.end_capture()


@lru_cache(maxsize=512)
def _module(file: str) -> Any:
    return cupy().RawModule(path=str(private_copy(file)))


def _call(file: str) -> cublaslt.CublasLtCall:
    described = LibraryCall.model_validate_json(object_bytes(file))
    return cublaslt.CublasLtCall(described, cupy().cuda.Device().id)
