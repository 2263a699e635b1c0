"""Covers of one graph by what its candidates cost at the moment."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from scheduler.cost.model import Estimate
from scheduler.cost.optimistic import OptimisticCost
from scheduler.cover.solver import Cover, CoverProblem, NoRoom
from scheduler.deadline import Deadline
from scheduler.segments.atoms import Atoms
from scheduler.segments.enumeration import Candidate, Candidates
from scheduler.segments.output_sets import writing_less
from scheduler.segments.segment_mask import SegmentMask
from scheduler.tuning.trials import Ledger

FAR = 2.0  # times the best prediction
CLOSER_LOOKS = 48
LEAST_COVER_S = 0.1  # for branching where the budget is spent: the first solution, rounded, is what there is then
NEARLY = 1.005  # predictions are further off
SAME = 1.03  # times that differ by less are as noise has it
FORBIDDEN = Estimate(lambda _: math.inf, lambda _: math.inf, lambda _: math.inf)

Proposal = tuple[Candidate, ...]  # segments in execution order, those of the prologue first


def prologue_first(segments: Iterable[Candidate]) -> Proposal:
    """Segments in execution order, with those in front that run once for each version of the constants."""
    return tuple(sorted(segments, key=lambda c: not c.is_prologue))


def _nothing(_: Estimate) -> dict[SegmentMask, float]:
    return {}


class CoverOracle:
    """`cover_s`: seconds that branching may take for one answer, or those left `until` a time of the clock, if fewer.
    Costs are of one run, in which a prologue counts next to nothing. `memory_bytes`: limit of the temporaries of a
    cover, None for none; where no cover keeps to it, `least_bytes` is what the least one found needs."""

    def __init__(
        self,
        atoms: Atoms,
        found: Candidates,
        ledger: Ledger,
        deadline: Deadline,
        cover_s: float,
        memory_bytes: int | None = None,
        until: float = math.inf,
    ) -> None:
        self.found = found
        self.usable = {p: c for p, c in found.accepted.items() if not c.keeps_a_prologue_out}
        self.ledger = ledger
        self.deadline = deadline
        self.cover_s = cover_s
        self.memory_bytes = memory_bytes
        self.until = until
        self.least_bytes: int | None = None
        self.problem = CoverProblem(
            atoms.hypergraph, [node.bytes for node in atoms.nodes], clock=deadline.clock, beat=deadline.look
        )
        self.least = OptimisticCost(atoms)
        self._plain = {p.members: c for p, c in self.usable.items() if atoms.is_plain(p)}
        self._looked_at: set[SegmentMask] = set()  # were part of a solution: their costs tell them apart
        self._vaguely = lru_cache(maxsize=3)(_nothing)  # the least that pieces cost, by estimate
        self._asked: set[SegmentMask] = set()  # were part of a cover: families said that they accept them
        self._struck: set[SegmentMask] = set()  # are left out of covers
        self.exact = True  # whether all answers so far were

    def cheapest(self, unknown: Estimate, without: Collection[Candidate] = ()) -> Proposal:
        """The cheapest cover where unmeasured candidates cost `unknown`, by candidates other than `without`. () if
        there is none, or nothing to do; also where none has temporaries within the limit, which sets `least_bytes`."""
        cover = self._solve(unknown, without)
        return prologue_first(self.usable[p] for p in cover.pieces) if cover else ()

    def promising(self) -> Proposal:
        """The cheapest cover by predictions. The segments of the cheapest one are predicted more closely, which can
        only raise its cost, until the best cover so predicted is nearly as cheap as any other."""
        best, best_us = self.cheapest(self.ledger.model.predictions), math.inf
        cover = best
        for _ in range(CLOSER_LOOKS):
            if self.us(cover) >= best_us / NEARLY:
                break
            for candidate in cover:
                self.ledger.look_closer(candidate)
            if (us := self.us(cover)) < best_us:
                best, best_us = cover, us
            if self.deadline.is_over():
                break
            if not self.exact:  # branching again would take as long, and prove nothing either
                break
            cover = self.cheapest(self.ledger.model.predictions)
        return best

    def us(self, cover: Proposal) -> float:
        """Cost of a cover in microseconds, by what is measured, or else predicted."""
        return sum(c.weight * self.ledger.cost_us(c, self.ledger.model.predicted_us) for c in cover)

    def cheapest_us(self, unknown: Estimate) -> float | None:
        """Cost in microseconds of the cover that `cheapest` finds; None if there is none."""
        cover = self._solve(unknown, ())
        return cover and cover.cost_us

    def strike_larger(self) -> None:
        """Leaves out of covers to come what holds all of a segment of several atoms that was in one and has no kernel:
        one by one, such segments turn out not to have any either, for as long as there are combinations."""
        tried = [p for p in self._asked if p.members.bit_count() > 1 and p in self.usable]
        failed = [p.members for p in tried if self.ledger.choice(self.usable[p]) is None]
        self._struck |= {p for p in self.usable if any(f & p.members == f for f in failed)}

    def relaxed_us(self, unknown: Estimate) -> float:
        """Lower bound in microseconds on the cost of any cover by these candidates; infinite if there is none."""
        cover = self._solve(unknown, ())
        return cover.lower_us if cover else math.inf

    def coarsest(self) -> Proposal:
        """The partition of fewest segments found by merging, unless it is predicted to be far from the best."""
        usable = [r for r in self.found.regions if all(s in self._plain for s in r)]
        best_us = self.cheapest_us(self.ledger.model.predictions)
        for partition in usable:
            segments = prologue_first(self._plain[s] for s in partition)
            if (
                best_us is not None
                and sum(c.weight * self.ledger.model.predicted_us(c) for c in segments) <= FAR * best_us
            ):
                return segments
        return ()

    def measured(self, without: Collection[Candidate] = ()) -> Proposal:
        """The cheapest cover by measured segments alone."""
        return self.cheapest(FORBIDDEN, without)

    def _solve(self, unknown: Estimate, without: Collection[Candidate]) -> Cover | None:
        """The cheapest cover; None if there is none. Costs are refined lazily: a lower bound by bytes and products at
        first, the estimate by families that seem to accept a segment once a solution of the relaxation holds it, the
        estimate by families that do accept it once a cover does. A cover whose costs are all of the last kind is the
        cheapest, since no segment outside it costs less than was assumed, unless time ran out."""
        end = self.deadline.clock() + self._seconds

        def look(pieces: Collection[SegmentMask]) -> dict[SegmentMask, float]:
            new = [p for p in pieces if p not in self._looked_at]
            self._looked_at.update(new)
            return {p: self._cost_us(p, unknown) for p in new}

        while True:
            try:
                left = max(end - self.deadline.clock(), LEAST_COVER_S)
                cover = self.problem.solve(self._costs(unknown, without), left, look, self.memory_bytes, self.until)
            except NoRoom as error:
                self.least_bytes = error.cover.peak_bytes
                return None
            if cover is None:
                self.exact = self.exact and self.deadline.clock() <= min(end, self.until)  # else none was found in time
                return None
            seeming = [self._cost_us(p, unknown) for p in cover.pieces]
            self._asked.update(cover.pieces)
            known = [self._cost_us(p, unknown) for p in cover.pieces]
            if known != seeming and (math.inf in known or (cover.exact and self.deadline.clock() < end)):
                continue
            cover = replace(cover, exact=cover.exact and known == seeming)
            if not self._once_each(cover.pieces):
                break
        if not cover.exact:  # out of time, it may have what was not looked at
            cover = replace(cover, cost_us=math.fsum(known))
        self.exact &= cover.exact
        return replace(cover, pieces=self._writing_what_is_read(cover.pieces, unknown))

    @property
    def _seconds(self) -> float:
        """Seconds that the next answer may take."""
        return min(self.cover_s, max(self.until - self.deadline.clock(), LEAST_COVER_S))

    def _costs(self, unknown: Estimate, without: Collection[Candidate]) -> dict[SegmentMask, float]:
        """Costs of pieces but `without` (us): lower bounds, refined for those that were looked at or tried by now."""
        vaguely = self._vaguely(unknown)
        for piece in self.usable.keys() - vaguely.keys() if len(vaguely) < len(self.usable) else ():
            vaguely[piece] = self.usable[piece].weight * unknown.least_us(self.least.traffic(piece))
        costs = vaguely.copy()
        opened = {c.families.piece for c in self.ledger.logs.opened}
        for piece in self._looked_at | (opened & self.usable.keys()):
            costs[piece] = self._cost_us(piece, unknown)
        for piece in (*self._struck, *(c.families.piece for c in without)):
            costs.pop(piece, None)
        return costs

    def _cost_us(self, piece: SegmentMask, unknown: Estimate) -> float:
        """Cost in microseconds of a piece that was looked at, or tried."""
        candidate = self.usable[piece]
        us = unknown.us if piece in self._asked or self.ledger.logs.is_open(candidate) else unknown.seeming_us
        return candidate.weight * self.ledger.cost_us(candidate, us)

    def _writing_what_is_read(self, pieces: Sequence[SegmentMask], unknown: Estimate) -> tuple[SegmentMask, ...]:
        """The cover without needless writes, unless that is dearer: of tensors that nothing reads before they are
        written again, and of tensors that an earlier segment wrote. Among pieces of equal predicted cost, bound by
        arithmetic for instance, the solver takes any, and out of time it has some that write what others do."""
        atoms, before = self.found.atoms, tuple[SegmentMask, ...]()
        cover = tuple(sorted(pieces, key=lambda p: not self.usable[p].is_prologue))  # as they will run
        while cover != before:  # what writes less may read less
            before, kept, live = cover, list[SegmentMask](), atoms.outputs
            for piece in reversed(cover):
                if needed := piece.writes & live:
                    kept.append(self._writing(piece, needed, unknown))
                    live = live & ~kept[-1].writes | atoms.reads_of(kept[-1].members)
            cover, written = (), 0
            for piece in reversed(kept):
                if needed := piece.writes & ~written:
                    cover += (self._writing(piece, needed, unknown),)
                    written |= piece.writes
        return cover

    def _writing(self, piece: SegmentMask, needed: int, unknown: Estimate) -> SegmentMask:
        """The segment that writes `needed` only; `piece` where that one is dearer, or no family accepts it."""
        if needed == piece.writes:
            return piece
        less = writing_less(self.found.atoms, piece, needed)
        if less not in self.found.accepted and (candidate := self.found.ask(less)):
            self.found.accepted[less] = self.usable[less] = candidate
        self._asked.add(less)
        is_there = less in self.usable and self._cost_us(less, unknown) <= SAME * self._cost_us(piece, unknown)
        return less if is_there else piece

    def _once_each(self, pieces: Iterable[SegmentMask]) -> bool:
        """Where two segments of a cover write one tensor, makes the later one without it a candidate. Returns whether
        there are new candidates."""
        new = False
        written = 0
        for piece in pieces:
            if piece.writes & written:
                less = writing_less(self.found.atoms, piece, piece.writes & ~written)
                if less not in self.found.accepted and (candidate := self.found.ask(less)):
                    self.found.accepted[less] = self.usable[less] = candidate
                    new = True
            written |= piece.writes
        return new
