"""A kernel or a plan as the timing child launches it on a CUDA device."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from codegen.child import cublaslt
from codegen.child.cuda_memory import cupy
from codegen.child.tensor_maps import Parameters
from codegen.libraries import is_call
from fusion_ir.records import LibraryCall, TensorMapSpec

STATIC_SHARED_BYTES = 48 << 10


class Candidate:
    """A kernel or a plan, its functions loaded: steps over the table inputs, outputs, temporaries. Raises CallError and
    ImportError for library calls that cannot be made here."""

    def __init__(self, text: dict[str, Any], inputs: int, outputs: int) -> None:
        first = {"in": 0, "out": inputs, "tmp": inputs + outputs}
        self.buffers: tuple[int, ...] = tuple(text["buffers"])
        self.aliases = {i: first[place] + index for i, (place, index) in text["aliases"]}
        self._steps: list[tuple[Any, dict[str, Any], list[int], list[TensorMapSpec]]] = []
        for step in text["steps"]:
            places = [first[place] + index for place, index in step["args"]]
            if is_call(step["libraries"]):
                self._steps.append((_call(step["binary"]), step, places, []))
                continue
            function = _module(step["binary"]).get_function(step["entry"])
            if step["shared_bytes"] > STATIC_SHARED_BYTES:
                function.max_dynamic_shared_size_bytes = step["shared_bytes"]
            maps = [TensorMapSpec.model_validate(m) for m in step.get("tensor_maps", ())]
            self._steps.append((function, step, places, maps))

    def launch(self, addresses: Sequence[int]) -> None:
        """Queues all steps on the current stream."""
        for function, step, places, maps in self._steps:
            if isinstance(function, cublaslt.Call):
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

    def captured(self, addresses: Sequence[int], stream: Any) -> Any:
        """The steps as a CUDA graph. They run once before: what a library or the driver loads at a first launch cannot
        be loaded while launches are only noted down."""
        with stream:
            self.launch(addresses)
            stream.synchronize()
            stream.begin_capture()
            self.launch(addresses)
            return stream.end_capture()


@lru_cache(maxsize=512)
def _module(file: str) -> Any:
    return cupy().RawModule(path=file)


def _call(file: str) -> cublaslt.Call:
    described = LibraryCall.model_validate_json(Path(file).read_bytes())
    return cublaslt.Call(described, cupy().cuda.Device().id)
