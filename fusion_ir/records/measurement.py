"""One candidate tried on one device: how it ended, and its times if it ended well."""

from enum import Enum

from fusion_ir.records.base import Record


class Status(str, Enum):
    """How a candidate ended. Only `ok` can win."""

    ok = "ok"
    rejected = "rejected"  # the family cannot emit it
    compile_failed = "compile_failed"
    compile_timeout = "compile_timeout"
    crashed = "crashed"
    timed_out = "timed_out"
    out_of_memory = "out_of_memory"
    wrong_result = "wrong_result"


class Measurement(Record):
    """A row per candidate ever tried. `samples_us` are single launches, in the order taken; empty unless `ok`.

    race: which candidates were timed in turn, against each other: times of others were taken in other moments of the
    machine. "" of what was not even compiled.
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

    @property
    def time_us(self) -> float | None:
        """Median of the samples."""
        if not self.samples_us:
            return None
        ordered = sorted(self.samples_us)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
