"""What was tried for the kernels of a plan, as its page of trials shows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.measure import spread
from fusion_ir.records import Plan, Status
from service import formatting
from service.dashboard.graph_svg import COLOURS
from tuning_db import Trial

FEW = 12  # candidates of a segment that are shown, as at a terminal
DETAIL_CHARACTERS = 200


@dataclass(frozen=True)
class TrialRow:
    """The last try of a candidate."""

    family: str
    schedule: str
    time: str
    spread: str
    runs: str
    age: str
    ending: str
    chosen: bool


@dataclass(frozen=True)
class Tried:
    """What was tried for the segment of some kernels. kernels: their numbers and colours; more: that are not shown."""

    kernels: Sequence[tuple[int, int]]
    counts: str
    rows: Sequence[TrialRow]
    more: int


def trials_view(plan: Plan, trials_of: Callable[[str], Sequence[Trial]], now: float) -> list[Tried]:
    """One table for each segment of the plan, by `trials_of` its key, the fastest candidates first; now: in seconds
    since 1970. Segments on which nothing was tried have tables without rows."""
    kernels: dict[str, list[int]] = {}
    for index, step in enumerate(plan.steps):
        kernels.setdefault(step.segment_key, []).append(index)
    return [_tried(plan, steps, trials_of(key), now) for key, steps in kernels.items()]


def _tried(plan: Plan, steps: Sequence[int], trials: Sequence[Trial], now: float) -> Tried:
    last = {(t.measurement.family, t.measurement.schedule, t.measurement.origin): t for t in trials}
    found = sorted(last.values(), key=lambda t: (t.measurement.time_us is None, t.measurement.time_us or 0.0))
    failed = sum(t.measurement.status is not Status.ok for t in found)
    counts = formatting.count(len(found), "candidate") + (f", {failed:,} failed" if failed else "")
    chosen = {plan.steps[i].schedule for i in steps}
    rows = [_row(t, t.measurement.schedule in chosen, now) for t in found[:FEW]]
    return Tried([(i, i % COLOURS) for i in steps], counts, rows, len(found) - len(rows))


def _row(trial: Trial, chosen: bool, now: float) -> TrialRow:
    m = trial.measurement
    detail = formatting.visible(" ".join(m.detail.split()))[:DETAIL_CHARACTERS]
    ending = detail if m.status is Status.ok else f"{m.status.value}: {detail}"
    return TrialRow(
        family=m.family,
        schedule=m.schedule.removeprefix(m.family).strip("{}"),
        time=formatting.duration(m.time_us),
        spread=formatting.percent(spread(m.samples_us)) if m.samples_us else formatting.NONE,
        runs=str(len(m.samples_us)) if m.samples_us else formatting.NONE,
        age=formatting.age(trial.created, now),
        ending=f"{m.origin}; {ending}" if m.origin else ending,
        chosen=chosen,
    )
