"""Running compiled kernels on the CPU: the thread pool, steps bound to their memory, and memory for tensors. For child
processes only."""

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codegen.hardware.libraries import load_library
from codegen.sandbox.heartbeat import Note
from codegen.sandbox.shared_object import load_object
from fusion_ir.arithmetic.threads import assign

HUGE_PAGE = 2 << 20
STEP = np.dtype([("entry", np.uint64), ("args", np.uint64), ("tasks", np.int64)])
PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
GUARD_BYTES = (1 << 16, 1 << 20)  # least and most, before and behind a tensor: address space only

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class CpuStep:
    """One step before its memory is known. args: positions in the table of tensors that `bind_steps` gets."""

    entry: int  # address
    args: tuple[int, ...]
    tasks: int


@dataclass(frozen=True, slots=True)
class BoundSteps:
    """`sets` copies of one sequence of `count` steps, each on its own memory. Keeps the memory of the arguments."""

    steps: np.ndarray  # STEP[sets, count]
    args: np.ndarray  # addresses, uint64[sets, sum of arguments]

    @property
    def sets(self) -> int:
        return int(self.steps.shape[0])

    @property
    def count(self) -> int:
        return int(self.steps.shape[1])


def bind_steps(sequence: Sequence[CpuStep], tensors: np.ndarray) -> BoundSteps:
    """The steps of `sequence` over `tensors`: addresses, uint64[sets, tensors]."""
    sets = tensors.shape[0]
    places = [place for step in sequence for place in step.args]
    args = np.ascontiguousarray(tensors[:, places]).reshape(sets, len(places))
    steps = np.zeros((sets, len(sequence)), STEP)
    start = 0
    for i, step in enumerate(sequence):
        steps[:, i]["entry"] = step.entry
        steps[:, i]["args"] = args.ctypes.data + (np.arange(sets, dtype=np.uint64) * len(places) + start) * 8
        steps[:, i]["tasks"] = step.tasks
        start += len(step.args)
    return BoundSteps(steps, args)


class Pool:
    """The thread pool of runtime/pool.cpp. One per process: `threads` threads, pinned to `cpus` where that is
    possible."""

    def __init__(self, library: Path, cpus: Sequence[int]) -> None:
        self._library = load_object(library)
        self._library.fp_run.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._library.fp_run.restype = None
        noted = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_double]
        self._library.fp_time.argtypes = [ctypes.c_void_p, *[ctypes.c_int] * 4, ctypes.c_void_p, *noted]
        self._library.fp_time.restype = None
        self._library.fp_stop.restype = None
        self.threads = len(cpus)
        error = self._library.fp_start(self.threads, (ctypes.c_int * len(cpus))(*cpus))
        if error:
            raise OSError(error, f"cannot start {self.threads} threads")

    def run(self, bound: BoundSteps, which: int = 0) -> None:
        """Runs copy `which` once. Other Python threads run meanwhile."""
        self._library.fp_run(bound.steps[which].ctypes.data, bound.count)

    def time_us(self, bound: BoundSteps, samples: int, first: int = 0, note: Note | None = None) -> list[float]:
        """Times `samples` runs, over the copies in turn from `first` on. Microseconds. note: made before each run."""
        out = np.zeros(samples)
        noted = (note.page, note.program, note.seconds) if note else (None, 0, 0.0)
        copies = bound.steps.ctypes.data, bound.count, bound.sets
        self._library.fp_time(*copies, first % bound.sets, samples, out.ctypes.data, *noted)
        return np.round(out, 3).tolist()  # the clock ticks in nanoseconds

    @property
    def nothing(self) -> int:
        """Address of a kernel that does nothing."""
        return entry_address(self._library, "fp_nothing")

    def close(self) -> None:
        """Ends the threads."""
        self._library.fp_stop()


def load_entry(binary: Path | str, entry: str, libraries: Sequence[str] = ()) -> int:
    """Address of a kernel, after the libraries that it needs. All stay loaded. Raises OSError where one cannot be, or
    the binary has no such entry."""
    for name in libraries:
        load_library(name)
    library = load_object(binary)
    try:
        return entry_address(library, entry)
    except AttributeError:
        raise OSError(f"the binary has no entry {entry}") from None


def entry_address(library: ctypes.CDLL, name: str) -> int:
    """Address of a function."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


class PageMemory:
    """Private anonymous pages, huge where the system grants it. aligned: from a 2 MiB boundary on, every page touched
    where `touched`."""

    def __init__(self, size: int, huge: bool = True, aligned: bool = True, touched: bool = True) -> None:
        margin = HUGE_PAGE if aligned else 0
        length = max(size, 1) + margin
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, -(-length // mmap.PAGESIZE) * mmap.PAGESIZE, flags=flags)
        if huge and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        whole: Bytes = np.frombuffer(self._map, np.uint8)
        start = -int(whole.ctypes.data) % HUGE_PAGE if aligned else 0
        self.bytes: Bytes = whole[start : start + size] if aligned else whole
        if aligned and touched:
            assign(self.bytes[:: mmap.PAGESIZE], 0)
        self.address = int(whole.ctypes.data) + start  # an empty slice would not know


class GuardedTensor:
    """Memory of one tensor between guards that nobody may touch, as large as itself within GUARD_BYTES: an overrun may
    be of rows or planes.

    at_end: the tensor ends as close to the guard behind it as its alignment allows, else it starts right behind the
    guard before it. What lies between tensor and guards holds a pattern that `intact` looks for. Touching the guards
    kills the process.
    """

    CANARY = 0xC5

    def __init__(self, size: int, alignment: int, at_end: bool) -> None:
        page = mmap.PAGESIZE
        body = -(-max(size, 1) // page) * page
        if at_end and alignment > page:
            raise ValueError(f"alignment {alignment} is beyond a page")
        guard = min(max(body, GUARD_BYTES[0]), GUARD_BYTES[1])
        self._memory = PageMemory(body + 2 * guard, huge=body >= 2 * HUGE_PAGE, aligned=False)
        whole = self._memory.bytes
        start = guard + (self.slack(size, alignment) if at_end else 0)
        self.before: Bytes = whole[guard:start]
        self.bytes: Bytes = whole[start : start + size]
        self.behind: Bytes = whole[start + size : guard + body]
        self.address = self._memory.address + start
        self._body = whole[guard : guard + body]
        self._mend()
        protect(whole[:guard], PROT_NONE)
        protect(whole[guard + body :], PROT_NONE)

    @staticmethod
    def slack(size: int, alignment: int) -> int:
        """Bytes between the first page and a tensor that lies at the end; 0: it lies there either way."""
        return -size % mmap.PAGESIZE // alignment * alignment if size else mmap.PAGESIZE // alignment * alignment

    def freeze(self) -> None:
        """Makes writing to the tensor kill the process."""
        protect(self._body, PROT_READ)

    def reset(self, byte: int) -> None:
        """Fills the tensor with `byte`, and what is around it with its pattern again."""
        self._mend()
        assign(self.bytes, byte)

    def _mend(self) -> None:
        self.before[:] = self.CANARY
        self.behind[:] = self.CANARY

    @property
    def intact(self) -> bool:
        """Nothing was written around the tensor."""
        return bool((self.before == self.CANARY).all() and (self.behind == self.CANARY).all())


def protect(pages: Bytes, access: int) -> None:
    """mprotect(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(int(pages.ctypes.data)), ctypes.c_size_t(pages.size), access):
        raise OSError(ctypes.get_errno(), "mprotect")
