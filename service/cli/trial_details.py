"""A try's compile report, and the machine during its race, in words for a person."""

from collections.abc import Iterator

from fusion_ir.records import CompileReport, Moment, Surroundings
from service.wording.compile_reports import report_words
from service.wording.formatting import duration, significant
from tuning_db.measurements import Trial


def details_of(trial: Trial) -> str:
    """Everything that is known, "" where nothing is: rows of before it was kept."""
    m = trial.measurement
    words = [*report_words(m.report or CompileReport())]
    if m.surroundings is not None:
        words += _around(m.surroundings)
    words += [part for part in (m.toolchain, m.driver) if part]
    return "; ".join(words)


def _around(seen: Surroundings) -> Iterator[str]:
    yield f"raced {duration(1e6 * seen.seconds)}"
    if seen.cpus:
        yield f"on {len(seen.cpus)} CPUs"
    for name, unit in (("clock_mhz", "MHz"), ("memory_clock_mhz", "MHz memory"), ("temperature_c", "°C"),
                       ("power_w", "W"), ("processes", "on the device"), ("load", "load"),
                       ("runnable", "runnable")):  # fmt: skip
        text = _change(seen.start, seen.end, name)
        if text:
            yield f"{text} {unit}"
    counts = (
        (seen.steal_ms, "ms stolen"),
        (seen.others_ms, "ms of others"),
        (seen.waited_ms, "ms waited for them"),
        (seen.repeated, "visits again"),
        (100 * (seen.disturbed or 0), "% disturbed"),
        (seen.quota_ms, "ms over quota"),
        (seen.throttles, "throttles"),
        (seen.switches, "switches"),
        (seen.faults, "faults"),
    )
    for count, what in counts:
        if count:
            yield f"{significant(count) if count % 1 else f'{count:,.0f}'} {what}"
    held = sorted({*(seen.start.throttled or ()), *(seen.end.throttled or ())})
    if held:
        yield f"clocks held by {', '.join(held)}"
    if seen.ceilings is not None:
        yield f"copies at {significant(seen.ceilings.copy_gbps[-1][1])} GB/s then"


def _change(start: Moment, end: Moment, name: str) -> str:
    """ "2596", or "1980→1755" where it moved; of several CPUs the slowest."""
    shown = [f"{v:.6g}" for v in (_least(getattr(start, name)), _least(getattr(end, name))) if v is not None]
    return "→".join(dict.fromkeys(shown))


def _least(value: float | tuple[float, ...] | None) -> float | None:
    return min(value) if isinstance(value, tuple) else value
