"""The end of a search: the best few covers as whole plans, timed against each other, since costs do not quite add.

Plans are timed as a program runs them between other work: a run finds its inputs in memory, and each step what its
producer left in the caches. That time decides. What the same takes again and again on the same tensors, which is how a
loop over nothing else would run it, is reported beside it (`Plan.warm_us`): no plan is chosen for what is in a cache
only because nobody else used it.
"""

import math
from collections.abc import Sequence

from codegen.timing.protocol import LEAST_PAIRS, median
from codegen.toolchain.compiler import OutOfTime
from fusion_ir.records import Plan, Reason, Status, Step
from scheduler.context import SearchContext
from scheduler.cover.oracle import CoverOracle, Proposal
from scheduler.no_plan import MemoryExceeded, NoPlan, refused, unusable
from scheduler.plan_maker import PlanMaker
from scheduler.plan_ranking import Timed, ranked
from scheduler.plans.assemble import meanings_of
from scheduler.plans.whole_time import BY_STEPS, Whole, measure_whole, times
from scheduler.rewrites.prepare import Prepared
from scheduler.segments.enumeration import Candidate, Candidates
from scheduler.tuning.trials import Ledger
from scheduler.verdict import SearchOutcome, decided

LEAST_PLANS_S = 0.5  # for timing whole plans, even where the budget is spent
# The most of it then, where no plan was timed yet: as long as it takes until differences are clear, by what plans
# should take.
MOST_LATE_S = 2.0
ROUNDS = 3 * LEAST_PAIRS  # that this needs, of a machine that others use too
LATE = "the budget ended before plans of what was measured were compiled: the first plans are what there is"
LAST_PLANS = 4.0  # times what timing the first plans took: there are twice as many, and closer to each other
UNFUSED = "no kernels that passed their checks make a cover: a kernel for each op instead"
NO_TIME_FOR_UNFUSED = "one for each op, were not compiled in time: the plan was not compared with them"
MOST_COVERS = 8  # that are looked for where kernels turn out not to be usable
DOUBT = 2.0  # a prediction has to be that much better than a measurement to be chosen in the end

LATE_S = 0.5  # beyond the budget, for what it takes to end well


class PlanSelection:
    """Proposals -> plans -> times -> the winner."""

    def __init__(
        self,
        context: SearchContext,
        prepared: Prepared,
        found: Candidates,
        ledger: Ledger,
        covers: CoverOracle,
        unfused: Proposal,
    ) -> None:
        self.context, self.prepared, self.found, self.ledger = context, prepared, found, ledger
        self.covers, self.unfused, self.deadline, self.bench = covers, unfused, context.deadline, context.bench
        self.atoms, self.count = found.atoms, context.settings.finalists
        self.memory_bytes = context.budget.memory_bytes
        self.maker = PlanMaker(context, prepared, found, ledger)
        self._least_bytes: int | None = None  # of plans that were made and did not keep to that
        self.notes: list[Reason] = list(found.reasons)
        self._unclear: list[Reason] = []
        self.timed: list[tuple[Proposal, Plan]] = []
        self._early: list[tuple[Proposal, Plan]] = []
        self.unfused_us: float | None = None  # in the race that the plan was chosen in
        self._early_unfused_us: float | None = None
        self._wrong = 0, ""  # steps of a plan that was refused as wrong, and what was said
        self.whole = Whole(())  # once they were timed
        self._compiled_s = 0.0  # for each kernel of the early plans
        self.early_s = 0.0  # that checking and timing these took; 0 where there were none

    def begin(self, cover: Proposal, seconds: float) -> None:
        """Times the cover that is predicted to be the cheapest beside the unfused graph, whole, before any schedule is
        refined: whatever stalls from then on, there is a plan, and it is no slower than its unfused. None where no
        kernel of theirs can be used yet, or neither keeps to the limit of memory."""
        plans: list[tuple[Proposal, Plan]] = []
        started, made = self.deadline.clock(), 0
        tries = 0
        while not plans:
            is_enough = tries >= MOST_COVERS or (tries > 0 and self.deadline.is_over())
            tries += 1
            if is_enough and not cover:
                return
            if is_enough:  # the unfused graph alone, once, however late
                cover = ()
            elif not self._is_usable(cover):
                cover = self.covers.promising()
            proposals = [cover] if self.is_unfused(cover) or not self.unfused else [cover, self.unfused]
            proposals = [p for p in proposals if p and self._is_usable(p)]
            if not proposals:
                return
            kernels = self.maker.kernels(proposals, quickly=self.maker.lacks_time(proposals))
            if kernels is None:
                continue
            # In files of their own they are compiled for the last plans, too; of little time that takes too much.
            together = self.maker.are_many(kernels)
            try:
                binaries = self.maker.binaries(kernels, timed=True, together=together, optional=len(proposals) > 1)
            except OutOfTime:
                self.notes.append(Reason(kind="cap", text=f"{len(self.unfused)} kernels, {NO_TIME_FOR_UNFUSED}"))
                del proposals[1:]
                kernels = {c: kernels[c] for c in proposals[0]}
                binaries = self.maker.binaries(kernels, timed=True, together=together)
            if binaries is not None:
                made = len(binaries)
                plans = [(p, self.maker.plan(p, kernels, binaries)) for p in proposals]
        self._compiled_s = (self.deadline.clock() - started) / max(made, 1)
        limit = self.memory_bytes
        plans = [(p, plan) for p, plan in plans if limit is None or plan.temporary_bytes <= limit]
        if any(plan.steps for _, plan in plans):
            started = self.deadline.clock()
            if self.deadline.is_over():  # most likely there will be no others
                seconds = max(seconds, _clear_s(plans))
            self._early = self._ranked(self._passing(plans, seconds))
            self._early_unfused_us = self.unfused_us
            self.early_s = self.deadline.clock() - started

    @property
    def early(self) -> list[tuple[Proposal, Plan]]:
        """Plans that were timed before any schedule was, the best first, with the times that their kernels took since;
        without those of which a kernel was found wrong."""
        return [
            (proposal, plan.model_copy(update={"steps": tuple(map(self._timed_since, plan.steps))}))
            for proposal, plan in self._early
            if not any(self.ledger.is_wrong(s.segment_key, (s.family, s.schedule)) for s in plan.steps)
        ]

    def _timed_since(self, step: Step) -> Step:
        us = self.ledger.variant_us(step.segment_key, (step.family, step.schedule))
        return step if us is None else step.model_copy(update={"time_us": us, "predicted_us": None})

    def last_seconds(self, cover: Proposal) -> float:
        """That timing the last plans will take, of which this cover or one like it is the best, going by the first
        ones; infinite where there were none."""
        if not self.early_s:
            return math.inf
        kernels = len(cover) + self.count
        return kernels * self._compiled_s + LAST_PLANS * self.early_s

    def last(self) -> list[tuple[Proposal, Plan]]:
        """Plans of what was measured, timed, the winner first; those timed before where nothing was measured since, or
        there is no time for others: no compiler begins with another's kernels beyond the budget. Raises NoPlan."""
        if self.early and not (self.ledger.measured and self._is_time_for_others()):
            return self._first_ones()
        try:
            plans = self.plans(several=True)
            self.deadline.tell("plans", self.ledger.measured)
            return self.time(plans)
        except NoPlan as e:
            if not self.early:
                raise
            self.notes.append(Reason(kind="note", text=f"no plan but the first ones: {e}"))
        except OutOfTime:
            self.notes.append(Reason(kind="cap", text=LATE))
            self.maker.cut_short = self.maker.cut_short or LATE
        return self._first_ones()

    def _first_ones(self) -> list[tuple[Proposal, Plan]]:
        """The first plans, after all."""
        self.timed, self.unfused_us = self.early, self._early_unfused_us
        return self.timed

    def so_far(self) -> list[tuple[Proposal, Plan]]:
        """The best plan when a search is ended: one that was timed, unless what was measured since seems better."""
        if self.timed:
            return self.timed
        measured = self.covers.measured() if self.early and self.ledger.measured else ()
        if self.early and not (measured and self.covers.us(measured) < (self.early[0][1].time_us or 0.0)):
            return self._first_ones()
        return self.plans(several=False)

    def _is_time_for_others(self) -> bool:
        """Whether kernels of another cover can be compiled and timed in what is left of the budget."""
        kernels = len(self.covers.measured()) + self.count
        return kernels * self._compiled_s < self.deadline.end - self.deadline.clock() + LATE_S

    def plans(self, several: bool) -> list[tuple[Proposal, Plan]]:
        """Proposals with compiled kernels, the cheapest first, to be timed; only that one unless `several`. Kernels
        that do not compile are struck out and the proposals made anew. Raises NoPlan."""
        tries = 0
        while True:
            if several and self.early and self.deadline.is_late:
                raise OutOfTime("the budget is over, and there is a plan")
            is_enough = tries >= MOST_COVERS or (tries > 0 and self.deadline.is_late)
            tries += 1
            if is_enough and self.unfused and self._is_usable(self.unfused):
                proposals = [self._without_others()]
            else:
                if is_enough:
                    self.covers.strike_larger()
                proposals = self._proposals() if several else [self._best()]
            kernels = self.maker.kernels(proposals, quickly=several and self.maker.lacks_time(proposals))
            if kernels is None:
                continue
            together = several and self.deadline.is_over() and self.maker.are_many(kernels)
            optional = several and bool(self.early)
            binaries = self.maker.binaries(kernels, timed=several, together=together, optional=optional)
            if binaries is not None:
                fitting = self._fitting([(p, self.maker.plan(p, kernels, binaries)) for p in proposals])
                if fitting:
                    once_more = self.maker.in_caches(proposals[0], kernels, binaries) if several else None
                    return [*fitting, (proposals[0], once_more)] if once_more else fitting

    def _fitting(self, plans: list[tuple[Proposal, Plan]]) -> list[tuple[Proposal, Plan]]:
        """Plans that keep to the limit of memory. Where none does, since kernels want room beside tensors, or buffers
        that tensors share are not as full as they could be, the limit of covers is lowered by the excess. Raises
        MemoryExceeded where that leaves covers nothing."""
        limit = self.memory_bytes
        if limit is None:
            return plans
        fitting = [(proposal, plan) for proposal, plan in plans if plan.temporary_bytes <= limit]
        if fitting and len(fitting) < len(plans):
            least = min(plan.temporary_bytes for _, plan in plans if plan.temporary_bytes > limit)
            left_out = f"{len(plans) - len(fitting)} of {len(plans)} plans left out, which need {least:,} bytes or more"
            self.notes.append(Reason(kind="cap", text=f"at most {limit:,} bytes of temporaries: {left_out}"))
        if not fitting:
            least = min(plan.temporary_bytes for _, plan in plans)
            self._least_bytes = min(self._least_bytes or least, least)
            left = (self.covers.memory_bytes or 0) - (least - limit)
            if left < 0:
                raise MemoryExceeded(self._no_room())
            self.covers.memory_bytes = left
        return fitting

    def _no_room(self) -> str:
        least = self._least_bytes or self.covers.least_bytes or 0
        limit = f"at most {self.memory_bytes:,} bytes of temporaries"
        return f"no plan was found that needs {limit}; the least that was found needs {least:,}"

    def _best(self) -> Proposal:
        """The best cover by measurements; without enough of them, by predictions. Raises NoPlan."""
        if self.ledger.logs.opened:
            best = self.covers.measured() or self.covers.cheapest(self.ledger.model.predictions.times(DOUBT))
        else:  # nothing is known of any
            best = self.covers.cheapest(self.ledger.model.predictions)
        if not best and self.covers.least_bytes is not None:
            raise MemoryExceeded(self._no_room())
        if not best and len(self.atoms):
            if not self.unfused or not self._is_usable(self.unfused):
                raise self._none()
            return self._without_others()
        return best

    def _without_others(self) -> Proposal:
        """The unfused graph, for want of another cover."""
        self.notes = [n for n in self.notes if n.text != UNFUSED]
        self.notes.append(Reason(kind="note", text=UNFUSED))
        return self.unfused

    def _is_usable(self, proposal: Proposal) -> bool:
        """Whether each of its segments has a kernel that did not fail."""
        return all(self.ledger.choice(c) is not None for c in proposal)

    def _proposals(self) -> list[Proposal]:
        """The best cover, what is best by measurements without one of its segments, and the unfused graph."""
        best = self._best()
        dearest = sorted(best, key=lambda c: -self._us(c))[: self.count + 1]
        others = {p for c in dearest if (p := self.covers.measured(without=(c,)))}
        ranked = sorted(others, key=lambda p: (sum(map(self._us, p)), len(p), [c.segment.piece for c in p]))
        room = 1 if self.deadline.is_late and self.early else self.count - 1
        proposals = [best, *ranked[:room]]
        if self.unfused and self._is_usable(self.unfused) and not any(map(self.is_unfused, proposals)):
            proposals.append(self.unfused)
        return proposals

    def is_unfused(self, proposal: Proposal) -> bool:
        """Whether the proposal runs the same kernels as the unfused graph."""
        keys = [sorted(c.segment.key for c in p) for p in (proposal, self.unfused)]
        return bool(proposal) and keys[0] == keys[1]

    def _us(self, candidate: Candidate) -> float:
        return candidate.weight * self.ledger.cost_us(candidate, self.ledger.model.predicted_us)

    def _none(self) -> NoPlan:
        """The exception that says what failed for the first atom that no kernel computes."""
        for a, node in enumerate(self.atoms.plain.nodes):
            single = self.found.whole(1 << a)
            if single is None:
                return NoPlan(f"no family accepts {node}")
            if self.ledger.choice(single) is None:
                return unusable(node, self.ledger.failures(single))
        return NoPlan("the accepted segments make no cover")

    def time(self, plans: list[tuple[Proposal, Plan]]) -> list[tuple[Proposal, Plan]]:
        """Plans that passed end to end, the winner first: the one with fewest steps unless another is clearly faster;
        or, where nobody timed its kernels before, faster at all.

        Raises NoPlan where none passed.
        """
        if self.bench is None or not any(p.steps for _, p in plans):
            return plans
        plans = sorted(plans, key=lambda entry: len(entry[1].steps))  # what others are compared with comes first
        late_s = 0.0 if self.early else _clear_s(plans)
        seconds = max(self.deadline.end - self.deadline.clock(), LEAST_PLANS_S, late_s)
        known = {tuple(_kernel_of(s) for s in plan.steps) for _, plan in plans}
        plans += [(p, e) for p, e in self.early[:1] if tuple(_kernel_of(s) for s in e.steps) not in known]
        passed = self._passing(plans, seconds, self.deadline.end) or self._by_steps(plans)
        if not passed:
            raise self._refused()
        self.timed = self._ranked(passed)
        return self.timed

    def _refused(self) -> NoPlan:
        """The exception for plans that all failed, by the fault of the wrong one of the most steps, which is the
        unfused one where that was made."""
        return refused(self.prepared.given, self._wrong[1], "; ".join(n.text for n in self.notes if n.kind == "note"))

    def _passing(self, plans: Sequence[tuple[Proposal, Plan]], seconds: float, end: float = 0.0) -> list[Timed]:
        """Plans that pass their check, with their times. end: until then they may be timed again."""
        assert self.bench is not None
        self.unfused_us = None
        self.whole = measure_whole(
            self.bench, self.prepared.given, [plan for _, plan in plans], seed=self.ledger.seed, seconds=seconds,
            left=lambda: end - self.deadline.clock(),
        )  # fmt: skip
        results = self.whole.results
        passed: list[Timed] = []
        for (proposal, plan), result in zip(plans, results, strict=True):
            if result.status is not Status.ok or not result.samples_us:
                kernels = ", ".join(f"{s.family} {s.schedule}" for s in plan.steps)
                self.notes.append(Reason(kind="note", text=f"plan {kernels}: {result.status.value}: {result.detail}"))
                if result.status is Status.wrong_result:
                    self._wrong = max(self._wrong, (len(plan.steps), result.detail))
                continue
            if self.is_unfused(proposal):
                time_us = median(result.samples_us)
                self.unfused_us = min(time_us, self.unfused_us or time_us)
            passed.append((proposal, plan.model_copy(update=times(result)), result))
        return passed

    def _by_steps(self, plans: Sequence[tuple[Proposal, Plan]]) -> list[Timed]:
        """The unfused plan, where that one agrees step by step: of plans of which none agrees as a whole."""
        assert self.bench is not None
        seed = self.ledger.seed
        for proposal, plan in plans if self._wrong[1] else ():
            if self.is_unfused(proposal):
                meanings = meanings_of(self.prepared, [c.segment for c in proposal])
                result = self.bench.measure_by_steps(
                    self.prepared.given, plan, meanings, seed=seed, seconds=LEAST_PLANS_S
                )
                if result.status is Status.ok and result.samples_us:
                    self.notes.append(Reason(kind="note", text=BY_STEPS))
                    self.unfused_us = median(result.samples_us)
                    found = {**times(result), "max_rel_error": None, "judged_by_steps": True}
                    return [(proposal, plan.model_copy(update=found), result)]
                self.notes.append(Reason(kind="note", text=f"step by step: {result.status.value}: {result.detail}"))
        return []

    def _ranked(self, passed: Sequence[Timed]) -> list[tuple[Proposal, Plan]]:
        """The winner first; notes where it is no clear one."""
        order, note = ranked(passed, self.is_unfused)
        if order:  # of the last race alone
            self._unclear = [note] if note else []
        return [(proposal, plan) for proposal, plan, _ in order]

    def unfused_losers(self) -> list[Plan]:
        """The plan of the unfused graph where it was timed and is not the winner; nothing otherwise."""
        return [plan for proposal, plan in self.timed[1:] if self.is_unfused(proposal)]

    def decide(self, plans: list[tuple[Proposal, Plan]], complete: bool) -> Plan:
        """The first of the plans, with bound, gap, reasons and what the search saw."""
        proposal, plan = plans[0]
        outcome = SearchOutcome([*self.notes, *self._unclear], self.whole, len(self.timed), self.unfused_us)
        return decided(self.maker, self.covers, proposal, plan, outcome, complete=complete)


def _kernel_of(step: Step) -> tuple[str, str, str]:
    return step.segment_key, step.family, step.schedule


def _clear_s(plans: Sequence[tuple[Proposal, Plan]]) -> float:
    """Seconds of a race of plans until differences are clear, by what the plans should take; no more than
    MOST_LATE_S."""
    needed = ROUNDS * sum(plan.time_us or plan.predicted_us or 0.0 for _, plan in plans) / 1e6
    return min(needed, MOST_LATE_S)
