"""The floor of a memory-bound computation: as many bytes copied by our own kernel, on the same threads and memory."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch  # pyright: ignore[reportMissingImports]  # only make bench-cpu and make test install it

from codegen.launch_cpu import Launch, Pool, entry_address, program
from codegen.object_cache import ObjectCache
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.runtime import runtime_library

KERNELS = ("ceiling_copy", "ceiling_copy_streaming")


def copy_library(cache: ObjectCache) -> Path:
    """The library of codegen/runtime/ceilings.cpp."""
    compiler = find_compiler()
    with compiler.slot() as slot:
        return runtime_library("ceilings", compiler, slot, cache)


def copies(library: Path, pool: Pool, bytes_: int) -> dict[str, Callable[[], object]]:
    """Calls by kernel that read half of `bytes_` and write as much, in PyTorch's memory."""
    loaded = ctypes.CDLL(str(library))
    source, target = (torch.zeros(bytes_ // 2 + 64, dtype=torch.uint8) for _ in range(2))
    sizes = np.array([bytes_ // 2, 1], np.int64)
    table = np.array([[source.data_ptr(), target.data_ptr(), sizes.ctypes.data]], np.uint64)

    def call(name: str) -> Callable[[], object]:
        steps = program([Launch(entry_address(loaded, name), (0, 1, 2), pool.threads)], table)

        def copy(kept: object = (source, target, sizes, table)) -> None:
            pool.run(steps)

        return copy

    return {name: call(name) for name in KERNELS}
