"""The search: graph in, plan out."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from codegen.families import FAMILIES
from codegen.kernel import Family
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Numerics, Plan, Reason
from scheduler.budget import INTERRUPTED, Budget, Progress, check_numerics
from scheduler.compile_only import settle
from scheduler.context import SearchContext
from scheduler.cover.oracle import CoverOracle, Proposal, prologue_first
from scheduler.deadline import Deadline
from scheduler.gc_pause import collecting_rarely
from scheduler.interfaces import Bench, Costs
from scheduler.large_graphs import LargeGraphPlanner
from scheduler.measuring import Measuring
from scheduler.no_plan import check_room
from scheduler.plan_selection import PlanSelection
from scheduler.rewrites.prepare import Prepared, prepare
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.split_reduction import split_tasks
from scheduler.segments.atom_cuts import cut
from scheduler.segments.atoms import COPIES
from scheduler.segments.enumeration import Candidate, find_candidates
from scheduler.segments.segment_mask import SegmentMask
from scheduler.settings import DEFAULT, TuneSettings
from scheduler.tuning.proposals import check_installed
from scheduler.tuning.trials import Ledger

PLAY_OFF_AGAIN = 2.0  # times what settling near ties took: kept for the next ones


@collecting_rarely()
def tune(
    graph: Graph,
    device: Device,
    budget: Budget,
    costs: Costs,
    bench: Bench | None,
    progress: Progress | None = None,
    *,
    numerics: Numerics = "reassociate",
    families: Mapping[str, Family] = FAMILIES,
    offers: Sequence[Alternative] = ALTERNATIVES,
    settings: TuneSettings = DEFAULT,
    clock: Callable[[], float] = time.monotonic,
    on_unfused: Callable[[Plan], None] = lambda plan: None,
) -> Plan:
    """The best plan found within the budget, by rewrites of class `numerics` or a stricter one.

    Measures the best cover by predictions and a coarse one, so that there is a plan. Then solves for the cheapest cover
    by what is known and predicted, measures what it lacks, and again; when that one is measured, the same with lower
    bounds for predictions, until no untried segment could be part of a cheaper cover; meanwhile its segments get
    further schedules, until they are near their bounds or nothing more is gained. The best few schedules of its
    segments are timed once more, against each other; then the best few covers, and the unfused graph, whole.

    KeyboardInterrupt, wherever it comes, ends the search with the best so far; a second one ends it without a plan.
    `bench` None, a budget of 0 seconds, or a device that is not there: nothing is timed, and the plan (`time_us` None)
    follows the predictions; neither in the emulator, but each kernel of the plan is checked. on_unfused: told the plan
    of the unfused graph where it was timed and lost.
    Raises NoPlan, of which MemoryExceeded where no plan fits the device's memory or the budget's; RequestError.
    """
    check_numerics(numerics)
    check_installed(budget.sampler)
    check_room(graph, device)
    timed = bench is not None and budget.seconds > 0 and device.origin == "detected" and device.target != "emulator"
    deadline = _deadline(budget, progress, settings, clock)
    context = SearchContext(graph, device, budget, costs, bench, deadline, numerics, families, offers, settings, timed)
    if timed and bench is not None:
        bench.allow(budget.seconds)
    try:
        deadline.tell("candidates", 0)
        search = _begin(context)
    except KeyboardInterrupt:  # once more, for that may have left anything half done, and no more than it takes
        deadline.silence()
        search = _begin(context.interrupted())
    return search if isinstance(search, Plan) else _plan(search, on_unfused)


@dataclass
class _Search:
    """A search that has segments to choose from. proved: no cover can be cheaper, by the costs that are known."""

    context: SearchContext
    ledger: Ledger
    covers: CoverOracle
    selection: PlanSelection
    proved: bool = False


def _begin(context: SearchContext) -> _Search | Plan:
    """Rewrites the graph and finds its segments, before anything is measured. The plan itself of a graph that is too
    large for covers to be sought."""
    ledger, settings = context.ledger(), context.settings
    rewritten = partial(context.is_late, settings.rewriting_share) if not context.hurried else lambda: True
    prepared = prepare(
        context.graph, split_tasks(context.device), context.numerics, context.offers, ledger.acceptor.shares, rewritten
    )
    if why := settings.too_many(prepared, 0.0 if context.hurried else context.seconds(1.0)):
        if context.hurried:
            return LargeGraphPlanner(replace(context, timed=False), prepared, ledger, 0.0, INTERRUPTED).plan()
        return LargeGraphPlanner(context, prepared, ledger, context.seconds(settings.candidates_share), why).plan()
    return _with_segments(context, prepared, ledger)


def _with_segments(context: SearchContext, prepared: Prepared, ledger: Ledger) -> _Search:
    """The covers and plans of the segments that are found in the time for that."""
    settings, deadline = context.settings, context.deadline
    atoms = cut(prepared.graph, ledger.acceptor.computable, alternatives=prepared.alternatives)
    until_s, late = context.seconds(settings.candidates_share), False

    def ask(piece: SegmentMask) -> Candidate | None:
        nonlocal late
        if piece.members & (piece.members - 1) and deadline.seconds > until_s:
            late = True
            return None
        return ledger.acceptor.ask(atoms, piece)

    found = find_candidates(atoms, ask, settings.candidates, deadline.look)
    unfused = unfused_segments(prepared.graph, ledger) if context.timed else ()
    cover_s = min(settings.cover_s, context.seconds(settings.cover_share))
    covers = CoverOracle(
        atoms,
        found,
        ledger,
        deadline,
        cover_s,
        context.budget.memory_bytes,
        deadline.end if context.timed else math.inf,
    )
    selection = PlanSelection(context, prepared, found, ledger, covers, unfused)
    if late:
        share = f"{settings.candidates_share:.0%} of the budget"
        text = f"finding segments ended after {until_s:g} s, {share}: {len(found.accepted)} were found"
        selection.notes.append(Reason(kind="cap", text=text))
        selection.maker.cut_short = text
    return _Search(context, ledger, covers, selection)


def _plan(search: _Search, on_unfused: Callable[[Plan], None]) -> Plan:
    """Measures, times whole plans, and decides; where it is interrupted, with the best so far."""
    selection, deadline, interrupted = search.selection, search.context.deadline, search.context.hurried
    try:
        if interrupted:
            raise KeyboardInterrupt
        if search.context.timed:
            _measure(search)
            plans = selection.last()
        else:
            _predict(search)
            plans = selection.plans(several=False)
        deadline.tell("done", search.ledger.measured)
    except KeyboardInterrupt:
        interrupted = True
        deadline.silence()
        selection.maker.cut_short = INTERRUPTED
        plans = selection.so_far()
    with suppress(KeyboardInterrupt):
        for loser in selection.unfused_losers():
            on_unfused(loser)
    if not interrupted:
        with suppress(KeyboardInterrupt):
            return selection.decide(plans, search.proved and search.covers.exact)
    selection.notes.append(Reason(kind="cap", text=INTERRUPTED))
    return selection.decide(plans, complete=False)


def _measure(search: _Search) -> None:
    """Times the first plans whole, then segments until no untried one could be part of a cheaper cover, or the time for
    that is over."""
    context, ledger, covers, selection = search.context, search.ledger, search.covers, search.selection
    settings, deadline, seconds = context.settings, context.deadline, context.budget.seconds
    measuring = Measuring(covers, ledger, deadline, settings.batch)
    cover = covers.promising()
    if not selection.is_unfused(cover) or seconds < settings.early_always_s:
        deadline.tell("segments", ledger.measured)
        ledger.expect(cover, partial(context.is_late, settings.candidates_share))
        selection.begin(cover, min(settings.early_s, settings.early_share * seconds))
        deadline.keep(plans_s=selection.last_seconds(cover), least_plans_s=selection.early_s)
    measuring.measure(cover)
    measuring.measure(covers.coarsest())
    measuring.measure_alternatives()
    settled = -1  # kernels that were measured when near ties were settled
    while not search.proved:
        search.proved = measuring.improve()
        if ledger.measured == settled:
            break
        settled, before = ledger.measured, deadline.seconds
        measuring.play_off(covers.measured())
        deadline.keep(play_off_s=PLAY_OFF_AGAIN * (deadline.seconds - before))


def _predict(search: _Search) -> None:
    """Chooses by predictions; schedules for a GPU also by their compile reports."""
    cover, bench = search.covers.promising(), search.context.bench
    if bench is not None and search.context.device.target == "cuda":
        settle(cover, search.ledger, bench)


def _deadline(
    budget: Budget, progress: Progress | None, settings: TuneSettings, clock: Callable[[], float]
) -> Deadline:
    """The clock of the search, which starts now, with the parts of the budget that are kept."""
    for_plans = min(settings.plans_share * budget.seconds, settings.plans_s)
    share = settings.play_off_share * budget.seconds
    return Deadline(budget.seconds, for_plans, progress, clock, max(share, min(2 * share, settings.play_off_s)))


def unfused_segments(graph: Graph, ledger: Ledger) -> Proposal:
    """The graph as a framework without fusion runs it: a kernel for every computation, concatenation and padding; other
    views and widening casts are part of whatever reads them. () where some family refuses a part."""
    copies = frozenset(n for n in graph.nodes if n.op in COPIES)
    atoms = cut(graph, ledger.acceptor.computable, copies)
    answers = [ledger.acceptor.ask(atoms, atoms.piece(1 << a)) for a in range(len(atoms))]
    segments = [a for a in answers if a]
    return prologue_first(segments) if len(segments) == len(answers) else ()
