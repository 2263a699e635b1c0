"""Measuring: races of segments, cover by cover, until nothing is left that could be part of a cheaper one."""

from collections.abc import Sequence
from functools import partial

from scheduler.cover.alternative_covers import forms
from scheduler.cover.oracle import FAR, CoverOracle, Proposal
from scheduler.deadline import Deadline
from scheduler.segments.enumeration import Candidate
from scheduler.tuning.trials import Ledger


class Measuring:
    """batch: schedules of one segment that are raced together."""

    def __init__(self, covers: CoverOracle, ledger: Ledger, deadline: Deadline, batch: int) -> None:
        self.covers, self.ledger, self.deadline, self.batch = covers, ledger, deadline, batch

    def improve(self) -> bool:
        """Measures what may lead to a better cover, until there is no time. Whether nothing is left that could."""
        while not self.deadline.is_over():
            refined = self._refine(self.covers.measured())
            learned = self.measure(self.covers.promising())
            if not (refined or learned):
                extended = self._extend(self.covers.measured())
                probed = self.measure(self.covers.cheapest(self.ledger.model.bounds))
                if not (extended or probed):
                    return True
        return False

    def measure(self, cover: Proposal) -> bool:
        """Gets every segment of the cover a first measured time, or each that there is time for. Whether anything was
        learned, or time ran out first."""
        learned, left_out = False, False
        waiting = sorted(cover, key=lambda c: c.is_prologue)  # what every run takes comes first
        while waiting:
            if self.deadline.is_over():
                return True
            candidate = waiting.pop(0)
            learned = learned or not self.ledger.logs.is_open(candidate)
            entry = self.ledger.logs.open(candidate)
            while entry.best() is None and entry.pending:
                if self.deadline.is_over():
                    return True
                waiting = [c for c in waiting if self.ledger.time_us(c) is None]
                if not self._race(candidate, self.ledger.hopeful(candidate), waiting):
                    left_out = True
                    break
                learned = True
        if left_out:
            self.deadline.finish()
        return learned or left_out

    def measure_alternatives(self) -> None:
        """Where a tensor of the best cover can be computed in several ways, gets the best cover of another way
        measured, too, unless it is predicted to be far from the best: predictions of different products are far
        apart."""
        best = self.covers.measured()
        best_us = self.covers.us(best)
        for form in forms(self.covers.found.atoms, best, self.covers, self.ledger):
            if self.covers.us(form.other) <= FAR * best_us:
                self.measure(form.other)

    def _refine(self, cover: Proposal) -> bool:
        """Tries more schedules on the segment of the cover that may gain most, of those that have any left. Whether
        there was one."""
        if cover:
            self.deadline.best_us = sum(self.ledger.time_us(c) or 0.0 for c in cover if not c.is_prologue)
        waiting = [c for c in self._by_gain(cover) if self.ledger.has_more(c)]
        for candidate in waiting:
            self.ledger.draw_on_others(candidate)
            if self._race(candidate, self.batch):
                return True
        if waiting:
            self.deadline.finish()
        return bool(waiting)

    def _extend(self, cover: Proposal) -> bool:
        """`_refine` with schedules that no family named, for a segment that may gain from them."""
        promising = next(
            (c for c in self._by_gain(cover) if self.ledger.extend(c, self.batch, self.deadline.is_over)), None
        )
        if promising is None or self.deadline.is_over():
            return False
        if not self._race(promising, self.batch):
            self.deadline.finish()
        return True

    def _race(self, candidate: Candidate, most: int, then: Sequence[Candidate] = ()) -> bool:
        """Measures pending schedules of a segment, as many as there is time for. Whether there was any. then: as in
        `Ledger.measure`."""
        count = self.deadline.affordable(partial(self.ledger.race_seconds, candidate), most)
        if count:
            self.ledger.measure(candidate, count, then, self.deadline.is_over)
        self.deadline.tell("segments", self.ledger.measured)
        return count > 0

    def play_off(self, cover: Proposal) -> None:
        """Settles near ties among the schedules of the cover's segments, those that take longest first."""
        for candidate in sorted(cover, key=lambda c: -(self.ledger.time_us(c) or 0.0)):
            if self.deadline.is_time_for_plans():
                return
            self.ledger.play_off(candidate)

    def _by_gain(self, cover: Proposal) -> list[Candidate]:
        """Segments of the cover, largest possible gain first: their time beyond their lower bound."""
        return sorted(cover, key=lambda c: c.weight * (self.ledger.model.bound_us(c) - (self.ledger.time_us(c) or 0.0)))
