"""Plans one graph on this machine: device, search, storage. Used by workers and by `fuseplan tune` alone."""

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
from fusion_ir.records import Measurement, Numerics, Plan, Search
from fusion_ir.text import parse_graph, print_graph
from scheduler.bench import Budget, Progress
from scheduler.entry import relative_times
from scheduler.experience import Tuned
from scheduler.tune import INTERRUPTED, tune
from service.version import VERSION
from tuning_db import Conditions, Names, RequestKey, Store

OTHERS = 64  # segments that a search asks for a first guess
MOST_FASTEST = 512  # times of all families that predictions are corrected with
AGAIN_SECONDS = 8.0  # of a search whose measurements are mostly known

PlanState = Literal["measured", "predicted", "stale", "failed"]


class PlanningError(Exception):
    """No plan could be made or kept; the message says why."""


@dataclass(frozen=True)
class PlanAnswer:
    """A plan, whether it was there already, and the state of the request's row."""

    plan: Plan
    plan_key: str
    cache: Literal["hit", "miss"]
    state: PlanState


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
    """The stored plan for the graph on `target`; where there is none, or it is stale, a new one, stored whole.

    KeyboardInterrupt from `progress` ends the search with the best so far, which is stored; any other exception from
    there ends it without. Raises DeviceError, DatabaseError, PlanningError, RequestError, NoPlan.
    """
    device = detect(target, cache)
    request = RequestKey(graph_key(named.graph), device.class_key, numerics, tenant, memory_bytes=budget.memory_bytes)
    found = store.resolve(request, Conditions.of_device(device, VERSION))
    if found is not None and found.state in ("measured", "predicted"):
        return PlanAnswer(Plan.model_validate_json(found.body), found.plan_key, "hit", found.state)
    store.put_device(device)
    store.put_graph(request.graph_key, print_graph(named.graph), Names(named.input_names, named.output_names))
    with Workbench(device, cache) as bench:
        costs = StoredCosts(store, device.class_key, request.graph_key)
        plan = tune(named.graph, device, budget, costs, bench, progress, numerics=numerics)
        if _beats_its_bound(plan) and not was_interrupted(plan):
            # The ceilings were measured at a slower moment: once more, on what is known by now.
            reached = [(s.bytes, s.bound_us / s.time_us) for s in plan.steps if s.time_us]
            device = with_raised_ceilings(device, cache, reached)
            store.put_device(device)
            rest = replace(budget, seconds=min(budget.seconds, AGAIN_SECONDS))
            again = tune(named.graph, device, rest, costs, bench, progress, numerics=numerics)
            plan = again.model_copy(update={"search": _together(plan.search, again.search)})
    state: PlanState = "predicted" if plan.time_us is None else "measured"
    if state == "predicted" and was_interrupted(plan):
        state = "stale"  # right, and due for another search: this one was ended before it had timed enough
    binaries, sources = artifacts(plan, cache)
    plan_key = store.store_plan(request, plan, state, binaries, sources)
    return PlanAnswer(plan, plan_key, "miss", state)


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
    return second.model_copy(update=spent)


def artifacts(plan: Plan, cache: ObjectCache) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    """Binaries and sources that the plan's steps name, by sha256. Raises PlanningError if the cache lost a binary."""
    binaries: dict[str, bytes] = {}
    sources: dict[str, str] = {}
    for step in plan.steps:
        binary = cache.get(step.binary)
        if binary is None:
            raise PlanningError(f"binary {step.binary} of a {step.family} step is not in the cache any more")
        binaries[step.binary] = binary
        source = cache.get(step.source) if step.source else None
        if source is not None:
            sources[step.source] = source.decode("utf-8", "replace")
    return binaries, sources
