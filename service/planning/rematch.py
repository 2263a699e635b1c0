"""A race of the plan that a search found against the stored one, in the same rounds, so that no lucky time stays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from codegen.sandbox.object_cache import ObjectCache
from codegen.timing.protocol import beats, median
from codegen.workbench.programs import MissingBinary
from fusion_ir.core.graph import Graph
from fusion_ir.records import Measurement, Plan, Search, Status, Step
from scheduler.interfaces import TimedPlan
from scheduler.plans.whole_time import retold, times
from service.timing_noise import NOISY

SHARE, MOST_S = 0.1, 2.0  # of a budget that is kept for the race, and the most of it

RematchOutcome = Literal["faster", "as fast", "same", "kept"]
Known = Callable[[str], list[Measurement]]  # of a segment, by its key, in the order in which they were taken


class PlanTimer(Protocol):
    """A workbench that times whole plans in turn: `codegen.workbench.workbench.Workbench`."""

    def measure_plans(
        self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float
    ) -> Sequence[TimedPlan]: ...


@dataclass(frozen=True)
class Rematch:
    """The new plan compared with the stored one. plan: the one to store, with times of now. outcome: "faster": the new
    plan is clearly faster; "as fast": the new plan is to be stored, and noise hides any difference; "same": both have
    the same kernels; "kept": the stored plan is clearly faster. speed_up: the stored plan's time over that of `plan`,
    in the same rounds; None where there was no race."""

    plan: Plan
    outcome: RematchOutcome
    speed_up: float | None = None


def race_seconds(budget_s: float) -> float:
    """Seconds of a budget that the search leaves for the race."""
    return min(SHARE * budget_s, MOST_S)


def fetch_binaries(plan: Plan, cache: ObjectCache, stored: Callable[[str], bytes | None]) -> None:
    """Puts the binaries of the plan's steps into the object cache, as far as the database still has them."""
    for sha256 in {step.binary for step in plan.steps}:
        if cache.get(sha256) is None and (binary := stored(sha256)) is not None:
            cache.put(binary)


def rematch(graph: Graph, new: Plan, stored: Plan, bench: PlanTimer, known: Known, seconds: float) -> Rematch | None:
    """A race of the new plan against the stored one. None where they cannot be compared: one was not timed as a whole,
    is judged by its steps, has no kernels, does not agree any more or lost a binary, or both have the same kernels and
    the new time is noisy, but the old one is not."""
    if new.time_us is None or new.spread is None or not (new.steps and stored.steps):
        return None
    if _kernels(new) == _kernels(stored):
        is_noisier = new.spread >= NOISY > (stored.spread or 0.0)
        return None if is_noisier else Rematch(new, "same")
    if new.judged_by_steps or stored.judged_by_steps:
        return None
    try:
        ours, theirs = bench.measure_plans(graph, [new, stored], seed=new.search.seed, seconds=seconds)
    except MissingBinary:
        return None
    if not (_passed(ours) and _passed(theirs)):
        return None
    ratio = median(theirs.samples_us) / median(ours.samples_us)
    if beats(theirs.samples_us, ours.samples_us):
        return Rematch(_timed_anew(stored, theirs, new, known), "kept", 1.0)
    return Rematch(new, "faster" if beats(ours.samples_us, theirs.samples_us) else "as fast", ratio)


def _passed(result: TimedPlan) -> bool:
    return result.status is Status.ok and bool(result.samples_us)


def _kernels(plan: Plan) -> list[tuple[str, str, str, str]]:
    return [(step.segment_key, step.family, step.schedule, step.binary) for step in plan.steps]


def _timed_anew(stored: Plan, result: TimedPlan, new: Plan, known: Known) -> Plan:
    """The stored plan with its times of now, and the search that did not beat it: what was proved of cuts holds for
    every plan, what was proved of the best one does not hold for this."""
    update = {
        **times(result),
        "steps": tuple(_timed_since(step, known(step.segment_key)) for step in stored.steps),
        "device": new.device,
        "lower_bound_us": min(stored.lower_bound_us, new.lower_bound_us),
        "copy_us": new.copy_us,
        "unfused_us": stored.unfused_us if new.unfused_us is None else new.unfused_us,
        "search": _incomplete(new.search),
        "search_gap": None,
    }
    plan = stored.model_copy(update=update)
    if new.search_gap and new.time_us and plan.time_us:
        plan = plan.model_copy(update={"search_gap": max(plan.time_us * new.search_gap / new.time_us, 1.0)})
    return plan.model_copy(update={"reasons": retold(plan, result.disturbed)})


def _incomplete(search: Search) -> Search:
    return search.model_copy(update={"complete": False})


def _timed_since(step: Step, rows: list[Measurement]) -> Step:
    """The step with the time of its kernel when it was last timed by itself; unchanged where it never was."""
    of_it = [m for m in rows if (m.family, m.schedule) == (step.family, step.schedule)]
    times_us = [m.time_us for m in of_it if m.status is Status.ok and m.time_us is not None]
    return step.model_copy(update={"time_us": times_us[-1], "predicted_us": None}) if times_us else step
