"""Times of whole plans beside the sums of their steps. Where the two are far apart, another process had the machine
while one of them was timed, or steps find in the caches what others left: plans are timed again, and a difference that
stays is noted."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.timing.protocol import median, spread
from fusion_ir.core.graph import Graph
from fusion_ir.records import Plan, Reason
from fusion_ir.units import duration
from scheduler.interfaces import Bench, TimedPlan
from scheduler.plans.step_sum import far_steps_us, is_far, steps_us

BY_STEPS = (
    "steps of this graph make any error larger, and no plan has its outputs as a whole: with a kernel for each op, "
    "each agrees on what it is given"
)
_AS_A_WHOLE = re.compile(r"takes .* as a whole, .* of its steps timed one by one")
UNCHECKED = "rewrites round other values than the graph does; nothing ran, so nobody checked how accurate they are"


@dataclass(frozen=True, slots=True)
class Whole:
    """Results of one race of plans. again: there were two races, and this one's times are nearer to the steps'."""

    results: Sequence[TimedPlan]
    again: bool = False


def measure_whole(
    bench: Bench, graph: Graph, plans: Sequence[Plan], *, seed: int, seconds: float, left: Callable[[], float]
) -> Whole:
    """Races plans; once more where one is far from its steps, and as long again is left of the budget (`left`, in
    seconds). The results are all of one race, since only these compare."""
    before = left()
    first = bench.measure_plans(graph, plans, seed=seed, seconds=seconds)
    if not _departure(plans, first) or left() < before - left():
        return Whole(first)
    second = bench.measure_plans(graph, plans, seed=seed, seconds=min(seconds, left()))
    return Whole(min((first, second), key=lambda results: _departure(plans, results)), again=True)


def times(result: TimedPlan) -> dict[str, float | None]:
    """Fields of a plan that was timed, by name: times in us, their spread, and the error."""
    return {
        "time_us": median(result.samples_us),
        "spread": spread(result.samples_us),
        "max_rel_error": result.max_rel_error,
        "prologue_us": result.prologue_us,
        "warm_us": result.warm_us,
    }


def told(plan: Plan, again: bool, disturbed: float | None) -> Reason | None:
    """A note that a plan is far from its steps; None where it is not. disturbed: share of its race's visits that others
    disturbed."""
    sum_us = far_steps_us(plan)
    if plan.time_us is None or sum_us is None:
        return None
    text = (
        f"takes {duration(plan.time_us)} as a whole, {plan.time_us / sum_us:.2f}x the {duration(sum_us)} of its "
        f"steps timed one by one{', timed twice' if again else ', timed once'}"
    )
    if disturbed:
        text += f"; others had the CPUs during {disturbed:.0%} of that"
    return Reason(kind="note", text=text)


def retold(plan: Plan, disturbed: float | None) -> tuple[Reason, ...]:
    """The reasons of a plan that was timed anew, with what `told` says of it now instead of what it said before."""
    kept = [r for r in plan.reasons if not (r.kind == "note" and _AS_A_WHOLE.match(r.text))]
    note = told(plan, False, disturbed)
    return (*([note] if note else []), *kept)


def _departure(plans: Sequence[Plan], results: Sequence[TimedPlan]) -> float:
    """Sum, over plans that are far from their steps, of the ratio of the two times; 0 where none is far or timed."""
    ratios = [
        median(result.samples_us) / sum_us
        for plan, result in zip(plans, results, strict=True)
        if result.samples_us and (sum_us := steps_us(plan))
    ]
    return sum(max(r, 1 / r) for r in ratios if is_far(r))
