"""Covers of one graph by what its candidates cost at the moment."""

import math
from collections.abc import Callable, Collection

from scheduler.atoms import Atoms
from scheduler.candidates import Candidate, Candidates
from scheduler.cover import Cover, CoverProblem
from scheduler.ledger import Ledger
from scheduler.watch import Watch

FAR = 2.0  # times the best prediction
CLOSER_LOOKS = 48

Proposal = tuple[Candidate, ...]  # segments in execution order


class Covers:
    """`cover_s`: seconds that one run of the partition programme may take."""

    def __init__(self, atoms: Atoms, found: Candidates, ledger: Ledger, watch: Watch, cover_s: float) -> None:
        self.found = found
        self.ledger = ledger
        self.watch = watch
        self.cover_s = cover_s
        self.problem = CoverProblem(atoms.preds, clock=watch.clock)
        self.exact = True  # whether all answers so far were

    def cheapest(self, unknown: Callable[[Candidate], float], without: Collection[Candidate] = ()) -> Proposal:
        """The cheapest cover where an unmeasured candidate costs `unknown(candidate)`; () if there is none (or nothing
        to do)."""
        cover = self._solve(unknown, without)
        return tuple(self.found.accepted[s] for s in cover.segments) if cover else ()

    def promising(self) -> Proposal:
        """The cheapest cover by predictions, looked at more closely until that changes none of its segments'."""
        cover = self.cheapest(self.ledger.predicted_us)
        for _ in range(CLOSER_LOOKS):
            closer = [self.ledger.look_closer(c) for c in cover]
            if not any(closer):
                break
            cover = self.cheapest(self.ledger.predicted_us)
        return cover

    def cheapest_us(self, unknown: Callable[[Candidate], float]) -> float | None:
        """What that cover costs, None if there is none."""
        cover = self._solve(unknown, ())
        return cover and cover.cost_us

    def coarsest(self) -> Proposal:
        """The partition of fewest segments found by merging, unless it is predicted to be far from the best."""
        usable = [r for r in self.found.regions if all(s in self.found.accepted for s in r)]
        best_us = self.cheapest_us(self.ledger.predicted_us)
        for partition in usable:
            segments = tuple(self.found.accepted[s] for s in partition)
            if best_us is not None and sum(map(self.ledger.predicted_us, segments)) <= FAR * best_us:
                return segments
        return ()

    def measured(self, without: Collection[Candidate] = ()) -> Proposal:
        """The cheapest cover by measured segments alone."""
        return self.cheapest(lambda _: math.inf, without)

    def _solve(self, unknown: Callable[[Candidate], float], without: Collection[Candidate]) -> Cover | None:
        costs = {m: self.ledger.cost_us(c, unknown) for m, c in self.found.accepted.items() if c not in without}
        cover = self.problem.solve(costs, self.watch.clock() + self.cover_s)
        if cover is not None and not cover.exact:
            self.exact = False
        return cover
