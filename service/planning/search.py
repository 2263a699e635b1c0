"""The search for a plan, with what the database knows of earlier ones, on ceilings that hold."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from codegen.devices.ceilings import Reached
from codegen.devices.detection import with_raised_ceilings
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Measurement, Plan, Search, Spent
from fusion_ir.text.printing import parse_graph, print_graph
from scheduler.budget import Budget, Progress, was_interrupted
from scheduler.cost.features import Tuned
from scheduler.no_plan import NoPlan
from scheduler.tune import tune
from scheduler.tuning.trial_log import relative_times
from service.planning.plan_request import PlanRequest
from service.planning.rematch import Rematch, fetch_binaries, race_seconds, rematch
from service.timing_noise import beats
from service.version import VERSION
from tuning_db.store import Store

OTHERS = 64  # segments that a search asks for a first guess
MOST_FASTEST = 512  # times of all families that predictions are corrected with
AGAIN_SECONDS = 8.0  # of a search whose measurements are mostly known, at the most
LEAST_AGAIN_S = 6.0  # of the budget that have to be left for one: to measure the ceilings takes three, where it is busy


@dataclass(frozen=True)
class StoredCosts:
    """`scheduler.Costs` over the database: what this version's kernels were measured at on this class of devices."""

    store: Store
    device_key: str
    graph_key: str

    def known(self, segment_key: str) -> Sequence[Measurement]:
        found = self.measured(segment_key)
        if found:  # by a search for another graph, perhaps, and this one may have nothing left to try
            self.store.segments.note(self.graph_key, segment_key)
        return found

    def measured(self, segment_key: str) -> list[Measurement]:
        """Measurements of this version's kernels for a segment, in the order in which they were taken."""
        return [t.measurement for t in self.store.trials.trials(segment_key, self.device_key) if t.version == VERSION]

    def others(self, family: str) -> Sequence[Tuned]:
        found: list[Tuned] = []
        for key in self.store.segments.tuned(self.device_key, family, OTHERS):
            text = self.store.segments.segment(key)
            times = relative_times(m for m in self.measured(key) if m.family == family)
            if text is not None and times:
                found.append(Tuned(parse_graph(text).graph, {schedule: time for (_, schedule), time in times.items()}))
        return found

    def timed(self, family: str) -> Sequence[tuple[Graph, float]]:
        found = [(key, time_us) for name, key, time_us in self._fastest if name == family][:OTHERS]
        texts = [(self.store.segments.segment(key), time_us) for key, time_us in found]
        return [(_graph(text), time_us) for text, time_us in texts if text is not None]

    @cached_property
    def _fastest(self) -> list[tuple[str, str, float]]:
        return self.store.segments.fastest_times(self.device_key, VERSION, MOST_FASTEST)

    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        self.store.segments.put(self.graph_key, print_graph(segment))
        self.store.trials.record(measurements, version=VERSION)


@lru_cache(maxsize=MOST_FASTEST)
def _graph(text: str) -> Graph:
    return parse_graph(text).graph


def search(
    graph: Graph,
    request: PlanRequest,
    store: Store,
    cache: ObjectCache,
    progress: Progress | None,
    stored: Plan | None = None,
) -> tuple[Plan, Rematch | None]:
    """The plan that a search finds, and how it compares with `stored`, None where that is unknown. stored: a plan that
    was measured under the conditions of now: a part of the budget goes into a race of both plans, which says which one
    is to be stored, unless they cannot be compared so, or the search was interrupted."""
    device, budget = request.device, request.budget
    costs = StoredCosts(store, device.class_key, request.graph_key)
    kept_s = 0.0 if stored is None else race_seconds(budget.seconds)
    less = replace(request, budget=replace(budget, seconds=budget.seconds - kept_s))
    with Workbench(device, cache) as bench:
        plan = _searched(graph, less, store, cache, progress, costs, bench)
        if stored is None:
            return plan, None
        plan = plan.model_copy(update={"search": _whole(plan.search, budget, kept_s)})
        if was_interrupted(plan):
            return plan, None
        fetch_binaries(stored, cache, store.plans.binary)
        return plan, rematch(graph, plan, stored, bench, costs.measured, kept_s)


def _whole(search: Search, budget: Budget, kept_s: float) -> Search:
    """The record of a search that left `kept_s` of the budget for a race, with the whole budget as its own."""
    return search.model_copy(update={"budget_s": budget.seconds} if kept_s and search.budget_s is not None else {})


def _searched(
    graph: Graph,
    request: PlanRequest,
    store: Store,
    cache: ObjectCache,
    progress: Progress | None,
    costs: StoredCosts,
    bench: Workbench,
) -> Plan:
    """One search, and a second one where the first beat its bound and left time of the budget for it."""
    device, budget, numerics = request.device, request.budget, request.numerics
    plan = tune(graph, device, budget, costs, bench, progress, numerics=numerics)
    if not _beats_its_bound(plan) or was_interrupted(plan):
        return plan
    # The ceilings were measured at a slower moment.
    reached = [Reached(s.bytes, s.bound_by, s.bound_us / s.time_us) for s in plan.steps if s.time_us]
    if plan.time_us:
        bytes_ = sum(s.bytes for s in plan.steps)
        reached.append(Reached(bytes_, plan.bound_by, plan.lower_bound_us / plan.time_us))
    end = time.monotonic() + budget.seconds - plan.search.seconds
    is_time = budget.seconds - plan.search.seconds >= LEAST_AGAIN_S
    device = with_raised_ceilings(device, cache, reached, measured=is_time)
    store.devices.put(device)
    rest_s = min(end - time.monotonic(), AGAIN_SECONDS)
    if not is_time or rest_s <= 0:
        return _with_what_was_reached(plan, device)
    try:
        again = tune(graph, device, replace(budget, seconds=rest_s), costs, bench, progress, numerics=numerics)
    except NoPlan:
        return _with_what_was_reached(plan, device)
    if again.time_us is None:  # interrupted at once
        return _with_what_was_reached(plan, device)
    return again.model_copy(update={"search": _together(plan.search, again.search)})


def _with_what_was_reached(plan: Plan, device: Device) -> Plan:
    """The plan with no bound above a time that was measured, on the device whose ceilings say so. How far it is from
    the best possible is not known: that was computed with bounds that were too high."""

    def least(bound_us: float, time_us: float | None) -> float:
        return bound_us if time_us is None else min(bound_us, time_us)

    steps = tuple(s.model_copy(update={"bound_us": least(s.bound_us, s.time_us)}) for s in plan.steps)
    lower_us = least(plan.lower_bound_us, plan.time_us)
    update = {"device": device, "steps": steps, "lower_bound_us": lower_us, "search_gap": None}
    return plan.model_copy(update=update)


def _beats_its_bound(plan: Plan) -> bool:
    """Whether the plan, or a step of it, took less than its lower bound by more than noise."""
    pairs = [(plan.time_us, plan.lower_bound_us), *((step.time_us, step.bound_us) for step in plan.steps)]
    return any(beats(time_us, bound_us) for time_us, bound_us in pairs)


def _together(first: Search, second: Search) -> Search:
    """The record of two searches of one graph: seconds and counts of both, budget and ending of the first, all else of
    the second."""
    spent = {
        name: getattr(first, name) + getattr(second, name) for name in ("seconds", "measured", "failed", "dropped")
    }
    given = {name: getattr(first, name) for name in ("budget_s", "cut_short", "idle_share", "cpu_share")}
    return second.model_copy(update=spent | given | {"spent": _sum(first.spent, second.spent)})


def _sum(first: Spent | None, second: Spent | None) -> Spent | None:
    """The sum of what two searches spent; `disturbed` is the mean of both, weighted by the seconds of their races."""
    if first is None or second is None:
        return first or second
    seconds = {name: getattr(first, name) + getattr(second, name) for name in ("finding_s", "kernels_s", "plans_s")}
    known = [(one.racing_s, one.disturbed) for one in (first, second) if one.disturbed is not None]
    raced_s = sum(racing_s for racing_s, _ in known)
    disturbed = sum(racing_s * share for racing_s, share in known) / raced_s if raced_s else None
    repeated, racing_s = first.repeated + second.repeated, first.racing_s + second.racing_s
    return Spent(**seconds, racing_s=racing_s, disturbed=disturbed, repeated=repeated)
