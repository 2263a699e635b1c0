"""Covers of one graph by what its candidates cost at the moment."""

import math
from collections.abc import Collection, Iterable
from functools import cache

from scheduler.atoms import Atoms
from scheduler.candidates import Candidate, Candidates
from scheduler.cover import Cover, CoverProblem
from scheduler.least import Least
from scheduler.ledger import Estimate, Ledger
from scheduler.watch import Watch

FAR = 2.0  # times the best prediction
CLOSER_LOOKS = 48
LOOKS = 50  # covers, after which all candidates' costs are taken
FORBIDDEN = Estimate(lambda _: math.inf, lambda _: math.inf)

Proposal = tuple[Candidate, ...]  # segments in execution order, those of the prologue first


def prologue_first(segments: Iterable[Candidate]) -> Proposal:
    """Segments in execution order, with those in front that run once for each version of the constants."""
    return tuple(sorted(segments, key=lambda c: not c.is_prologue))


class Covers:
    """`cover_s`: seconds that the partition programme may take for one answer. Costs are of one run: a prologue's are
    next to nothing."""

    def __init__(self, atoms: Atoms, found: Candidates, ledger: Ledger, watch: Watch, cover_s: float) -> None:
        self.found = found
        self.usable = {
            p.members: c for p, c in found.accepted.items() if atoms.is_plain(p) and not c.keeps_a_prologue_out
        }
        self.ledger = ledger
        self.watch = watch
        self.cover_s = cover_s
        self.problem = CoverProblem(atoms.plain.preds, clock=watch.clock)
        self.least = Least(atoms)
        self.atoms = atoms
        self._looked_at: set[int] = set()  # members of candidates that were in a cover: their costs tell them apart
        self.exact = True  # whether all answers so far were

    def cheapest(self, unknown: Estimate, without: Collection[Candidate] = ()) -> Proposal:
        """The cheapest cover where unmeasured candidates cost `unknown`; () if there is none (or nothing to do)."""
        cover = self._solve(unknown, without)
        return prologue_first(self.usable[s] for s in cover.segments) if cover else ()

    def promising(self) -> Proposal:
        """The cheapest cover by predictions, which closer looks can only raise: until the best one that was looked at
        is as good as any that was not."""
        best, best_us = self.cheapest(self.ledger.predictions), math.inf
        cover = best
        for _ in range(CLOSER_LOOKS):
            if self._predicted_us(cover) >= best_us:
                break
            for candidate in cover:
                self.ledger.look_closer(candidate)
            if (us := self._predicted_us(cover)) < best_us:
                best, best_us = cover, us
            if not self.exact:  # another beam would take as long again, and prove nothing either
                break
            cover = self.cheapest(self.ledger.predictions)
        return best

    def _predicted_us(self, cover: Proposal) -> float:
        return sum(c.weight * self.ledger.cost_us(c, self.ledger.predicted_us) for c in cover)

    def cheapest_us(self, unknown: Estimate) -> float | None:
        """What that cover costs, None if there is none."""
        cover = self._solve(unknown, ())
        return cover and cover.cost_us

    def relaxed_us(self, unknown: Estimate) -> float:
        """What no cover by these candidates is below, from each atom's cheapest share of one alone: of those that were
        not in a cheapest cover yet, as much as they cost at the least."""
        return self.problem.relaxed_us(
            {
                m: c.weight
                * (
                    self.ledger.cost_us(c, unknown.us)
                    if m in self._looked_at or self.ledger.is_open(c)
                    else unknown.least_us(self.least.bytes(self.atoms.piece(m)))
                )
                for m, c in self.usable.items()
            }
        )

    def coarsest(self) -> Proposal:
        """The partition of fewest segments found by merging, unless it is predicted to be far from the best."""
        usable = [r for r in self.found.regions if all(s in self.usable for s in r)]
        best_us = self.cheapest_us(self.ledger.predictions)
        for partition in usable:
            segments = prologue_first(self.usable[s] for s in partition)
            if best_us is not None and sum(c.weight * self.ledger.predicted_us(c) for c in segments) <= FAR * best_us:
                return segments
        return ()

    def measured(self, without: Collection[Candidate] = ()) -> Proposal:
        """The cheapest cover by measured segments alone."""
        return self.cheapest(FORBIDDEN, without)

    def _solve(self, unknown: Estimate, without: Collection[Candidate]) -> Cover | None:
        """Candidates cost the least that they can, by the bytes that they move, until they are in the cheapest cover;
        then what they do. When all of those in it do, it is the cheapest: others cost more than in this comparison."""
        usable = {m: c for m, c in self.usable.items() if c not in without}
        vague = {m for m, c in usable.items() if m not in self._looked_at and not self.ledger.is_open(c)}
        least_us = cache(unknown.least_us)
        costs = {
            m: c.weight
            * (least_us(self.least.bytes(self.atoms.piece(m))) if m in vague else self.ledger.cost_us(c, unknown.us))
            for m, c in usable.items()
        }
        looks, left_s = 0, self.cover_s
        while True:
            looks += 1
            started = self.watch.clock()
            cover = self.problem.solve(costs, started + left_s)
            left_s -= self.watch.clock() - started
            if cover is None:
                return None
            one_by_one = cover.exact and looks < LOOKS  # a beam proves nothing, and takes seconds
            new = vague.intersection(cover.segments) if one_by_one else set(vague)
            if not new:
                break
            costs.update((m, usable[m].weight * self.ledger.cost_us(usable[m], unknown.us)) for m in new)
            vague -= new
            self._looked_at |= new
        self.exact &= cover.exact
        return cover
