"""Floors of a memory-bound computation: as many bytes moved by our own kernels, on the same threads and memory.

One copies: half of the bytes are read, half written. The other reads as many and writes as many as the computation
does: a core reads more slowly than it reads and writes at once, so that sums of large tensors cannot come near a copy.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch  # pyright: ignore[reportMissingImports]  # only make bench-cpu and make test install it

from codegen.launch.cpu import CpuStep, Pool, bind_steps, entry_address
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.shared_object import load_object
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.runtime import runtime_library

KERNELS = ("ceiling_copy", "ceiling_copy_streaming")
TURNS = (256, 1024, 16384)


def copy_library(cache: ObjectCache) -> Path:
    """The library of codegen/runtime/ceilings.cpp."""
    compiler = find_compiler()
    with compiler.slot() as slot:
        return runtime_library("ceilings", compiler, slot, cache)


def copies(library: Path, pool: Pool, bytes_: int) -> dict[str, Callable[[], object]]:
    """Calls by kernel that read half of `bytes_` and write as much, in PyTorch's memory."""
    return {name: _call(library, pool, name, (bytes_ // 2, bytes_ // 2), (bytes_ // 2, 1)) for name in KERNELS}


def moves(library: Path, pool: Pool, read: int, written: int) -> dict[str, Callable[[], object]]:
    """Calls by kernel that read `read` bytes and write `written`, in PyTorch's memory, in turns of so many bytes."""
    kernel = "ceiling_move"
    return {f"{kernel} {n}": _call(library, pool, kernel, (read, written), (read, written, n)) for n in TURNS}


def _call(
    library: Path, pool: Pool, name: str, bytes_: tuple[int, int], sizes: tuple[int, ...]
) -> Callable[[], object]:
    """A call of one kernel on a source and a target of so many bytes. sizes: what the kernel is told."""
    # Written, all of it: pages that never were are one page of zeros, which reads from the first cache.
    source, target = (torch.empty(n + 64, dtype=torch.uint8).fill_(1) for n in bytes_)
    told = np.array(sizes, np.int64)
    table = np.array([[source.data_ptr(), target.data_ptr(), told.ctypes.data]], np.uint64)
    steps = bind_steps([CpuStep(entry_address(load_object(library), name), (0, 1, 2), pool.threads)], table)

    def move(kept: object = (source, target, told, table)) -> None:
        pool.run(steps)

    return move
