"""The verdict of a search: its plan with bound, gap, reasons and what the search saw."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusion_ir.records import Plan, Reason
from scheduler.budget import INTERRUPTED
from scheduler.cover.alternative_covers import explained
from scheduler.cover.oracle import CoverOracle, Proposal
from scheduler.explain.contractions import contractions
from scheduler.explain.cuts import CutOutcome, explain
from scheduler.plan_maker import PlanMaker
from scheduler.plans.whole_time import UNCHECKED, Whole, told

MAX_REASONS = 100
MANY_ATOMS = 30  # of a graph whose plan is explained even when the time is over: that takes a moment
QUICKLY = "kernels were compiled as quickly as may be, not to run fast: there was no time for more"


@dataclass(frozen=True)
class SearchOutcome:
    """The end of a search. notes: said of it so far. whole: the last race of whole plans, of `plans` that passed.
    unfused_us: of the unfused plan in the race that the plan was chosen in."""

    notes: Sequence[Reason]
    whole: Whole
    plans: int
    unfused_us: float | None


def decided(
    maker: PlanMaker, covers: CoverOracle, proposal: Proposal, plan: Plan, outcome: SearchOutcome, *, complete: bool
) -> Plan:
    """The plan of a proposal, as the answer of its search. complete: no cover can be cheaper by the costs known."""
    context, ledger, atoms = maker.context, maker.ledger, maker.found.atoms
    for candidate in proposal:  # also of one that nothing was tried on: it explains its step
        ledger.costs.record(candidate.segment.canonical.graph, [])
    notes = list(outcome.notes)
    interrupted = any(n.text == INTERRUPTED for n in notes)
    at_length = len(atoms) <= MANY_ATOMS or not (context.deadline.is_late or interrupted)
    if context.bench is not None and plan.spread is not None and any(s.time_us is None for s in plan.steps):
        maker.cut_short = maker.cut_short or "the budget ended before each of its kernels was timed"
    if any(s.binary in maker.quick for s in plan.steps):
        maker.cut_short = maker.cut_short or QUICKLY
        notes.append(Reason(kind="cap", text=QUICKLY))
    prove = plan.time_us is not None and at_length
    least_us = covers.cheapest_us(ledger.model.bounds) if prove else None
    gap = None
    if plan.time_us is not None and least_us is not None:
        least_us = max(least_us, plan.lower_bound_us)
        gap = max(plan.time_us / least_us, 1.0) if least_us else None
    if not covers.exact:
        text = "covers: branching ran out of time, and what it did not look at may be better"
        notes.append(Reason(kind="cap", text=text))
    if context.bench is not None and plan.time_us is not None and plan.spread is None:
        notes.append(Reason(kind="note", text="not timed end to end: the time is the sum of the steps'"))
    if plan.time_us is not None and plan.time_us < plan.lower_bound_us:
        text = "faster than its bound: the device's ceilings were measured while it was slower than now"
        notes.append(Reason(kind="note", text=text))
    if (far := told(plan, outcome.whole.again, _disturbed(outcome.whole))) is not None:
        notes.append(far)
    if plan.rounds_elsewhere and plan.time_us is None:
        notes.append(Reason(kind="note", text=UNCHECKED))
    for who, fault in ledger.model.guesses.faults.items():
        notes.append(Reason(kind="note", text=f"{who} failed, and was done without: {fault}"))
    costs, ways, apart = (), (), ()
    if at_length:
        costs, untold = contractions(maker.prepared, atoms, proposal, plan, maker.found, ledger)
        if untold:
            text = f"contractions beyond the first {len(costs)}, of which families' costs are kept: {untold}"
            notes.append(Reason(kind="note", text=text))
        ended = CutOutcome(complete, by_plans=outcome.plans > 1)
        ways = explained(maker.prepared, atoms, proposal, covers, ledger)
        apart = explain(maker.prepared, proposal, maker.found, ledger, ended)
    else:
        why = INTERRUPTED if interrupted else "the budget was spent"
        notes.append(Reason(kind="cap", text=f"{why}: what each kernel could cost was not compared"))
    reasons = list(dict.fromkeys((*notes, *ways, *apart)))
    if len(reasons) > MAX_REASONS:
        left_out = Reason(kind="note", text=f"{len(reasons) - MAX_REASONS} more reasons left out")
        reasons = [*reasons[:MAX_REASONS], left_out]
    update = {
        "unfused_us": outcome.unfused_us,
        "search_gap": gap,
        "reasons": tuple(reasons),
        "contractions": costs,
        "search": maker.record(complete),
    }
    return plan.model_copy(update=update)


def _disturbed(whole: Whole) -> float | None:
    """Share of the visits to whole plans that others disturbed."""
    return max((r.disturbed for r in whole.results if r.disturbed is not None), default=None)
