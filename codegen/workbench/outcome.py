"""The outcome of a kernel that was to be timed, and the row of the database that records it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codegen.kernel import Kernel
from codegen.toolchain.compiler import Binary, Failure
from fusion_ir.records import Device, Measurement, Status, Surroundings
from fusion_ir.units import duration


@dataclass(frozen=True, slots=True)
class Outcome:
    """Final status of a kernel or plan, and what was measured until then; samples in microseconds, in the order taken.
    prologue_us: time of a plan's prologue, where it has one."""

    status: Status
    detail: str = ""
    samples_us: tuple[float, ...] = ()
    max_rel_error: float | None = None
    warm_us: float | None = None
    input_sets: int | None = None
    surroundings: Surroundings | None = None
    prologue_us: float | None = None


def timed(timing: Mapping[str, Any], max_rel_error: float | None, surroundings: Surroundings | None) -> Outcome:
    """Outcome of a kernel that passed its check, from the timing child's answer about it."""
    if not timing["samples_us"]:
        return Outcome(Status.ok, timing["note"], (), max_rel_error)
    sets, warm_us = timing["sets"], timing["warm_us"]
    cold = f"cold, {sets} input sets in turn" if sets > 1 else "cold"
    warm = f"; warm {duration(warm_us)}" if warm_us is not None else ""
    detail = "; ".join(part for part in (timing["note"], cold + warm) if part)
    samples_us, prologue_us = tuple(timing["samples_us"]), timing.get("prologue_us")
    return Outcome(Status.ok, detail, samples_us, max_rel_error, warm_us, sets, surroundings, prologue_us)


def not_worth_timing(kernels: Sequence[Kernel], built: Sequence[Binary | Failure]) -> dict[int, str]:
    """Faults in the compile reports of kernels, by position: these kernels are not worth timing. Never all kernels of a
    family: where none is sound, the one that spills least is timed after all."""
    faults: dict[str, dict[int, tuple[int, str]]] = {}
    sound: set[str] = set()
    for i, (kernel, binary) in enumerate(zip(kernels, built, strict=True)):
        report = binary.report if isinstance(binary, Binary) else None
        if report and report.fault:
            faults.setdefault(kernel.family, {})[i] = report.spill_bytes or 0, report.fault
        elif isinstance(binary, Binary):
            sound.add(kernel.family)
    for family, found in faults.items():
        if family not in sound:
            found.pop(min(found, key=lambda i: found[i][0]))
    return {i: fault for found in faults.values() for i, (_, fault) in found.items()}


def measurement(
    device: Device, segment_key: str, kernel: Kernel, built: Binary | Failure, outcome: Outcome, race: str = ""
) -> Measurement:
    """The row that records a kernel's outcome."""
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
