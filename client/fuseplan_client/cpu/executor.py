"""The executor: the shared object that runs the steps of plans (codegen/runtime/executor.cpp), one in a process."""

import ctypes
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fuseplan_client.cpu.machine import cpu_flags
from fuseplan_client.cpu.shared_objects import ObjectError, entry_address, load_object

VERSION = 1  # of the executor's functions
STACK_BYTES = 4 << 20  # what kernels may take of a thread's stack
OPENMP = ("libgomp", "libiomp5", "libomp")  # libraries with GOMP_parallel
RTLD_NOLOAD = 4
AVX512 = frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl"))

Way = Literal["alone", "pool", "openmp"]
WAYS: dict[Way, int] = {"alone": 0, "pool": 1, "openmp": 2}


class StackError(RuntimeError):
    """No thread with a stack of 4 MiB could be had; nothing was computed."""

    def __init__(self) -> None:
        super().__init__(f"no thread has {STACK_BYTES >> 20} MiB of stack left: see `ulimit -s`")


@dataclass(frozen=True)
class ProgramStep:
    """One step: address of its kernel, positions of its arguments in a call's array of addresses, number of tasks."""

    entry: int
    args: tuple[int, ...]
    tasks: int


class Executor:
    """The executor of this process. Its pool has threads once a plan asks for them, however many plans there are; a
    child of a fork has threads of its own once it does. Where the process has OpenMP's threads, as PyTorch's are, plans
    may use these (`use_openmp`).

    library: its functions. draws: whether it has `draw_below`, which those of older servers have not.
    """

    def __init__(self, sha256: str, data: bytes) -> None:
        library = load_object(sha256, data)
        version = library.fp_version() if hasattr(library, "fp_version") else None
        if version != VERSION:
            raise ObjectError(f"expected an executor of version {VERSION}, got {version}: is the server newer?")
        library.fp_plan.restype = ctypes.c_void_p
        library.fp_plan.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 4]
        library.fp_run.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
        ]  # fmt: skip
        library.fp_free.argtypes = [ctypes.c_void_p]
        self.draws = hasattr(library, "fp_draw_below")
        if self.draws:
            library.fp_draw_below.restype = None
            library.fp_draw_below.argtypes = [*[ctypes.c_void_p] * 2, ctypes.c_int64, ctypes.c_uint64, ctypes.c_int]
        if error := library.fp_begin():
            raise OSError(error, "the executor cannot begin")
        self.library = library
        self.has_openmp = False

    def use_openmp(self) -> bool:
        """Has plans run on the OpenMP threads of this process from now on, where it has an OpenMP library loaded."""
        if not self.has_openmp and (openmp := loaded_openmp()) is not None:
            functions = [entry_address(openmp, name) for name in ("GOMP_parallel", "omp_get_num_threads")]
            self.library.fp_use_openmp(*map(ctypes.c_void_p, functions))
            self.has_openmp = True
        return self.has_openmp

    def draw_below(self, state: int, out: int, count: int, limit: int, bits: int | None = None) -> None:
        """Whether each of the next `count` numbers of 53 bits is below `limit`, as bytes. state: address of what
        `torch.Generator.get_state` gives of one on a CPU, which moves on. out: address of the bytes. bits: of vectors;
        None: as many as this CPU has. Other Python threads run meanwhile."""
        self.library.fp_draw_below(state, out, count, limit, vector_bits() if bits is None else bits)

    def program(self, steps: Sequence[ProgramStep]) -> "Program":
        """Steps to run, in order."""
        return Program(self.library, steps)


class Program:
    """Steps that the executor holds. entry: the function that `run` calls, for who calls it without a layer between,
    with `handle`, `first` and `end` before the other arguments of `run` and STACK_BYTES behind them; it gives 0 once
    everything has run."""

    def __init__(self, library: ctypes.CDLL, steps: Sequence[ProgramStep]) -> None:
        places = [place for step in steps for place in step.args]
        counts = [len(step.args) for step in steps]
        self.steps, self._library, self.entry = len(steps), library, library.fp_run
        self.handle = library.fp_plan(
            len(steps),
            _array(ctypes.c_void_p, [step.entry for step in steps]),
            _array(ctypes.c_int, counts),
            _array(ctypes.c_int, places),
            _array(ctypes.c_int64, [step.tasks for step in steps]),
        )
        if not self.handle:
            raise MemoryError("there is no memory for a plan's steps")

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.fp_free(self.handle)

    def run(self, addresses: Any, threads: int, way: int, first: int = 0, end: int | None = None) -> None:
        """Runs steps `first` to before `end`, other Python threads running meanwhile. addresses: a ctypes array of
        those of inputs, outputs and temporaries. threads: at most, the caller among them. way: a value of WAYS. Raises
        StackError."""
        end = self.steps if end is None else end
        if self.entry(self.handle, first, end, addresses, threads, way, STACK_BYTES):
            raise StackError


_executor: Executor | None = None
_lock = threading.Lock()


def process_executor(sha256: str, data: bytes) -> Executor:
    """The executor of this process: the first that was asked for, so that all plans share one pool. Raises
    ObjectError."""
    global _executor
    with _lock:
        if _executor is None:
            _executor = Executor(sha256, data)
        return _executor


def the_executor() -> Executor | None:
    """The executor of this process, None where no plan needed one yet."""
    return _executor


def vector_bits() -> int:
    """The widest vectors that `draw_below` may use here: 512, 256, or 0 for none by name."""
    flags = cpu_flags()
    return 512 if flags >= AVX512 else 256 if "avx2" in flags else 0


def loaded_openmp() -> ctypes.CDLL | None:
    """The OpenMP library that this process has loaded, the one beside PyTorch's own where there are several."""
    files = {
        line.split(maxsplit=5)[5]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if len(line.split(maxsplit=5)) == 6
    }
    found = [f for f in sorted(files) if Path(f).name.startswith(OPENMP) and os.path.exists(f)]
    found.sort(key=lambda f: "torch" not in Path(f).parts)
    for file in found:
        library = ctypes.CDLL(file, mode=ctypes.DEFAULT_MODE | RTLD_NOLOAD)
        if hasattr(library, "GOMP_parallel") and hasattr(library, "omp_get_num_threads"):
            return library
    return None


def _array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * max(len(values), 1))(*values)
