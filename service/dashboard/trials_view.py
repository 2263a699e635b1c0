"""Trials for the kernels of a plan, as its page of trials shows them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.schedule import Variant
from codegen.timing.protocol import spread
from fusion_ir.records import Measurement, Plan, Status, Step
from scheduler.tuning.trial_log import variant_of
from service.dashboard.graph_svg import COLOURS
from service.wording import formatting
from service.wording.trial_endings import beside_winner, candidate_order, ending
from tuning_db.measurements import Trial

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
    """Trials for a segment. kernels: numbers and colours of the kernels that compute it. more: candidates that are not
    shown."""

    kernels: Sequence[tuple[int, int]]
    counts: str
    rows: Sequence[TrialRow]
    more: int


def trials_view(plan: Plan, trials_of: Callable[[str], Sequence[Trial]], now: float) -> list[Tried]:
    """One table for each segment of the plan: the plan's own candidates first, then the fastest. trials_of: trials of a
    segment by its key; now: in seconds since 1970. Segments on which nothing was tried have tables without rows."""
    kernels: dict[str, list[int]] = {}
    for index, step in enumerate(plan.steps):
        kernels.setdefault(step.segment_key, []).append(index)
    return [_tried(plan, steps, trials_of(key), now) for key, steps in kernels.items()]


def _tried(plan: Plan, steps: Sequence[int], trials: Sequence[Trial], now: float) -> Tried:
    """The table of one segment: the plan's own schedules first, then the fastest."""
    last = {_candidate(t.measurement): t for t in trials}
    own = {(plan.steps[i].family, plan.steps[i].schedule): plan.steps[i] for i in steps}
    found = sorted(last.values(), key=lambda t: candidate_order(t.measurement, own))
    failed = sum(t.measurement.status is not Status.ok for t in found)
    counts = formatting.count(len(found), "candidate") + (f", {failed:,} failed" if failed else "")
    tries: dict[Variant, list[Measurement]] = {}
    races: dict[str, list[Measurement]] = {}
    for m in (t.measurement for t in trials):
        tries.setdefault(variant_of(m), []).append(m)
        races.setdefault(m.race, []).append(m)
    best = next((m for t in found if variant_of(m := t.measurement) in own and m.time_us is not None), None)
    rows = [_unknown(step) for variant, step in own.items() if variant not in tries] if found else []
    unknown = len(rows)
    for trial in found[:FEW]:
        m = trial.measurement
        how = ending(m, races[m.race] if m.race else [m])[:DETAIL_CHARACTERS]
        if best and m.time_us is not None and best.time_us is not None and variant_of(m) not in own:
            faster = m.time_us < best.time_us
            how = f"{beside_winner(tries[variant_of(m)], tries[variant_of(best)])}; {how}" if faster else how
        rows.append(_row(trial, variant_of(m) in own, now, how))
    return Tried([(i, i % COLOURS) for i in steps], counts, rows, len(found) - len(rows) + unknown)


def _candidate(m: Measurement) -> tuple[str, str, str]:
    return m.family, m.schedule, m.origin


def _row(trial: Trial, chosen: bool, now: float, how: str) -> TrialRow:
    m = trial.measurement
    return TrialRow(
        family=m.family,
        schedule=m.schedule.removeprefix(m.family).strip("{}"),
        time=formatting.duration(m.time_us),
        spread=formatting.percent(spread(m.samples_us) if len(m.samples_us) > 1 else None),
        runs=str(len(m.samples_us)) if m.samples_us else formatting.NONE,
        age=formatting.age(trial.created, now),
        ending=how,
        chosen=chosen,
    )


def _unknown(step: Step) -> TrialRow:
    """The row of a kernel of the plan whose trials are not stored here."""
    time = formatting.expected(step.time_us, step.predicted_us)
    schedule = step.schedule.removeprefix(step.family).strip("{}")
    none = formatting.NONE
    return TrialRow(step.family, schedule, time, none, none, none, "by the plan: its trials are not stored here", True)
