"""Plans one graph on this machine: device, database, a search where there is no plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from codegen.devices.ceilings import MEASURING
from codegen.devices.detection import detect
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Device, Numerics, Plan
from fusion_ir.text.printing import print_graph
from scheduler.budget import INTERRUPTED, Budget, Progress, RequestError, was_interrupted
from scheduler.no_plan import Disagreement, MemoryExceeded, NoPlan
from service.errors import Problem, problem
from service.planning.plan_request import PlanRequest
from service.timing_noise import NOISE
from service.wording.continued_search import Continued
from service.wording.failures import problem_before
from tuning_db.reading.graphs import Names
from tuning_db.requests import RequestKey, Resolved, Searched
from tuning_db.states import PlanState

if TYPE_CHECKING:
    from tuning_db.reading.sqlite_hits import SqliteHits
    from tuning_db.store import Store

NOTHING_TIMED = "nothing was timed"
LEAST_SHARE = 0.34  # that a starved search counts as: after three of them a plan is as good as a machine lets it be
LEAST_COUNTED_S = 10.0  # a shorter one is asked for by who cannot wait
# Errors by which a fault in the search's own code shows, in every repetition; files, memory and devices fail otherwise.
FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class PlanningError(Exception):
    """No plan could be made or kept; the message says why."""


class FailedBefore(PlanningError):
    """A search for this request, with as many seconds, ended without a plan, and nothing that it depends on changed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@dataclass(frozen=True)
class PlanAnswer:
    """A plan, whether it was there already, and the state of the request's row. cut_short: why the last search for it
    ended early, None where it did not. continued: what a search came to where there was a measured plan."""

    plan: Plan
    plan_key: str
    cache: Literal["hit", "miss"]
    state: PlanState
    cut_short: str | None = None
    continued: Continued | None = None


def plan_graph(
    named: NamedGraph,
    target: str,
    budget: Budget,
    store: "Store",
    cache: ObjectCache,
    progress: Progress | None = None,
    *,
    numerics: Numerics = "reassociate",
    tenant: str = "",
    again: bool = False,
    cancel_counts: bool = False,
    tell: Callable[[str], None] | None = None,
) -> PlanAnswer:
    """The best stored plan for the graph on `target`; where there is none, or another search is due, the plan that a
    search finds, stored whole, or the stored plan where that is faster: the two are timed in one race
    (`service.planning.rematch`), and the faster one is stored with its times of now. again: searches in any case, with
    what the database knows of earlier searches: kernels that were timed then are not timed anew. cancel_counts: an
    interrupted search counts as one that used all its seconds, so that the next request for as many does not begin anew
    what somebody cancelled.

    tell: is told in a line why a search begins, and that ceilings are measured, which a search does not count.

    KeyboardInterrupt from `progress` ends the search with the best so far, which is stored; any other exception from
    there ends it without. A search that ends without a plan is noted, and not made again until that is out of date.
    Raises DeviceError, DatabaseError, PlanningError (of which FailedBefore), RequestError, NoPlan.
    """
    request = _detected(named, target, budget, cache, numerics, tenant, tell)
    found = store.plans.resolve(request.key, request.now, budget.seconds)
    if found is None or found.due or again:
        store.graphs.put(request.graph_key, print_graph(named.graph), Names.of_graph(named))
    if found is None:  # a plan whose graph was damaged answers again
        found = store.plans.resolve(request.key, request.now, budget.seconds)
    return _plan(named.graph, request, found, store, cache, progress, again, cancel_counts, tell)


def plan_stored_graph(
    graph: Graph,
    request: PlanRequest,
    store: "Store",
    cache: ObjectCache,
    progress: Progress | None = None,
    *,
    again: bool = False,
    cancel_counts: bool = False,
) -> PlanAnswer:
    """`plan_graph` for a graph that is stored under the request's key, on a device that is known: a plan that was made
    since the request came in answers it."""
    found = store.plans.resolve(request.key, request.now, request.budget.seconds)
    return _plan(graph, request, found, store, cache, progress, again, cancel_counts)


def _plan(
    graph: Graph,
    request: PlanRequest,
    found: Resolved | None,
    store: "Store",
    cache: ObjectCache,
    progress: Progress | None,
    again: bool,
    cancel_counts: bool,
    tell: Callable[[str], None] | None = None,
) -> PlanAnswer:
    """The stored plan `found`, or the outcome of a search; see `plan_graph`."""
    key, now, budget = request.key, request.now, request.budget
    if found is not None and not found.due and not again:
        return _hit(found)
    failure = None if again else store.failures.failure(key, now, budget.seconds)
    if failure is not None:
        raise FailedBefore(problem_before(failure))
    from service.planning.search import search  # noqa: PLC0415  with all that plans are made by; a hit does without

    if tell is not None and budget.seconds:
        tell(about_to_search(found, key, budget.seconds))
    store.devices.put(request.device)
    before = None if found is None or found.state != "measured" else found.plan()
    rival = before if found is not None and found.request == key else None
    try:
        plan, met = search(graph, request, store, cache, progress, rival)
    except (NoPlan, *FAULTS) as error:
        if not isinstance(error, RequestError) and not _ended_by_interrupt(error):
            store.failures.put(key, now, budget.seconds, failed_search(error).model_dump_json())
        raise
    plan = met.plan if met else plan
    state: PlanState = "predicted" if plan.time_us is None else "measured"
    so_far_s = found.had_s if found is not None and found.request == key and found.cut_short else None
    searched = searched_for(plan, budget, so_far_s or 0.0, cancel_counts=cancel_counts)
    binaries, sources = artifacts(plan, cache)
    plan_key = store.plans.put(key, plan, state, binaries, sources, searched, only_better=met is None)
    continued = None
    if before is not None:
        continued = Continued(plan.search, met.outcome, met.speed_up) if met else _by_records(plan, before, plan_key)
    if plan_key == plan.plan_key:
        return PlanAnswer(plan, plan_key, "miss", state, searched.cut_short, continued)
    kept = store.plans.answer(key, now, budget.seconds)
    if kept is None:  # evicted, or damaged, meanwhile
        raise PlanningError(f"plan {plan_key} was as good as what the search found, and is not stored any more")
    return PlanAnswer(kept.plan(), kept.plan_key, "miss", kept.state, kept.cut_short, continued)


def plain_hit(
    named: NamedGraph,
    target: str,
    budget: Budget,
    hits: "SqliteHits",
    cache: ObjectCache,
    *,
    numerics: Numerics = "reassociate",
    tell: Callable[[str], None] | None = None,
) -> PlanAnswer | None:
    """`plan_graph` where that would answer from the database and change nothing in it; None where it would not."""
    request = _detected(named, target, budget, cache, numerics, "", tell)
    found = hits.resolve(request.key, request.now, budget.seconds)
    return None if found is None else _hit(found)


def _detected(
    named: NamedGraph,
    target: str,
    budget: Budget,
    cache: ObjectCache,
    numerics: Numerics,
    tenant: str,
    tell: Callable[[str], None] | None,
) -> PlanRequest:
    """The request for a plan on the device that `target` is now."""
    device = detect(target, cache, on_measuring=None if tell is None else partial(tell, MEASURING))
    return PlanRequest(device, graph_key(named.graph), budget, numerics, tenant)


def _hit(found: Resolved) -> PlanAnswer:
    return PlanAnswer(found.plan(), found.plan_key, "hit", found.state, found.cut_short)


def about_to_search(found: Resolved | None, request: RequestKey, seconds: float) -> str:
    """Why a search is about to be made, and how long it may take: "no plan in the database: searching up to 30 s".
    found: what is stored."""
    if found is None:
        return f"no plan in the database: searching up to {seconds:g} s"
    as_it_is = f"searching up to {seconds:g} s more (--seconds 0: as it is)"
    if found.state == "predicted" or found.cut_short == NOTHING_TIMED:
        return f"nothing of the stored plan was timed: {as_it_is}"
    if found.state == "stale":
        return (
            "the stored plan was timed under another driver, compiler or version: searching up to "
            f"{seconds:g} s for one of now"
        )
    if found.cut_short is not None:
        return f"the stored plan was cut short: {as_it_is}"
    if found.request != request:
        return f"the stored plan was searched for under other conditions (--numerics, --memory): {as_it_is}"
    return f"going on where the search for the stored plan ended: searching up to {seconds:g} s more"


def _by_records(plan: Plan, before: Plan, stored: str) -> Continued:
    """The outcome of a search by recorded times, as the two plans were not timed in one race. stored: the key of the
    answer."""
    if stored != plan.plan_key:
        return Continued(plan.search, "kept")
    speed_up = before.time_us / plan.time_us if before.time_us and plan.time_us else None
    noise = max(NOISE, before.spread or 0.0) + max(NOISE, plan.spread or 0.0)
    return Continued(plan.search, "faster" if speed_up is not None and speed_up > 1 + noise else "as fast", speed_up)


def _ended_by_interrupt(error: BaseException | None) -> bool:
    """Whether an error came of finishing what an interrupt had left."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def failed_search(error: Exception) -> Problem:
    """The problem that a search without a plan ends with, by the error that it raised."""
    if isinstance(error, MemoryExceeded):
        return problem("memory-exceeded", str(error))
    if isinstance(error, Disagreement):
        return problem("kernels-disagree", str(error))
    if isinstance(error, NoPlan):
        return problem("tuning-failed", str(error))
    return problem("tuning-failed", f"The search failed with a fault of its own ({type(error).__name__}).")


def searched_for(plan: Plan, budget: Budget, so_far_s: float = 0.0, *, cancel_counts: bool = False) -> Searched:
    """The record of the search that made a plan: the seconds that it counts as, by which a later request decides
    whether another search would find more, and why it was cut short. A search that others on the machine left little
    of the CPUs counts as the seconds that it got of them, besides the `so_far_s` of searches that it went on from: so
    the next request for as many seconds continues it. cancel_counts: see `plan_graph`."""
    cut_short, had_s = plan.search.cut_short, plan.search.budget_s
    if was_interrupted(plan):
        spent_s = budget.seconds if cancel_counts else min(plan.search.seconds, budget.seconds)
        return Searched(spent_s, cut_short or INTERRUPTED)
    if cut_short is None and plan.time_us is None and budget.seconds == 0 and is_timed(plan.device):
        cut_short = NOTHING_TIMED
    if cut_short is None:
        return Searched()
    counts_s = given_s = budget.seconds if had_s is None else had_s
    if plan.search.was_starved and given_s >= LEAST_COUNTED_S:
        counts_s = min(so_far_s + max(plan.search.cpu_share or 0.0, LEAST_SHARE) * given_s, given_s)
    return Searched(counts_s, cut_short)


def is_timed(device: Device) -> bool:
    """Whether a search with time for it measures on such a device."""
    return device.origin == "detected" and device.target != "emulator"


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
