"""What became of a kernel that was to be timed, and the row that says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codegen.kernel import Kernel
from codegen.toolchain.compiler import Binary, Failure
from fusion_ir.records import Device, Measurement, Status, Surroundings


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended, and what was seen until then; samples in microseconds, in the order taken."""

    status: Status
    detail: str = ""
    samples_us: tuple[float, ...] = ()
    max_rel_error: float | None = None
    warm_us: float | None = None
    input_sets: int | None = None
    surroundings: Surroundings | None = None


def timed(timing: Mapping[str, Any], max_rel_error: float | None, surroundings: Surroundings | None) -> Outcome:
    """Of a kernel that passed its check: what the timing child answers about it."""
    if not timing["samples_us"]:
        return Outcome(Status.ok, timing["note"], (), max_rel_error)
    sets, warm_us = timing["sets"], timing["warm_us"]
    cold = f"cold, {sets} input sets in turn" if sets > 1 else "cold, larger than the caches"
    warm = f"; warm {warm_us:.4g} us" if warm_us is not None else ""
    detail = "; ".join(part for part in (timing["note"], cold + warm) if part)
    return Outcome(Status.ok, detail, tuple(timing["samples_us"]), max_rel_error, warm_us, sets, surroundings)


def measurement(
    device: Device, segment_key: str, kernel: Kernel, built: Binary | Failure, outcome: Outcome, race: str = ""
) -> Measurement:
    """The row."""
    binary = built if isinstance(built, Binary) else None
    return Measurement(
        segment_key=segment_key,
        device_key=device.class_key,
        family=kernel.family,
        schedule=kernel.schedule,
        status=outcome.status,
        samples_us=outcome.samples_us,
        max_rel_error=outcome.max_rel_error,
        detail=outcome.detail,
        compile_seconds=built.seconds,
        binary=binary.sha256 if binary else "",
        race=race,
        warm_us=outcome.warm_us,
        input_sets=outcome.input_sets,
        report=binary.report if binary else None,
        surroundings=outcome.surroundings,
        toolchain=device.toolchain,
        driver=device.driver,
    )
