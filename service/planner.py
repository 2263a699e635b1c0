"""Plans one graph on this machine: device, search, storage. Used by workers and by `fuseplan tune` alone."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from codegen.devices import detect, with_raised_ceilings
from codegen.object_cache import ObjectCache
from codegen.workbench import Workbench
from fusion_ir.graph import Graph
from fusion_ir.key import graph_key
from fusion_ir.named import NamedGraph
from fusion_ir.records import Device, Measurement, Numerics, Plan, Search
from fusion_ir.text import parse_graph, print_graph
from scheduler.bench import Budget, Progress, RequestError
from scheduler.entry import relative_times
from scheduler.experience import Tuned
from scheduler.no_plan import Disagreement, MemoryExceeded, NoPlan
from scheduler.tune import INTERRUPTED, tune
from service.errors import Problem, problem
from service.failures import problem_before
from service.version import VERSION
from tuning_db import Conditions, Names, RequestKey, Searched, Store

OTHERS = 64  # segments that a search asks for a first guess
MOST_FASTEST = 512  # times of all families that predictions are corrected with
AGAIN_SECONDS = 8.0  # of a search whose measurements are mostly known, at the most
LEAST_AGAIN_S = 6.0  # of the budget that have to be left for one: to measure the ceilings takes three, where it is busy
NOTHING_TIMED = "nothing was timed"
# What a fault of the search's own raises, the same whenever it is made; files, memory and devices fail otherwise.
FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

PlanState = Literal["measured", "predicted", "stale", "failed"]


class PlanningError(Exception):
    """No plan could be made or kept; the message says why."""


class FailedBefore(PlanningError):
    """A search for the same, with as many seconds, ended without a plan, and nothing that it depends on has changed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@dataclass(frozen=True)
class PlanAnswer:
    """A plan, whether it was there already, and the state of the request's row. cut_short: why the last search for it
    ended early, None where it did not."""

    plan: Plan
    plan_key: str
    cache: Literal["hit", "miss"]
    state: PlanState
    cut_short: str | None = None


@dataclass(frozen=True)
class StoredCosts:
    """`scheduler.Costs` over the database: what this version's kernels were measured at on this class of devices."""

    store: Store
    device_key: str
    graph_key: str

    def known(self, segment_key: str) -> Sequence[Measurement]:
        found = self._measured(segment_key)
        if found:  # by a search for another graph, perhaps, and this one may have nothing left to try
            self.store.note_segment(self.graph_key, segment_key)
        return found

    def _measured(self, segment_key: str) -> list[Measurement]:
        return [t.measurement for t in self.store.trials(segment_key, self.device_key) if t.version == VERSION]

    def others(self, family: str) -> Sequence[Tuned]:
        found: list[Tuned] = []
        for key in self.store.tuned_segments(self.device_key, family, OTHERS):
            text = self.store.segment(key)
            times = relative_times(m for m in self._measured(key) if m.family == family)
            if text is not None and times:
                found.append(Tuned(parse_graph(text).graph, {schedule: time for (_, schedule), time in times.items()}))
        return found

    def timed(self, family: str) -> Sequence[tuple[Graph, float]]:
        found = [(key, time_us) for name, key, time_us in self._fastest if name == family][:OTHERS]
        texts = [(self.store.segment(key), time_us) for key, time_us in found]
        return [(_graph(text), time_us) for text, time_us in texts if text is not None]

    @cached_property
    def _fastest(self) -> list[tuple[str, str, float]]:
        return self.store.fastest_times(self.device_key, VERSION, MOST_FASTEST)

    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        self.store.put_segment(self.graph_key, print_graph(segment))
        self.store.record(measurements, version=VERSION)


@lru_cache(maxsize=MOST_FASTEST)
def _graph(text: str) -> Graph:
    return parse_graph(text).graph


def plan_graph(
    named: NamedGraph,
    target: str,
    budget: Budget,
    store: Store,
    cache: ObjectCache,
    progress: Progress | None = None,
    *,
    numerics: Numerics = "reassociate",
    tenant: str = "",
) -> PlanAnswer:
    """The best stored plan for the graph on `target`; where there is none, or another search is due, what that finds,
    stored whole, or the stored plan where it is as good.

    KeyboardInterrupt from `progress` ends the search with the best so far, which is stored; any other exception from
    there ends it without. A search that ends without a plan is noted, and not made again until that is out of date.
    Raises DeviceError, DatabaseError, PlanningError (of which FailedBefore), RequestError, NoPlan.
    """
    device = detect(target, cache)
    request = RequestKey(graph_key(named.graph), device.class_key, numerics, tenant, memory_bytes=budget.memory_bytes)
    now = Conditions.of_device(device, VERSION)
    found = store.resolve(request, now, budget.seconds)
    if found is None or found.due:
        store.put_graph(request.graph_key, print_graph(named.graph), Names(named.input_names, named.output_names))
    if found is None:  # a plan whose graph was damaged answers again
        found = store.resolve(request, now, budget.seconds)
    if found is not None and not found.due:
        return PlanAnswer(Plan.model_validate_json(found.body), found.plan_key, "hit", found.state, found.cut_short)
    failure = store.failure(request, now, budget.seconds)
    if failure is not None:
        raise FailedBefore(problem_before(failure))
    store.put_device(device)
    try:
        plan = _search(named.graph, device, budget, store, cache, progress, numerics)
    except (NoPlan, *FAULTS) as error:
        if not isinstance(error, RequestError) and not _ended_by_interrupt(error):
            store.put_failure(request, now, budget.seconds, failed_search(error).model_dump_json())
        raise
    state: PlanState = "predicted" if plan.time_us is None else "measured"
    searched = searched_for(plan, budget)
    binaries, sources = artifacts(plan, cache)
    plan_key = store.store_plan(request, plan, state, binaries, sources, searched, only_better=True)
    if plan_key == plan.plan_key:
        return PlanAnswer(plan, plan_key, "miss", state, searched.cut_short)
    kept = store.answer(request, now, budget.seconds)
    if kept is None:  # evicted, or damaged, meanwhile
        raise PlanningError(f"plan {plan_key} was as good as what the search found, and is not stored any more")
    return PlanAnswer(kept.plan(), kept.plan_key, "miss", kept.state, kept.cut_short)


def _ended_by_interrupt(error: BaseException | None) -> bool:
    """Whether an error came of finishing what an interrupt had left."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def failed_search(error: Exception) -> Problem:
    """What a search without a plan ends with."""
    if isinstance(error, MemoryExceeded):
        return problem("memory-exceeded", str(error))
    if isinstance(error, Disagreement):
        return problem("kernels-disagree", str(error))
    if isinstance(error, NoPlan):
        return problem("tuning-failed", str(error))
    return problem("tuning-failed", f"The search failed with a fault of its own ({type(error).__name__}).")


def _search(
    graph: Graph,
    device: Device,
    budget: Budget,
    store: Store,
    cache: ObjectCache,
    progress: Progress | None,
    numerics: Numerics,
) -> Plan:
    """What a search finds, and a second one where the first beat its bound and left time of the budget for it."""
    costs = StoredCosts(store, device.class_key, graph_key(graph))
    with Workbench(device, cache) as bench:
        plan = tune(graph, device, budget, costs, bench, progress, numerics=numerics)
        if not _beats_its_bound(plan) or was_interrupted(plan):
            return plan
        # The ceilings were measured at a slower moment.
        reached = [(s.bytes, s.bound_us / s.time_us) for s in plan.steps if s.time_us]
        if plan.time_us:
            reached.append((sum(s.bytes for s in plan.steps), plan.lower_bound_us / plan.time_us))
        end = time.monotonic() + budget.seconds - plan.search.seconds
        is_time = budget.seconds - plan.search.seconds >= LEAST_AGAIN_S
        device = with_raised_ceilings(device, cache, reached, measured=is_time)
        store.put_device(device)
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


def searched_for(plan: Plan, budget: Budget) -> Searched:
    """What the search that made a plan leaves for another one to find, by its seconds."""
    cut_short, had_s = plan.search.cut_short, plan.search.budget_s
    if was_interrupted(plan):
        return Searched(min(plan.search.seconds, budget.seconds), cut_short or INTERRUPTED)
    if cut_short is None and plan.time_us is None and budget.seconds == 0 and is_timed(plan.device):
        cut_short = NOTHING_TIMED
    return Searched(None if cut_short is None else budget.seconds if had_s is None else had_s, cut_short)


def is_timed(device: Device) -> bool:
    """Whether a search with time for it measures on such a device."""
    return device.origin == "detected" and device.target != "emulator"


def _beats_its_bound(plan: Plan) -> bool:
    """By more than noise."""
    pairs = [(plan.time_us, plan.lower_bound_us), *((step.time_us, step.bound_us) for step in plan.steps)]
    return any(time_us is not None and time_us < 0.97 * bound_us for time_us, bound_us in pairs)


def was_interrupted(plan: Plan) -> bool:
    """Whether somebody ended the search for it."""
    return any(reason.text == INTERRUPTED for reason in plan.reasons)


def _together(first: Search, second: Search) -> Search:
    """What two searches of one graph spent, and what the second knew."""
    spent = {name: getattr(first, name) + getattr(second, name) for name in ("seconds", "measured", "failed")}
    given = {name: getattr(first, name) for name in ("budget_s", "cut_short", "idle_share")}
    return second.model_copy(update=spent | given)


def artifacts(plan: Plan, cache: ObjectCache) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    """Binaries and sources that the plan's steps name, by sha256. Raises PlanningError if the cache lost a binary."""
    binaries: dict[str, bytes] = {}
    sources: dict[str, str] = {}
    for step in {(step.binary, step.source): step for step in plan.steps}.values():  # a layer's kernels are another's
        binary = cache.get(step.binary)
        if binary is None:
            raise PlanningError(f"binary {step.binary} of a {step.family} step is not in the cache any more")
        binaries[step.binary] = binary
        source = cache.get(step.source) if step.source else None
        if source is not None:
            sources[step.source] = source.decode("utf-8", "replace")
    return binaries, sources
