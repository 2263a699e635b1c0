"""A plan for a CUDA device in a program that has tensors there already: kernels are loaded into the program's context,
and launched on its streams, in memory from its allocator."""

import ctypes
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from fuseplan_client.constants import ByConstants, Known
from fuseplan_client.cpu.executor import Executor
from fuseplan_client.cpu.shared_objects import ObjectError, check_digest, entry_address
from fuseplan_client.cuda.driver import (
    beside_captures,
    capability,
    check,
    driver,
    function_of,
    in_context,
    load_module,
    primary_context,
)
from fuseplan_client.cuda.launches import check_arch
from fuseplan_client.cuda.library import NAME, Call
from fuseplan_client.cuda.tensor_maps import DATA_TYPES, SWIZZLES
from fuseplan_client.plan import ALIGNMENT, Plan, Ref, Step

MOST_AXES = 5
# Functions of the driver, in the order of cuda::Driver of codegen/runtime/cuda_launches.h.
DRIVER = ("cuLaunchKernel", "cuTensorMapEncodeTiled", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")


class CapturedError(RuntimeError):
    """The plan's constants are others than before, and what is computed of them cannot be while a stream is captured.
    Nothing was queued."""


class Surroundings(Protocol):
    """The program around, as far as a plan needs it. number: of the device, as the driver counts."""

    number: int

    def allocate(self, size: int) -> Any:
        """Memory of the device, so many bytes: an object with `data_ptr`, which may go as soon as all that uses it is
        queued on the current stream."""
        ...

    def is_capturing(self) -> bool:
        """Whether what is queued on the current stream is captured into a CUDA graph."""
        ...

    def mark(self) -> Any:
        """The end of what is queued on the current stream."""
        ...

    def wait_for(self, mark: Any, memory: Any) -> None:
        """Has the current stream wait for a mark, and memory stay until what it will have queued by then is done."""
        ...

    def on_device(self) -> AbstractContextManager[Any]:
        """Makes the device the current one."""
        ...


@dataclass(frozen=True)
class _Kept:
    """The results of a prologue for some constants. held: these, so that nothing else lies at their addresses. ready:
    where they are there, in the order of the stream that computed them. streams: those that wait for that."""

    known: Known
    memory: Any
    held: Sequence[Any]
    ready: Any
    streams: set[int]


# What streams read while they were captured: graphs read it again, whatever the constants have become, and whoever
# still has the program.
_captured: dict[int, _Kept] = {}  # by identity


class Table:
    """One thread's array of addresses for a program: of inputs and outputs, then of the memory for temporaries, and of
    what the prologue left."""

    def __init__(self, size: int) -> None:
        self.addresses: Any = (ctypes.c_void_p * size)()
        self.kept: _Kept | None = None


class CudaProgram:
    """A plan with its kernels loaded on a device. Any number of threads may run it on any streams at the same time:
    each has a table of its own, and each call brings memory for temporaries (`workspace_bytes`), whose address is at
    `workspace` in the table.

    A prologue runs for each version of the constants that calls come with, into memory of its own. Results are kept as
    `ByConstants` says; other streams wait for them in their order. What was read while a stream was captured stays for
    good.
    """

    def __init__(self, plan: Plan, binaries: Mapping[str, bytes], executor: Executor, around: Surroundings) -> None:
        """Loads the kernels. Raises DeviceError, DriverError, LibraryError, ObjectError, OSError."""
        check_arch(plan.arch, capability(around.number))
        self.plan, self.executor, self.once = plan, executor, plan.once
        self.first_output = len(plan.inputs)
        self.workspace = self.first_output + len(plan.outputs)
        self._kept_place = self.workspace + 1
        self._places, self.workspace_bytes, self._kept_bytes = self._laid_out()
        self._around, self._library = around, _ready(executor)
        self._threads = threading.local()  # a table for each
        self._results: ByConstants[_Kept] = ByConstants()
        self._preparing = threading.Lock()
        self._calling = threading.Lock()  # a library's call is one object for all threads
        self.prologue_runs = 0
        context = primary_context(around.number)
        with around.on_device(), in_context(context), beside_captures():
            self._steps = [self._made(step, binaries[step.binary]) for step in plan.steps]
        kernels = [made for made in self._steps if isinstance(made, _Kernel)]
        self.entry, self.handle = self._library.fp_cuda_run, self._handle(context, kernels)
        self._stretches = self._in_stretches()
        behind = [s for s in self._stretches if not s.prologue]
        alone = len(behind) == 1 and behind[0].call is None
        self.single: tuple[int, int] | None = (behind[0].first, behind[0].end) if alone else None

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.fp_cuda_free(self.handle)

    def table(self) -> Table:
        """The calling thread's table."""
        try:
            return self._threads.table
        except AttributeError:
            table = self._threads.table = Table(self._kept_place + 1)
            return table

    def run(self, table: Table, stream: int) -> None:
        """Queues all steps behind the prologue on a stream. Raises DriverError, LibraryError."""
        self._queue(table, stream, prologue=False)

    def prepare(self, table: Table, stream: int, known: Known, held: Sequence[Any]) -> None:
        """Has the results of the prologue for constants so `known`, which are `held`. Raises CapturedError,
        DriverError, LibraryError."""
        kept = self._results.get(known, held)
        if kept is None:
            with self._preparing:
                kept = self._results.made(known, held, lambda: self._computed(table, stream, known, held))
        if table.kept is not kept:
            table.addresses[self._kept_place] = kept.memory.data_ptr()
            table.kept = kept
        if self._around.is_capturing():
            _captured[id(kept)] = kept
        elif stream not in kept.streams:
            self._around.wait_for(kept.ready, kept.memory)
            kept.streams.add(stream)

    def forget(self) -> None:
        """Has the prologue run again at the next call."""
        self._results.clear()

    def _computed(self, table: Table, stream: int, known: Known, held: Sequence[Any]) -> _Kept:
        if self._around.is_capturing():
            raise CapturedError("constants have changed, and the stream is being captured")
        memory = self._around.allocate(max(self._kept_bytes, 1))
        table.kept, table.addresses[self._kept_place] = None, memory.data_ptr()
        self._queue(table, stream, prologue=True)
        self.prologue_runs += 1
        return _Kept(known, memory, tuple(held), self._around.mark(), {stream})

    def _queue(self, table: Table, stream: int, *, prologue: bool) -> None:
        with ExitStack() as stack:
            if any(s.call for s in self._stretches):
                stack.enter_context(self._calling)
                stack.enter_context(self._around.on_device())
            for s in self._stretches:
                if s.prologue is not prologue:
                    continue
                if s.call is None:
                    raise_for(self.entry(self.handle, s.first, s.end, table.addresses, stream))
                else:
                    s.call.launch([(table.addresses[p] or 0) + offset for p, offset in s.arguments], stream)

    def _made(self, step: Step, data: bytes) -> "_Kernel | Call":
        if NAME in step.libraries:
            return Call(data, self._around.number)
        function = function_of(_module(self._around.number, step.binary, data), step.entry, step.shared_bytes)
        return _Kernel(step, function, [self._place(ref) for ref in step.args])

    def _handle(self, context: int, kernels: Sequence["_Kernel"]) -> int:
        arguments = [place for k in kernels for place in k.arguments]
        maps = [_map(m) for k in kernels for m in k.step.tensor_maps]
        handle = self._library.fp_cuda_plan(
            context,
            len(kernels),
            (_Step * max(len(kernels), 1))(*(k.as_step() for k in kernels)),
            (_Argument * max(len(arguments), 1))(*(_Argument(*place) for place in arguments)),
            (_Map * max(len(maps), 1))(*maps),
        )
        if not handle:
            raise MemoryError("there is no memory for a plan's steps")
        return handle

    def _in_stretches(self) -> "list[_Stretch]":
        """The steps in order: kernels that follow each other together, calls of a library one by one."""
        found: list[_Stretch] = []
        first = 0
        rows = enumerate(zip(self.plan.steps, self._steps, strict=True))
        for (prologue, alone), group in groupby(
            rows, key=lambda row: (row[1][0].prologue, row[0] if isinstance(row[1][1], Call) else -1)
        ):
            steps = [pair for _, pair in group]
            if alone < 0:
                found.append(_Stretch(prologue, first, first + len(steps)))
                first += len(steps)
            else:
                step, call = steps[0]
                assert isinstance(call, Call)
                found.append(_Stretch(prologue, call=call, arguments=[self._place(ref) for ref in step.args]))
        return found

    def _place(self, ref: Ref) -> tuple[int, int]:
        """Where an argument is: behind which address of the table, and by how many bytes."""
        if ref.place == "tmp":
            return self._places[ref.index]
        return (0 if ref.place == "in" else self.first_output) + ref.index, 0

    def _laid_out(self) -> tuple[list[tuple[int, int]], int, int]:
        """Places of the buffers, and the bytes of the workspace and of what is kept."""
        places, ends = list[tuple[int, int]](), {False: 0, True: 0}
        for buffer in self.plan.buffers:
            places.append((self._kept_place if buffer.kept else self.workspace, ends[buffer.kept]))
            ends[buffer.kept] += -(-max(buffer.bytes, 1) // ALIGNMENT) * ALIGNMENT
        return places, ends[False], ends[True]


@dataclass(frozen=True)
class _Kernel:
    step: Step
    function: int
    arguments: Sequence[tuple[int, int]]

    def as_step(self) -> "_Step":
        step = self.step
        return _Step(
            self.function, step.grid, step.block, step.shared_bytes, len(self.arguments), len(step.tensor_maps), 0
        )


@dataclass(frozen=True)
class _Stretch:
    """Kernels `first` to before `end`, counted without calls; or the call of a library with its arguments."""

    prologue: bool
    first: int = 0
    end: int = 0
    call: Call | None = None
    arguments: Sequence[tuple[int, int]] = ()


class _Step(ctypes.Structure):
    """cuda::Step."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("arguments", ctypes.c_int32),
        ("maps", ctypes.c_int32),
        ("unused", ctypes.c_int32),
    )


class _Argument(ctypes.Structure):
    """cuda::Argument."""

    _fields_ = (("place", ctypes.c_int64), ("offset", ctypes.c_int64))


class _Map(ctypes.Structure):
    """cuda::Map."""

    _fields_ = (
        ("sizes", ctypes.c_uint64 * MOST_AXES),
        ("strides", ctypes.c_uint64 * (MOST_AXES - 1)),
        ("offset", ctypes.c_int64),
        ("argument", ctypes.c_int32),
        ("data_type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("swizzle", ctypes.c_int32),
        ("box", ctypes.c_uint32 * MOST_AXES),
        ("unused", ctypes.c_int32),
    )


def raise_for(status: int) -> None:
    """Raises DriverError unless a run was queued."""
    check(status, "a launch by the executor")


def _map(m: Any) -> _Map:
    return _Map(
        tuple(m.sizes),
        tuple(m.strides_bytes),
        m.offset_bytes,
        m.argument,
        DATA_TYPES[m.dtype],
        len(m.sizes),
        SWIZZLES[m.swizzle],
        tuple(m.box),
        0,
    )


def _ready(executor: Executor) -> Any:
    """The executor's functions, which know the driver's. Raises ObjectError."""
    library = executor.library
    if not hasattr(library, "fp_cuda_run"):
        raise ObjectError("the server's executor runs no plans for CUDA devices: is the server older?")
    library.fp_cuda_plan.restype = ctypes.c_void_p
    library.fp_cuda_plan.argtypes = [ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * 3]
    library.fp_cuda_free.argtypes = [ctypes.c_void_p]
    library.fp_cuda_run.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 2]
    there = [entry_address(driver(), name) if hasattr(driver(), name) else None for name in DRIVER]
    library.fp_use_cuda((ctypes.c_void_p * len(DRIVER))(*there))
    return library


_modules: dict[tuple[int, str], int] = {}
_loading = threading.Lock()


def _module(device: int, sha256: str, data: bytes) -> int:
    """A module of the current context, loaded once in a process. Raises DriverError, ObjectError."""
    with _loading:
        key = device, sha256
        if key not in _modules:
            check_digest(sha256, data)
            _modules[key] = load_module(data)
        return _modules[key]
