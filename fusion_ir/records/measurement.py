"""One candidate tried on one device: how it ended, and its times if it ended well."""

from typing import Literal

from fusion_ir.records.base import Record
from fusion_ir.records.surroundings import Surroundings
from fusion_ir.status import Status


class CompileReport(Record):
    """The compiler's report on one kernel; sizes in bytes. None: the tools of its target do not say.

    code_bytes: machine code of its entry. frame_bytes: the largest stack frame among its functions: arrays, and what
    registers could not hold. Of CUDA kernels: registers and spill_bytes (stored and loaded) of a thread, shared_bytes
    of static shared memory, dynamic_shared_bytes of a launch, blocks that a multiprocessor holds at a time, occupancy:
    their threads over the most that it holds; warnings: codes of ptxas about wgmma that it serialised, C7510 and C7511.
    """

    code_bytes: int | None = None
    frame_bytes: int | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    blocks: int | None = None
    occupancy: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def fault(self) -> str:
        """Why the kernel is not worth timing where another of its family is; "" for one that is."""
        faults = [f"spills {self.spill_bytes} bytes of registers in each thread"] if self.spill_bytes else []
        if self.warnings:
            faults.append(f"its wgmma is serialised ({', '.join(self.warnings)})")
        if self.blocks == 0:
            faults.append("a block of it does not fit on a multiprocessor")
        return ", and ".join(faults)


class Measurement(Record):
    """A row per candidate ever tried. `samples_us` are single launches, in the order taken; empty unless `ok`.

    Samples are cold: each launch found its inputs in memory. input_sets: number of sets of these used in turn,
    together larger than the caches; 1: one set that is larger, or on GPUs one set behind an evicted L2 cache. warm_us:
    median of launches on one set again and again, where samples were cold for another reason than its size.
    race: the name of the race, shared by candidates that were timed in turn; times of different races were taken at
    different moments of the machine. "" for a candidate that was not even compiled. surroundings: the state of the
    machine during that race.
    toolchain, driver: those of the device at that time, as in `Device`; "" in rows older than these fields.
    origin: "" where this database's own machines measured it, else "imported".
    """

    segment_key: str
    device_key: str
    family: str
    schedule: str
    status: Status
    samples_us: tuple[float, ...] = ()
    max_rel_error: float | None = None
    detail: str = ""
    compile_seconds: float = 0.0
    binary: str = ""  # sha256 of the binary that was timed
    race: str = ""
    warm_us: float | None = None
    input_sets: int | None = None
    report: CompileReport | None = None
    surroundings: Surroundings | None = None
    toolchain: str = ""
    driver: str = ""
    origin: Literal["", "imported"] = ""

    @property
    def time_us(self) -> float | None:
        """Median of the samples."""
        if not self.samples_us:
            return None
        ordered = sorted(self.samples_us)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
