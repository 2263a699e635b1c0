"""Covers of one graph by what its candidates cost at the moment."""

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache

from scheduler.atoms import Atoms
from scheduler.candidates import Candidate, Candidates
from scheduler.cover import Cover, CoverProblem, NoRoom, Producers
from scheduler.least import Least
from scheduler.ledger import Ledger
from scheduler.piece import Piece
from scheduler.pieces import writing_less
from scheduler.predictor import Estimate
from scheduler.watch import Watch

FAR = 2.0  # times the best prediction
CLOSER_LOOKS = 48
SHARE = 0.25  # of the time of one cover, for what alternatives bring beyond the best without them
MANY, GAP = 1_000, 1e-3  # of so many pieces, no cover is sought that is better by less than that
NEARLY = 1.005  # predictions are further off
FORBIDDEN = Estimate(lambda _: math.inf, lambda _: math.inf)

Proposal = tuple[Candidate, ...]  # segments in execution order, those of the prologue first


def prologue_first(segments: Iterable[Candidate]) -> Proposal:
    """Segments in execution order, with those in front that run once for each version of the constants."""
    return tuple(sorted(segments, key=lambda c: not c.is_prologue))


def _problem(atoms: Atoms, watch: Watch) -> CoverProblem:
    producers = Producers(atoms.preds, atoms.stands, atoms.outputs)
    return CoverProblem(producers, [node.bytes for node in atoms.nodes], clock=watch.clock)


class Covers:
    """`cover_s`: seconds that branching may take for one answer. Costs are of one run: a prologue's are
    next to nothing. `memory_bytes`: of temporaries that covers may need, None for any number; where none of those asked
    for keeps to it, `least_bytes` is what the least of them needs."""

    def __init__(
        self,
        atoms: Atoms,
        found: Candidates,
        ledger: Ledger,
        watch: Watch,
        cover_s: float,
        memory_bytes: int | None = None,
    ) -> None:
        self.found = found
        self.usable = {p: c for p, c in found.accepted.items() if not c.keeps_a_prologue_out}
        self.ledger = ledger
        self.watch = watch
        self.cover_s = cover_s
        self.memory_bytes = memory_bytes
        self.least_bytes: int | None = None
        self.problem = _problem(atoms, watch)
        self._own_problem = _problem(atoms.plain, watch)
        self.least = Least(atoms)
        self._own = {p for p in self.usable if atoms.is_own(p)}  # what there would be without alternatives
        self._others = len(self._own) < len(self.usable)
        self._plain = {p.members: c for p, c in self.usable.items() if atoms.is_plain(p)}
        self._looked_at: set[Piece] = set()  # were part of a solution: their costs tell them apart
        self.exact = True  # whether all answers so far were, up to the gap

    def cheapest(self, unknown: Estimate, without: Collection[Candidate] = ()) -> Proposal:
        """The cheapest cover where unmeasured candidates cost `unknown`; () if there is none (or nothing to do). Where
        none has temporaries within the limit, the one found that takes least."""
        cover = self._solve(unknown, without)
        return prologue_first(self.usable[p] for p in cover.pieces) if cover else ()

    def promising(self) -> Proposal:
        """The cheapest cover by predictions, which closer looks can only raise: until the best one that was looked at
        is nearly as good as any that was not."""
        best, best_us = self._first(self.ledger.predictions), math.inf
        cover = best
        for _ in range(CLOSER_LOOKS):
            if self.us(cover) >= best_us / NEARLY:
                break
            for candidate in cover:
                self.ledger.look_closer(candidate)
            if (us := self.us(cover)) < best_us:
                best, best_us = cover, us
            if not self.exact:  # branching again would take as long, and prove nothing either
                break
            cover = self._first(self.ledger.predictions)
        if self._others:
            cover = self.cheapest(self.ledger.predictions)
            for candidate in cover:
                self.ledger.look_closer(candidate)
            if self.us(cover) < best_us:
                best = cover
        return best

    def _first(self, unknown: Estimate) -> Proposal:
        """The cheapest cover; where there are alternatives, the cheapest without them, which takes less time."""
        cover = self._solve(unknown, (), self._own) if self._others else self._solve(unknown, ())
        return prologue_first(self.usable[p] for p in cover.pieces) if cover else ()

    def us(self, cover: Proposal) -> float:
        """What a cover costs, by what is measured or predicted."""
        return sum(c.weight * self.ledger.cost_us(c, self.ledger.predicted_us) for c in cover)

    def cheapest_us(self, unknown: Estimate) -> float | None:
        """What that cover costs, None if there is none."""
        cover = self._solve(unknown, ())
        return cover and cover.cost_us

    def relaxed_us(self, unknown: Estimate) -> float:
        """What no cover by these candidates is below; infinite if there is none."""
        cover = self._solve(unknown, ())
        return cover.lower_us if cover else math.inf

    def coarsest(self) -> Proposal:
        """The partition of fewest segments found by merging, unless it is predicted to be far from the best."""
        usable = [r for r in self.found.regions if all(s in self._plain for s in r)]
        best_us = self.cheapest_us(self.ledger.predictions)
        for partition in usable:
            segments = prologue_first(self._plain[s] for s in partition)
            if best_us is not None and sum(c.weight * self.ledger.predicted_us(c) for c in segments) <= FAR * best_us:
                return segments
        return ()

    def measured(self, without: Collection[Candidate] = ()) -> Proposal:
        """The cheapest cover by measured segments alone."""
        return self.cheapest(FORBIDDEN, without)

    def _solve(
        self, unknown: Estimate, without: Collection[Candidate], among: Collection[Piece] | None = None
    ) -> Cover | None:
        """Candidates cost the least that they can, by the bytes that they move, until they are part of a solution; then
        what they do. When all of those in it do, it is the cheapest: others cost more than in this comparison."""
        usable = {p: c for p, c in self.usable.items() if c not in without and (among is None or p in among)}
        vague = {p for p, c in usable.items() if p not in self._looked_at and not self.ledger.is_open(c)}
        least_us = cache(unknown.least_us)

        def cost_us(piece: Piece) -> float:
            candidate = usable[piece]
            vaguely = piece in vague
            return candidate.weight * (
                least_us(self.least.bytes(piece)) if vaguely else self.ledger.cost_us(candidate, unknown.us)
            )

        def look(pieces: Collection[Piece]) -> dict[Piece, float]:
            new = vague.intersection(pieces)
            vague.difference_update(new)
            self._looked_at |= new
            return {p: cost_us(p) for p in new}

        plain = self._solve(unknown, without, self._own) if self._others and among is None else None
        start = plain.pieces if plain else ()
        costs = {p: cost_us(p) for p in usable}
        problem = self.problem if among is None else self._own_problem
        gap = GAP if len(usable) > MANY else 0.0
        try:
            most_s = SHARE * self.cover_s if start else self.cover_s
            cover = problem.solve(costs, most_s, look, self.memory_bytes, start=start, gap=gap)
        except NoRoom as error:
            self.least_bytes = error.cover.peak_bytes
            return None
        if cover and self._once_each(cover.pieces):
            return self._solve(unknown, without, among)
        if cover and not cover.exact:  # out of time, it may have what was not looked at
            look(cover.pieces)
            cover = replace(cover, cost_us=math.fsum(map(cost_us, cover.pieces)))
            if plain and plain.cost_us <= cover.cost_us:
                cover = replace(plain, lower_us=min(plain.lower_us, cover.lower_us), exact=False)
        self.exact &= cover is None or cover.exact or cover.lower_us >= cover.cost_us * (1 - 2 * gap)
        return cover

    def _once_each(self, pieces: Iterable[Piece]) -> bool:
        """Where two segments of a cover write the same tensor, makes the later one without it a candidate. Whether
        there are new ones."""
        new = False
        written = 0
        for piece in pieces:
            if piece.writes & written:
                less = writing_less(self.found.atoms, piece, piece.writes & ~written)
                if less not in self.found.accepted and isinstance(answer := self.found.ask(less), Candidate):
                    self.found.accepted[less] = self.usable[less] = answer
                    new = True
            written |= piece.writes
        return new
