"""A place to time kernels, and beside each the rates that the device's memory reaches at that moment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bounds.entry import BoundCase
from codegen.child.cpu_ceilings import READING, STREAMING, WRITE_TURN
from codegen.child.cpu_memory import TensorLayout, layouts, rotating_sets
from codegen.devices.ceilings import DRAM_BYTES
from codegen.hardware.machine import usable_cpus
from codegen.kernel import Kernel
from codegen.launch.cpu import BoundSteps, CpuStep, PageMemory, Pool, bind_steps, entry_address, load_entry
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.shared_object import load_object
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.runtime import runtime_library
from fusion_ir.arithmetic.conversions import round_to

STEADY = 0.1  # the most by which rates before and after a kernel differ within one moment
QUICK = 0.8  # of the best rates of a run, that a moment has which says anything
ROUNDS = 4  # of a visit
SAMPLES = 3
PATTERN = 1 << 20  # elements drawn of each input; the rest repeats them


@dataclass(frozen=True)
class Rates:
    """GB/s of main memory."""

    copy_gbps: float
    read_gbps: float
    write_gbps: float

    def best(self, other: "Rates") -> "Rates":
        """The higher of both, rate by rate."""
        return Rates(*(max(pair) for pair in self._pairs(other)))

    def near(self, other: "Rates") -> bool:
        """Whether no rate differs by more than noise (`STEADY`)."""
        return all(abs(a - b) <= STEADY * max(a, b) for a, b in self._pairs(other))

    def quick(self, best: "Rates") -> bool:
        """Whether every rate is at least `QUICK` of the best one."""
        return all(own >= QUICK * most for own, most in self._pairs(best))

    def _pairs(self, other: "Rates") -> list[tuple[float, float]]:
        return [
            (self.copy_gbps, other.copy_gbps),
            (self.read_gbps, other.read_gbps),
            (self.write_gbps, other.write_gbps),
        ]


@dataclass(frozen=True)
class Moment:
    """One round: the higher of the memory rates measured before and after the kernel, and the kernel's fastest run.
    steady: whether both measurements were near each other."""

    rates: Rates
    time_us: float
    steady: bool


@dataclass(frozen=True)
class Built:
    """A kernel and its binary."""

    kernel: Kernel
    path: Path
    entry: str
    tensors: int


class Bay:
    """Memory that all cases are timed on, one after the other, and the device's own kernels beside it."""

    def __init__(self, cache: ObjectCache, bytes_: int, cache_bytes: int) -> None:
        compiler = find_compiler()
        with compiler.slot() as slot:
            pool, library = (runtime_library(name, compiler, slot, cache) for name in ("pool", "ceilings"))
        self.pool = Pool(pool, usable_cpus())
        self._memory, self._cache_bytes = PageMemory(bytes_), cache_bytes
        self._own = [PageMemory(DRAM_BYTES) for _ in range(2)]
        for memory in (self._memory, *self._own):
            memory.bytes[:] = 1  # pages that were never written are one page of zeros, which reads from the first cache
        self._sizes = np.zeros(3, np.int64)
        self._library = load_object(library)
        self._copies = [self._ceiling(name) for name in STREAMING]
        self._reads = [self._ceiling(name) for name in READING]
        self._write = self._ceiling("ceiling_move")

    def _ceiling(self, name: str) -> BoundSteps:
        table = np.array([[*(m.address for m in self._own), self._sizes.ctypes.data]], np.uint64)
        return bind_steps([CpuStep(entry_address(self._library, name), (0, 1, 2), self.pool.threads)], table)

    def reached(self) -> Rates:
        """Rates that main memory reaches at this moment."""
        self._sizes[:] = DRAM_BYTES, 1, 0
        copy_us, read_us = (
            min(min(self.pool.time_us(runs, SAMPLES)) for runs in ways) for ways in (self._copies, self._reads)
        )
        self._sizes[:] = 0, DRAM_BYTES, WRITE_TURN
        write_us = min(self.pool.time_us(self._write, SAMPLES))
        return Rates(
            *(bytes_ / 1e3 for bytes_ in (2 * DRAM_BYTES / copy_us, DRAM_BYTES / read_us, DRAM_BYTES / write_us))
        )

    def fill(self, entry: BoundCase) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Fresh tensors of the case, in sets that take turns: addresses by set."""
        rng = np.random.default_rng(0)
        inputs, outputs = layouts(entry.instance.graph)
        stride, sets = room(entry, self._cache_bytes)
        offsets: list[int] = []
        at = 0
        for i, layout in enumerate((*inputs, *outputs)):
            if i < len(inputs):
                _fill(self._memory.bytes[at : at + layout.bytes], layout, entry.instance.domains[i], rng)
            offsets.append(at)
            at += _pages(layout.bytes)
        raw = self._memory.bytes[: sets * stride].reshape(sets, stride)
        raw[1:] = raw[0]
        starts = self._memory.address + stride * np.arange(sets, dtype=np.uint64)
        return starts[:, None] + np.array(offsets, np.uint64)[None, :]

    def fastest(self, entry: BoundCase, built: Sequence[Built]) -> Built:
        """The fastest of the case's kernels."""
        addresses = self.fill(entry)
        programs = [(bind_steps([self._launch(b)], addresses), b) for b in built]
        times = [min(self.pool.time_us(runs, 1 + SAMPLES)[1:]) for runs, _ in programs]
        return programs[times.index(min(times))][1]

    def _launch(self, built: Built) -> CpuStep:
        call = load_entry(built.path, built.entry, built.kernel.libraries)
        return CpuStep(call, tuple(range(built.tensors)), built.kernel.launch.tasks)

    def visit(self, entry: BoundCase, built: Built) -> Iterator[Moment]:
        """Rounds that measure memory rates, then the case's kernel, then memory rates again."""
        runs = bind_steps([self._launch(built)], self.fill(entry))
        self.pool.time_us(runs, 1)
        before = self.reached()
        for number in range(ROUNDS):
            time_us = min(self.pool.time_us(runs, SAMPLES, number * SAMPLES + 1))
            after = self.reached()
            yield Moment(before.best(after), time_us, before.near(after))
            before = after


def room(entry: BoundCase, cache_bytes: int) -> tuple[int, int]:
    """Bytes of a set of tensors, and how many sets take turns."""
    bytes_, inputs = entry.tensor_bytes, len(entry.instance.graph.inputs)
    return sum(map(_pages, bytes_)), rotating_sets(sum(bytes_[:inputs]), sum(bytes_), cache_bytes)


def _pages(bytes_: int) -> int:
    return -(-bytes_ // 4096) * 4096


def _fill(
    raw: np.ndarray[Any, Any], layout: TensorLayout, domain: tuple[float, float] | None, rng: np.random.Generator
) -> None:
    """Values that a kernel meets in earnest: no NaN, no denormal numbers, indices within their axes."""
    kind = layout.dtype.numpy
    if layout.dtype.kind == "bool":
        drawn = rng.integers(0, 2, PATTERN).astype(kind)
    elif layout.dtype.is_float:
        low, high = domain or (-2.0, 2.0)
        drawn = np.asarray(round_to(rng.random(PATTERN) * (high - low) + low, layout.dtype)).astype(kind)
    else:
        low, high = domain or (0, 8)
        drawn = rng.integers(int(low), max(int(high), int(low) + 1), PATTERN).astype(kind)
    pattern = np.ascontiguousarray(drawn).view(np.uint8)
    for start in range(0, len(raw), len(pattern)):
        part = raw[start : start + len(pattern)]
        part[:] = pattern[: len(part)]
