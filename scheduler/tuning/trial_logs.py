"""Trial logs of segments by key, each opened with what earlier searches measured."""

import math
from collections.abc import Collection, Container, Mapping, Sequence

from codegen.kernel import Family, offers
from codegen.schedule import Variant
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Measurement, Status
from scheduler.cost.model import CostModel
from scheduler.interfaces import Costs
from scheduler.segments.acceptor import SHARES_NOTHING
from scheduler.segments.enumeration import Candidate
from scheduler.tuning.trial_log import TrialLog, races, variant_of

HOPEFUL = 3.0  # times the fastest family's prediction
HOPELESS = 3.0  # times the winner's time, or what any family's bound is, that a family's bound is


class TrialLogs:
    """Looks up, once for each key, what is stored of a segment, and corrects the model by it."""

    def __init__(self, device: Device, families: Mapping[str, Family], costs: Costs, model: CostModel) -> None:
        self.device, self.families, self.costs, self.model = device, families, costs, model
        self.acceptor = model.acceptor
        self._entries: dict[str, TrialLog] = {}
        self._opened: dict[Candidate, TrialLog] = {}
        self._new: set[str] = set()  # keys of segments that no earlier search tried, as far as was looked

    def of_key(self, segment_key: str) -> TrialLog | None:
        """The log of a segment that was opened."""
        return self._entries.get(segment_key)

    def log_of(self, candidate: Candidate) -> TrialLog | None:
        """The log of a candidate that was opened."""
        return self._opened.get(candidate)

    def open(self, candidate: Candidate) -> TrialLog:
        """The trial log of the candidate; the first call for its key looks up what earlier searches measured."""
        entry = self._opened.get(candidate)
        if entry is None:
            key = candidate.segment.key
            if key not in self._entries:
                self._entries[key] = self._entry(candidate)
            entry = self._opened[candidate] = self._entries[key]
        return entry

    def look_up(self, candidate: Candidate) -> None:
        """Opens the candidate where earlier searches measured its segment: that counts."""
        if candidate not in self._opened and self.costs.known(candidate.segment.key):
            self.open(candidate)

    def is_new(self, candidate: Candidate) -> bool:
        """Whether nothing was tried on its segment, here or by earlier searches."""
        key = candidate.segment.key
        if key not in self._entries and key not in self._new and not self.costs.known(key):
            self._new.add(key)
        return key not in self._entries and key in self._new

    @property
    def opened(self) -> Collection[Candidate]:
        """Candidates whose trial logs were looked up."""
        return self._opened.keys()

    def is_open(self, candidate: Candidate) -> bool:
        return candidate in self._opened

    def _entry(self, candidate: Candidate) -> TrialLog:
        """Pending: each family's default, fastest prediction first, then the rest of their spaces; last the families
        that are predicted to be far slower than the fastest, and behind these that which shares nothing."""
        us = {
            f: math.inf if f == SHARES_NOTHING else self.model.uncorrected_us(candidate, f) for f in candidate.families
        }
        families = sorted(us, key=us.__getitem__)
        spaces = {f: self.acceptor.first_schedules(candidate.segment, f) for f in families}
        defaults = [(f, space[0]) for f, space in spaces.items() if space]
        rest = [(f, schedule) for f, space in spaces.items() for schedule in space[1:]]
        far = {f for f in families if us[f] > HOPEFUL * us[families[0]]}
        variants = dict.fromkeys(sorted((*defaults, *rest), key=lambda v: v[0] in far))
        known = self._known(candidate, variants)
        elsewhere = TrialLog([])  # times of another machine or compiler say what to try first, and no more
        for race in races(m for m in known if not self._is_of_here(m)):
            elsewhere.note(race)
        entry = TrialLog(list(dict.fromkeys((*([elsewhere.winner] if elsewhere.winner else ()), *variants))))
        for race in races(m for m in known if self._is_of_here(m)):
            entry.note(race)
        self.leave_hopeless(candidate, entry)
        self.learn(candidate, tuple(entry.tried.values()))
        return entry

    def leave_hopeless(self, candidate: Candidate, entry: TrialLog) -> None:
        """Schedules of families that cannot beat what was measured are not tried: one that shares nothing may take a
        thousand times as long, and seconds to be checked."""
        best = entry.best()
        if best is None or best.time_us is None:
            return
        limit_us = HOPELESS * max(best.time_us, self.model.bound_us(candidate))
        hopeless = {f for f, _ in entry.pending if self.model.family_bound_us(candidate, f) > limit_us}
        entry.pending[:] = [v for v in entry.pending if v[0] not in hopeless]

    def _known(self, candidate: Candidate, variants: Container[Variant]) -> list[Measurement]:
        """Stored measurements of schedules that can still be chosen."""
        graph = candidate.segment.canonical.graph
        rows = [m for m in self.costs.known(candidate.segment.key) if m.device_key == self.device.class_key]
        return [m for m in rows if self._is_schedule(graph, m, variants)]

    def catch_up(self, candidate: Candidate) -> None:
        """Takes in what searches in other processes measured since."""
        entry = self.open(candidate)
        known = self._known(candidate, (*entry.pending, *entry.tried))
        for race in races(m for m in known if m.race and m.race not in entry.races and self._is_of_here(m)):
            self.learn(candidate, [m for m in race if variant_of(m) not in entry.tried])
            entry.note(race)

    def _is_of_here(self, m: Measurement) -> bool:
        """Whether it would be measured the same way now."""
        return not m.origin and (m.toolchain, m.driver) == (self.device.toolchain, self.device.driver)

    def _is_schedule(self, graph: Graph, m: Measurement, variants: Container[Variant]) -> bool:
        """Whether what was measured can still be chosen."""
        family = self.families.get(m.family)
        if family is None or variant_of(m) in variants:
            return family is not None
        return offers(family, graph, m.schedule, self.device)

    def learn(self, candidate: Candidate, rows: Sequence[Measurement]) -> None:
        """Notes how far off the predictions of families were."""
        for m in rows:
            if m.status is Status.ok and m.time_us is not None:
                self.model.correct(candidate, m.family, m.time_us)
