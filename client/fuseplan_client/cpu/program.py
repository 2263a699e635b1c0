"""A plan for the CPU, ready to run on addresses: kernels, temporaries, and what is computed of constants once."""

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuseplan_client.constants import ByConstants, Known
from fuseplan_client.cpu.arena import ARENA, Memory
from fuseplan_client.cpu.executor import WAYS, Executor, ProgramStep
from fuseplan_client.cpu.machine import check_machine, load_library
from fuseplan_client.cpu.shared_objects import entry_address, load_object
from fuseplan_client.plan import Plan

ALIGNMENT = 64  # of temporaries


@dataclass(frozen=True)
class _Kept:
    """The results of a prologue for some constants. held: these, so that nothing else lies at their addresses."""

    known: Known
    memory: Memory | None
    addresses: Mapping[int, int]  # by position in the table
    held: Sequence[Any]


class Table:
    """One thread's array of addresses for a program: those of temporaries are there, those of inputs and outputs are
    the caller's to fill in."""

    def __init__(self, size: int) -> None:
        self.addresses: Any = (ctypes.c_void_p * max(size, 1))()
        self.memory: Memory | None = None
        self.kept: _Kept | None = None


class CpuProgram:
    """A plan with its kernels loaded. Any number of threads may run it at the same time: each has a table of its own.

    A prologue runs for each version of the constants that calls come with, into memory of its own: who still runs with
    other ones is not disturbed. Results are kept as `ByConstants` says.
    """

    def __init__(self, plan: Plan, binaries: Mapping[str, bytes], executor: Executor) -> None:
        """Loads the kernels. Raises MachineError, ObjectError."""
        check_machine(plan.arch, plan.features)
        for name in dict.fromkeys(name for step in plan.steps for name in step.libraries):
            load_library(name)
        self.plan, self.executor = plan, executor
        self.first_output = len(plan.inputs)
        self._first_temporary = len(plan.inputs) + len(plan.outputs)
        self.once = plan.once
        self.steps = executor.program(
            [
                ProgramStep(
                    entry_address(load_object(step.binary, binaries[step.binary]), step.entry),
                    tuple(self._position(ref.place, ref.index) for ref in step.args),
                    step.tasks,
                )
                for step in plan.steps
            ]
        )
        self._kept_offsets, self._kept_bytes = self._offsets(kept=True)
        self._temporary_offsets, self._temporary_bytes = self._offsets(kept=False)
        self._threads = threading.local()  # a table for each
        self._results: ByConstants[_Kept] = ByConstants()
        self._preparing = threading.Lock()
        self.prologue_runs = 0

    def table(self) -> Table:
        """The calling thread's table."""
        try:
            return self._threads.table
        except AttributeError:
            table = self._threads.table = self._new_table()
            return table

    def run(self, table: Table, threads: int, way: int, known: Known = (), held: Sequence[Any] = ()) -> None:
        """Runs the plan on the table's addresses; the prologue before, unless it ran last for constants so `known`.
        threads: at most. way: a value of `executor.WAYS`. held: the constants. Raises StackError."""
        if self.once:
            self._prepare(table, threads, way, known, held)
        self.steps.run(table.addresses, threads, way, self.once)

    def prepare(self, table: Table, threads: int, way: int, known: Known, held: Sequence[Any]) -> None:
        """Runs the prologue alone, where it has to."""
        if self.once:
            self._prepare(table, threads, way, known, held)

    def forget(self) -> None:
        """Has the prologue run again at the next call."""
        self._results.clear()

    def _prepare(self, table: Table, threads: int, way: int, known: Known, held: Sequence[Any]) -> None:
        kept = self._results.get(known, held)
        if kept is None:
            with self._preparing:
                kept = self._results.made(known, held, lambda: self._computed(table, threads, way, known, held))
        if table.kept is not kept:
            self._take(table, kept)

    def _computed(self, table: Table, threads: int, way: int, known: Known, held: Sequence[Any]) -> _Kept:
        memory = Memory(self._kept_bytes) if self._kept_offsets else None
        start = memory.address if memory else 0
        kept = _Kept(known, memory, {at: start + offset for at, offset in self._kept_offsets.items()}, tuple(held))
        self._take(table, kept)
        self.steps.run(table.addresses, threads, way, 0, self.once)
        self.prologue_runs += 1
        return kept

    def _take(self, table: Table, kept: _Kept) -> None:
        for at, address in kept.addresses.items():
            table.addresses[at] = address
        table.kept = kept

    def _new_table(self) -> Table:
        table = Table(self._first_temporary + len(self.plan.buffers))
        if self._temporary_offsets:
            table.memory = ARENA.memory(self._temporary_bytes)
            for at, offset in self._temporary_offsets.items():
                table.addresses[at] = table.memory.address + offset
        return table

    def _offsets(self, *, kept: bool) -> tuple[dict[int, int], int]:
        """Where buffers lie in memory of their own, by position in the table, and its bytes."""
        offsets, end = dict[int, int](), 0
        for i, buffer in enumerate(self.plan.buffers):
            if buffer.kept is kept:
                offsets[self._first_temporary + i] = end
                end += -(-max(buffer.bytes, 1) // ALIGNMENT) * ALIGNMENT
        return offsets, end

    def _position(self, place: str, index: int) -> int:
        return {"in": 0, "out": self.first_output, "tmp": self._first_temporary}[place] + index


def way_of(executor: Executor) -> int:
    """The way for a process: OpenMP's threads where it has them, else the executor's own."""
    return WAYS["openmp" if executor.has_openmp else "pool"]
