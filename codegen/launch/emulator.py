"""Running compiled kernels in the emulator. For child processes and tests: a kernel that hangs takes the process
along."""

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from codegen.launch.emulated_map import emulated_map
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.shared_object import load_object
from codegen.toolchain.cpu import CpuCompiler
from codegen.toolchain.runtime import runtime_library
from fusion_ir.records import TensorMapSpec

Array = np.ndarray[Any, Any]
Kind = Literal["input", "output", "temporary"]
KINDS: tuple[Kind, ...] = ("input", "output", "temporary")
REPORT_BYTES = 4096
MOST_SITES = 256
_turn = threading.Lock()  # the emulator runs one launch at a time


class EmulatorFault(Exception):
    """A fault of a kernel that the emulator found. The message has its place in the source, its block and thread."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Global memory that a kernel may touch; inputs it may not change. written: per byte, 1 where some kernel wrote it;
    None where it was all written before."""

    name: str
    kind: Kind
    address: int
    bytes: int
    written: np.ndarray[Any, np.dtype[np.uint8]] | None = None


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Bank conflicts at one line of a kernel: `passes` through the banks of shared memory were made, `least` would
    have done."""

    file: str
    line: int
    passes: int
    least: int


@dataclass(frozen=True, slots=True)
class Sectors:
    """Accesses to global memory at one line of a kernel: warps touched `touched` sectors of 32 bytes, `least` would
    have held as much."""

    file: str
    line: int
    touched: int
    least: int


@dataclass(frozen=True, slots=True)
class Run:
    """Facts about one launch. waited: whether some thread waited for others. switches: between threads. accesses:
    checked accesses to memory. conflicts, sectors: of the first blocks."""

    waited: bool
    switches: int
    accesses: int
    conflicts: tuple[Conflicts, ...] = ()
    sectors: tuple[Sectors, ...] = ()


@dataclass(frozen=True, slots=True)
class Emulation:
    """One launch: a kernel's entry in a loaded binary, and how it is launched. cluster: blocks that share a cluster.
    tensor_maps: maps that the kernel takes behind its other arguments."""

    entry: str
    library: ctypes.CDLL = field(repr=False)
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    tensor_maps: tuple[TensorMapSpec, ...] = ()

    def run(self, arguments: Sequence[int | bytes], tensors: Sequence[Tensor], seed: int = 0) -> Run:
        """Runs the kernel. arguments: addresses, or the bytes of a value (a multiple of 8). tensors: all memory that
        the arguments lead to. seed: of the order of threads and the delays of copies. Raises EmulatorFault."""
        values = [a if isinstance(a, bytes) else a.to_bytes(8, "little") for a in arguments]
        values += [emulated_map(m, int.from_bytes(values[m.argument], "little")) for m in self.tensor_maps]
        held = [_aligned(value) for value in values]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*(h.ctypes.data for h in held))
        ordered = sorted(tensors, key=lambda t: t.address)
        names = [t.name.encode() for t in ordered]
        buffers = (_Buffer * max(1, len(ordered)))(
            *(
                _Buffer(
                    t.address, t.bytes, n, None if t.written is None else t.written.ctypes.data, KINDS.index(t.kind)
                )
                for t, n in zip(ordered, names, strict=True)
            )
        )
        report = ctypes.create_string_buffer(REPORT_BYTES)
        sites = (_Site * MOST_SITES)()
        launch = _Launch(
            ctypes.addressof(pointers),
            _Three(*self.grid),
            _Three(*self.block),
            _Three(*self.cluster),
            self.shared_bytes,
            seed,
            ctypes.addressof(buffers),
            ctypes.addressof(report),
            ctypes.addressof(sites),
            len(ordered),
            REPORT_BYTES,
            MOST_SITES,
        )
        with _turn:
            status = self.library[f"emulate_{self.entry}"](ctypes.byref(launch))
        if status:
            raise EmulatorFault(report.value.decode("utf-8", "replace"))
        found = [(s.file.decode("utf-8", "replace"), s) for s in sites[: launch.site_count]]
        conflicts = tuple(Conflicts(f, s.line, s.passes, s.least_passes) for f, s in found if s.least_passes)
        sectors = tuple(Sectors(f, s.line, s.sectors, s.least_sectors) for f, s in found if s.least_sectors)
        return Run(bool(launch.waited), launch.switches, launch.accesses, conflicts, sectors)


def load_runtime(file: Path) -> ctypes.CDLL:
    """Loads the emulator itself, for good: kernels are linked with it when they are loaded. Raises OSError."""
    return load_object(file, ctypes.RTLD_GLOBAL)


def emulator_library(compiler: CpuCompiler, cache: ObjectCache) -> Path:
    """The emulator's file, compiled once per cache. Raises CompilerMissing."""
    with compiler.slot() as slot:
        return runtime_library("emulator", compiler, slot, cache)


def load_kernels(binary: Path | str) -> ctypes.CDLL:
    """Loads compiled kernels, after `load_runtime`. Raises OSError."""
    return load_object(binary)


def run_arrays(
    emulation: Emulation,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    temporaries: Sequence[Array] = (),
    seed: int = 0,
    updated: Sequence[Array] = (),
) -> Run:
    """Runs a kernel whose parameters are inputs, outputs, temporaries and what it updates, in this order, on contiguous
    arrays. Outputs and temporaries do not count as written before the kernel wrote them. Raises EmulatorFault."""
    groups: tuple[tuple[Kind, str, Sequence[Array]], ...] = (
        ("input", "in", inputs),
        ("output", "out", outputs),
        ("temporary", "tmp", temporaries),
    )
    tensors = [
        Tensor(f"{short}{i}", kind, a.ctypes.data, a.nbytes, None if kind == "input" else np.zeros(a.nbytes, np.uint8))
        for kind, short, arrays in groups
        for i, a in enumerate(arrays)
    ]
    tensors += [Tensor(f"updated{i}", "output", a.ctypes.data, a.nbytes) for i, a in enumerate(updated)]
    return emulation.run([t.address for t in tensors], tensors, seed)


def _aligned(value: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A copy of the bytes at an address that is a multiple of 64, as tensor maps need."""
    whole = np.zeros(len(value) + 64, np.uint8)
    start = -int(whole.ctypes.data) % 64
    whole[start : start + len(value)] = np.frombuffer(value, np.uint8)
    return whole[start : start + len(value)]


_Three = ctypes.c_uint32 * 3


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("written", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
    )


class _Site(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char * 48),
        ("line", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("passes", ctypes.c_int64),
        ("least_passes", ctypes.c_int64),
        ("sectors", ctypes.c_int64),
        ("least_sectors", ctypes.c_int64),
    )


class _Launch(ctypes.Structure):
    """The structure emulator::Launch of codegen/include/emulator.h."""

    _fields_ = (
        ("args", ctypes.c_void_p),
        ("grid", _Three),
        ("block", _Three),
        ("cluster", _Three),
        ("shared_bytes", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("buffers", ctypes.c_void_p),
        ("report", ctypes.c_void_p),
        ("sites", ctypes.c_void_p),
        ("buffer_count", ctypes.c_int32),
        ("report_bytes", ctypes.c_int32),
        ("site_capacity", ctypes.c_int32),
        ("site_count", ctypes.c_int32),
        ("waited", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("switches", ctypes.c_int64),
        ("accesses", ctypes.c_int64),
    )
