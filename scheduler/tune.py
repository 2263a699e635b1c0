"""The search: graph in, plan out."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from codegen.families import FAMILIES
from codegen.kernel import Family
from fusion_ir.core.graph import Graph
from fusion_ir.ops.value_preserving import is_free
from fusion_ir.records import Device, Numerics, Plan, Reason
from scheduler.budget import INTERRUPTED, Budget, Progress, check_numerics
from scheduler.compile_only import settle
from scheduler.cover.alternative_covers import forms
from scheduler.cover.oracle import FAR, CoverOracle, Proposal, prologue_first
from scheduler.deadline import Deadline
from scheduler.gc_pause import collecting_rarely
from scheduler.interfaces import Bench, Costs
from scheduler.large_graphs import LargeGraphPlanner
from scheduler.no_plan import check_room
from scheduler.plan_selection import PlanSelection
from scheduler.rewrites.prepare import Prepared, prepare
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.split_reduction import split_tasks
from scheduler.segments.atom_cuts import cut
from scheduler.segments.atoms import COPIES
from scheduler.segments.enumeration import Candidate, CandidateSettings, find_candidates
from scheduler.segments.segment_mask import SegmentMask
from scheduler.tuning.proposals import check_installed
from scheduler.tuning.trials import Ledger

FEW = CandidateSettings(max_grown=0, max_unions=0)  # of an interrupted search: single atoms, regions, the whole graph

PLAY_OFF_AGAIN = 2.0  # times what settling near ties took: kept for the next ones


@dataclass(frozen=True)
class TuneSettings:
    """candidates_share: part of the budget after which no more segments are looked for. cover_s: seconds of one run of
    the partition programme, no more than cover_share of the budget. batch: schedules of one segment measured together.
    finalists: whole plans timed end to end, besides the unfused one. plans_share, plans_s: part of the budget kept for
    that, and the most of it. play_off_share: part of it kept for near ties of schedules; play_off_s: of a small budget
    up to twice that part, as long as one race takes. rewriting_share: part after which nothing more is rewritten.
    early_share, early_s: part of the budget for timing the first plans, and the most of it; early_always_s: of budgets
    below, the plan of the unfused graph, too, where that is the best by predictions.
    least_atoms, atoms_per_s, most_atoms: tensors of a graph that covers are sought for, whatever the budget, for each
    second of it, and at the most."""

    candidates: CandidateSettings = field(default_factory=CandidateSettings)
    candidates_share: float = 0.5
    cover_s: float = 2.0
    cover_share: float = 0.2
    batch: int = 8
    finalists: int = 3
    rewriting_share: float = 0.15
    early_share: float = 0.1
    early_s: float = 0.5
    early_always_s: float = 3.0
    least_atoms: int = 40
    atoms_per_s: float = 25.0
    most_atoms: int = 1500
    plans_share: float = 0.2
    plans_s: float = 5.0
    play_off_share: float = 0.1
    play_off_s: float = 1.5

    def too_many(self, prepared: Prepared, seconds: float) -> str:
        """Why covers of this graph are not sought in so many seconds; "" where they are."""
        most = int(max(self.least_atoms, min(self.most_atoms, self.atoms_per_s * seconds)))
        written = {o.node for o in prepared.graph.outputs}  # views among them are copied
        count = sum(n in written or (n.op != "input" and not is_free(n)) for n in prepared.graph.nodes)
        if count <= most:
            return ""
        within = "" if most == self.most_atoms else f" in {seconds:g} s"
        return f"covers are sought of up to {most} tensors{within}, the graph has {count}: it was taken in stretches"


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
    settings: TuneSettings = TuneSettings(),
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
    deadline = _watch(budget, progress, settings, clock)
    ledger = Ledger(device, families, costs, bench if timed else None, budget.seed, budget.sampler)
    begin = partial(_begin, budget, bench, deadline, timed=timed)
    by_stretches = partial(_by_stretches, budget, bench, deadline, timed=timed)
    interrupted = False
    if timed and bench is not None:
        bench.allow(budget.seconds)
    try:
        deadline.tell("candidates", 0)
        rewriting_s = settings.rewriting_share * budget.seconds if timed else math.inf
        is_late = partial(_is_late, deadline, rewriting_s)
        prepared = prepare(graph, split_tasks(device), numerics, offers, ledger.shares, is_late)
        if why := settings.too_many(prepared, budget.seconds if timed else math.inf):
            return by_stretches(
                prepared, ledger, settings.candidates_share * budget.seconds if timed else math.inf, why
            )
        ledger, covers, selection = begin(prepared, ledger, settings)
    except KeyboardInterrupt:  # once more, for that may have left anything half done, and no more than it takes
        interrupted = True
        deadline.silence()
        ledger = Ledger(device, families, costs, bench if timed else None, budget.seed, budget.sampler)
        prepared = prepare(graph, split_tasks(device), numerics, (), ledger.shares, lambda: True)
        if settings.too_many(prepared, 0.0):
            return _by_stretches(budget, bench, deadline, prepared, ledger, 0.0, INTERRUPTED, timed=False)
        ledger, covers, selection = begin(prepared, ledger, replace(settings, candidates=FEW))
    proved = False
    try:
        if interrupted:
            raise KeyboardInterrupt
        if timed:
            cover = covers.promising()
            if not selection.is_unfused(cover) or budget.seconds < settings.early_always_s:
                deadline.tell("segments", ledger.measured)
                ledger.expect(cover, partial(_is_late, deadline, settings.candidates_share * budget.seconds))
                selection.begin(cover, min(settings.early_s, settings.early_share * budget.seconds))
                deadline.keep(plans_s=selection.last_seconds(cover), least_plans_s=selection.early_s)
            _measure(cover, ledger, deadline)
            _measure(covers.coarsest(), ledger, deadline)
            _measure_forms(covers, ledger, deadline)
            settled = -1  # kernels that were measured when near ties were settled
            while not proved:
                proved = _improve(covers, ledger, deadline, settings.batch)
                if ledger.measured == settled:
                    break
                settled, before = ledger.measured, deadline.seconds
                _play_off(covers.measured(), ledger, deadline)
                deadline.keep(play_off_s=PLAY_OFF_AGAIN * (deadline.seconds - before))
        else:
            cover = covers.promising()
            if bench is not None and device.target == "cuda":
                settle(cover, ledger, bench)
        plans = selection.last() if timed else selection.plans(several=False)
        deadline.tell("done", ledger.measured)
    except KeyboardInterrupt:
        interrupted = True
        deadline.silence()
        selection.cut_short = INTERRUPTED
        plans = selection.so_far()
    with suppress(KeyboardInterrupt):
        for loser in selection.unfused_losers():
            on_unfused(loser)
    if not interrupted:
        with suppress(KeyboardInterrupt):
            return selection.decide(plans, proved and covers.exact)
    selection.notes.append(Reason(kind="cap", text=INTERRUPTED))
    return selection.decide(plans, complete=False)


def _watch(budget: Budget, progress: Progress | None, settings: TuneSettings, clock: Callable[[], float]) -> Deadline:
    """The clock of the search, which starts now, with the parts of the budget that are kept."""
    for_plans = min(settings.plans_share * budget.seconds, settings.plans_s)
    share = settings.play_off_share * budget.seconds
    return Deadline(budget.seconds, for_plans, progress, clock, max(share, min(2 * share, settings.play_off_s)))


def _is_late(deadline: Deadline, until_s: float) -> bool:
    """Whether so many seconds of the search are over; who listens may end it."""
    deadline.look()
    return deadline.seconds > until_s


def _by_stretches(
    budget: Budget,
    bench: Bench | None,
    deadline: Deadline,
    prepared: Prepared,
    ledger: Ledger,
    until_s: float,
    why: str,
    *,
    timed: bool,
) -> Plan:
    """The plan of a graph that is too large for anything else, or an interrupted search."""
    memory_bytes, seconds = budget.memory_bytes, budget.seconds
    return LargeGraphPlanner(prepared, ledger, deadline, bench, memory_bytes, timed, until_s, seconds, why).plan()


def _begin(
    budget: Budget,
    bench: Bench | None,
    deadline: Deadline,
    prepared: Prepared,
    ledger: Ledger,
    settings: TuneSettings,
    *,
    timed: bool,
) -> tuple[Ledger, CoverOracle, PlanSelection]:
    """The ledger, and the covers and plans of the segments found, before anything is measured."""
    atoms = cut(prepared.graph, ledger.computable, alternatives=prepared.alternatives)
    until_s = settings.candidates_share * budget.seconds if timed else math.inf
    late = False

    def ask(piece: SegmentMask) -> Candidate | None:
        nonlocal late
        if piece.members & (piece.members - 1) and deadline.seconds > until_s:
            late = True
            return None
        return ledger.ask(atoms, piece)

    found = find_candidates(atoms, ask, settings.candidates, deadline.look)
    unfused = unfused_segments(prepared.graph, ledger) if timed else ()
    cover_s = min(settings.cover_s, settings.cover_share * budget.seconds) if timed else settings.cover_s
    covers = CoverOracle(
        atoms, found, ledger, deadline, cover_s, budget.memory_bytes, deadline.end if timed else math.inf
    )
    selection = PlanSelection(
        prepared, atoms, found, ledger, covers, unfused, deadline, bench, settings.finalists, budget
    )
    if late:
        share = f"{settings.candidates_share:.0%} of the budget"
        text = f"finding segments ended after {until_s:g} s, {share}: {len(found.accepted)} were found"
        selection.notes.append(Reason(kind="cap", text=text))
        selection.cut_short = text
    return ledger, covers, selection


def unfused_segments(graph: Graph, ledger: Ledger) -> Proposal:
    """The graph as a framework without fusion runs it: a kernel for every computation, concatenation and padding; other
    views and widening casts are part of whatever reads them. () where some family refuses a part."""
    copies = frozenset(n for n in graph.nodes if n.op in COPIES)
    atoms = cut(graph, ledger.computable, copies)
    answers = [ledger.ask(atoms, atoms.piece(1 << a)) for a in range(len(atoms))]
    segments = [a for a in answers if a]
    return prologue_first(segments) if len(segments) == len(answers) else ()


def _improve(covers: CoverOracle, ledger: Ledger, deadline: Deadline, batch: int) -> bool:
    """Measures what may lead to a better cover, until there is no time. Whether nothing is left that could."""
    while not deadline.is_over():
        refined = _refine(covers.measured(), ledger, deadline, batch)
        learned = _measure(covers.promising(), ledger, deadline)
        if not (refined or learned):
            extended = _extend(covers.measured(), ledger, deadline, batch)
            probed = _measure(covers.cheapest(ledger.bounds), ledger, deadline)
            if not (extended or probed):
                return True
    return False


def _measure(cover: Proposal, ledger: Ledger, deadline: Deadline) -> bool:
    """Gets every segment of the cover a first measured time, or each that there is time for. Whether anything was
    learned, or time ran out first."""
    learned, left_out = False, False
    waiting = sorted(cover, key=lambda c: c.is_prologue)  # what every run takes comes first
    while waiting:
        if deadline.is_over():
            return True
        candidate = waiting.pop(0)
        learned = learned or not ledger.is_open(candidate)
        entry = ledger.open(candidate)
        while entry.best() is None and entry.pending:
            if deadline.is_over():
                return True
            waiting = [c for c in waiting if ledger.time_us(c) is None]
            if not _race(candidate, ledger, deadline, ledger.hopeful(candidate), waiting):
                left_out = True
                break
            learned = True
    if left_out:
        deadline.finish()
    return learned or left_out


def _measure_forms(covers: CoverOracle, ledger: Ledger, deadline: Deadline) -> None:
    """Where a tensor of the best cover can be computed in several ways, gets the best cover of another way measured,
    too, unless it is predicted to be far from the best: predictions of different products are far apart."""
    best = covers.measured()
    best_us = covers.us(best)
    for form in forms(covers.found.atoms, best, covers, ledger):
        if covers.us(form.other) <= FAR * best_us:
            _measure(form.other, ledger, deadline)


def _refine(cover: Proposal, ledger: Ledger, deadline: Deadline, batch: int) -> bool:
    """Tries more schedules on the segment of the cover that may gain most, of those that have any left. Whether there
    was one."""
    if cover:
        deadline.best_us = sum(ledger.time_us(c) or 0.0 for c in cover if not c.is_prologue)
    waiting = [c for c in _by_gain(cover, ledger) if ledger.has_more(c)]
    for candidate in waiting:
        ledger.draw_on_others(candidate)
        if _race(candidate, ledger, deadline, batch):
            return True
    if waiting:
        deadline.finish()
    return bool(waiting)


def _extend(cover: Proposal, ledger: Ledger, deadline: Deadline, batch: int) -> bool:
    """`_refine` with schedules that no family named, for a segment that may gain from them."""
    promising = next((c for c in _by_gain(cover, ledger) if ledger.extend(c, batch, deadline.is_over)), None)
    if promising is None or deadline.is_over():
        return False
    if not _race(promising, ledger, deadline, batch):
        deadline.finish()
    return True


def _race(candidate: Candidate, ledger: Ledger, deadline: Deadline, most: int, then: Sequence[Candidate] = ()) -> bool:
    """Measures pending schedules of a segment, as many as there is time for. Whether there was any. then: as in
    `Ledger.measure`."""
    count = deadline.affordable(partial(ledger.race_seconds, candidate), most)
    if count:
        ledger.measure(candidate, count, then, deadline.is_over)
    deadline.tell("segments", ledger.measured)
    return count > 0


def _play_off(cover: Proposal, ledger: Ledger, deadline: Deadline) -> None:
    """Settles near ties among the schedules of the cover's segments, those that take longest first."""
    for candidate in sorted(cover, key=lambda c: -(ledger.time_us(c) or 0.0)):
        if deadline.is_time_for_plans():
            return
        ledger.play_off(candidate)


def _by_gain(cover: Proposal, ledger: Ledger) -> list[Candidate]:
    """Segments of the cover, largest possible gain first: their time beyond their lower bound."""
    return sorted(cover, key=lambda c: c.weight * (ledger.bound_us(c) - (ledger.time_us(c) or 0.0)))
