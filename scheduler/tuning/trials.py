"""The ledger of candidates: what to try on each, what was measured, and what it costs until then."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from codegen.kernel import EmitError, Family, Kernel
from codegen.schedule import Variant
from fusion_ir.records import Cost, Device, Measurement, Status, Surroundings
from scheduler.cost.features import Tuned, expected_logs
from scheduler.cost.model import CostModel
from scheduler.interfaces import Bench, Costs
from scheduler.segments.enumeration import Candidate
from scheduler.tuning.proposals import proposals
from scheduler.tuning.schedule_space import ScheduleSpace
from scheduler.tuning.trial_log import variant_of
from scheduler.tuning.trial_logs import HOPEFUL, TrialLogs

MOST_AT_ONCE = 6  # schedules in a first race because they are compiled at no cost: each is checked, too
NEAR_BOUND = 1.1  # times a segment's lower bound: nothing is left to gain
NEAR_WINNER = 1.05  # times the winner's time: may have lost by chance
PLAY_OFF = 5  # schedules
MOST_AHEAD = 8  # kernels that are compiled before their races
ALIKE = 4  # schedules of a family that could not be emitted for one reason: the others are not tried
LIKELY = 4  # of a segment's, after its first race, that are compiled in case it goes on
AGAIN = 3  # schedules that are timed again in a race
PATIENCE = 24  # schedules in a row that do not win, before a segment is let be


# What a kernel does wherever it runs. That a compiler was given up on, or the device full, is said of one race: a plan
# with the same kernel, in a file of its own, was compiled and timed.
WRONG = frozenset({Status.wrong_result, Status.crashed, Status.timed_out})


class Ledger:
    """Costs of candidates by segment key, and the only place that measures them. `bench` None: nothing can be
    measured."""

    def __init__(
        self,
        device: Device,
        families: Mapping[str, Family],
        costs: Costs,
        bench: Bench | None,
        seed: int,
        sampler: str = "fuseplan",
    ) -> None:
        self.device = device
        self.families = families
        self.model = CostModel(device, families, costs.timed)
        self.acceptor = self.model.acceptor
        self.logs = TrialLogs(device, families, costs, self.model)
        self.costs = costs
        self.bench = bench
        self.seed = seed
        self.sampler = sampler
        self._others: dict[str, Sequence[Tuned]] = {}  # by family
        self._raced: set[str] = set()  # keys of segments, in this search
        self._spaces: dict[tuple[str, str], ScheduleSpace] = {}  # by segment and family
        self.races: list[Surroundings] = []  # the machine during each race of this search, where it says something
        self._statuses: dict[tuple[str, str, str], Status] = {}  # of what was tried here: segment, family, schedule

    @property
    def measured(self) -> int:
        """Kernels timed."""
        return sum(status is Status.ok for status in self._statuses.values())

    @property
    def failed(self) -> int:
        """Kernels that could not be used."""
        return len(self._statuses) - self.measured - self.dropped

    @property
    def dropped(self) -> int:
        """Kernels that compiled and were not worth timing by their compiler's report."""
        return sum(status is Status.dropped for status in self._statuses.values())

    def is_wrong(self, segment_key: str, variant: Variant) -> bool:
        """Whether a kernel ran here and did what it must not."""
        return self._statuses.get((segment_key, *variant)) in WRONG

    def variant_us(self, segment_key: str, variant: Variant) -> float | None:
        """Time of a schedule in us, measured here or by an earlier search whose rows were looked up; else None."""
        entry = self.logs.of_key(segment_key)
        row = entry.tried.get(variant) if entry else None
        return row.time_us if row and row.status is Status.ok else None

    def known(self, candidate: Candidate) -> Cost | None:
        """Its best time measured, or a prediction; None where all that could be tried failed. Looks nothing up."""
        us = self.cost_us(candidate, self.model.predicted_us)
        measured = candidate in self.logs.opened and self.time_us(candidate) is not None
        return Cost(us=us, measured=measured) if math.isfinite(us) else None

    def cost_us(self, candidate: Candidate, unknown: Callable[[Candidate], float]) -> float:
        """Best time measured; infinite where all that could be tried failed; else `unknown(candidate)`."""
        entry = self.logs.log_of(candidate)
        if entry is None:
            return unknown(candidate)
        best = entry.best()
        if best is not None:
            return best.time_us or 0.0
        return unknown(candidate) if entry.pending else float("inf")

    def look_closer(self, candidate: Candidate) -> bool:
        """See `CostModel`; of what was opened, measurements say more."""
        return candidate not in self.logs.opened and self.model.look_closer(candidate)

    def time_us(self, candidate: Candidate) -> float | None:
        """Best time measured, None if there is none."""
        best = None if self.logs.is_new(candidate) else self.logs.open(candidate).best()
        return best and best.time_us

    def hopeful(self, candidate: Candidate) -> int:
        """How many of what is pending should be in a segment's first race: families' defaults, which come first, that
        are predicted to be about as fast as the fastest (family by family, predictions are too coarse to tell them
        apart), and what is compiled beside them at no cost."""
        times = [self.model.uncorrected_us(candidate, f) for f in candidate.families]
        hopeful = sum(time <= HOPEFUL * min(times) for time in times)
        return max(hopeful, min(self.bench.at_once, MOST_AT_ONCE)) if self.bench else hopeful

    def race_seconds(self, candidate: Candidate, count: int) -> float:
        """Seconds that `measure` will take for `count` variants, as far as that is known; else 0."""
        if self.bench is None:
            return 0.0
        entry = self.logs.open(candidate)
        held = bool(entry.winner) + len(entry.doubted[:AGAIN])
        key, raced = candidate.segment.key, frozenset(self._raced)
        if key in raced:
            return self.bench.race_seconds(key, count + held)
        return self.bench.first_race_seconds(candidate.segment.canonical.graph, raced, count + held)

    def has_more(self, candidate: Candidate) -> bool:
        """Whether something is pending, or has to be timed again."""
        entry = self.logs.open(candidate)
        return bool(entry.pending or entry.doubted)

    def measure(
        self,
        candidate: Candidate,
        count: int,
        then: Sequence[Candidate] = (),
        is_late: Callable[[], bool] = lambda: False,
    ) -> int:
        """Tries the next `count` pending variants, and beside them the best so far (of times taken far apart, those of
        the machine's slower moments would lose) and what is doubted. How many kernels that were, new ones. then: whose
        first races are next, or () for more of this one. is_late: from when it says so on, no kernel is emitted but a
        first one: those of large segments take seconds."""
        if self.bench is None:
            return 0
        entry, segment = self.logs.open(candidate), candidate.segment
        with self.bench.turn(segment.key):
            self.logs.catch_up(candidate)
            kernels = self._next(candidate, count, is_late)
            if not kernels and not entry.doubted:
                return 0
            held = [self.kernel(candidate, v) for v in (entry.winner, *entry.doubted[:AGAIN]) if v]
            likely = max(count, LIKELY)
            upcoming = self._first_races(then, is_late) if then else self._upcoming(candidate, kernels, likely, is_late)
            self.bench.expect(upcoming)
            rows = self.bench.measure(segment.canonical.graph, segment.key, [*held, *kernels], seed=self.seed)
            self._raced.add(segment.key)
            self.logs.learn(candidate, [m for m in rows if variant_of(m) not in entry.tried])
            self._note(candidate, rows)
        return len(kernels)

    def play_off(self, candidate: Candidate) -> bool:
        """Times the best few schedules of a segment once more, against each other: they were in different races, and
        won by little. Whether there were several."""
        entry = self.logs.open(candidate)
        best = entry.relative.get(entry.winner) if entry.winner else None
        if best is None or self.bench is None:
            return False
        near = sorted(
            (t, v)
            for v, t in entry.relative.items()
            if v != entry.winner and (t <= NEAR_WINNER * best or v in entry.doubted)
        )
        if not any((candidate.segment.key, *v) in self._statuses for _, v in near):
            return False  # nothing is new since an earlier search
        kernels = [self.kernel(candidate, entry.winner)] if entry.winner else []
        for _, variant in near:
            if all(self.kernel(candidate, variant).identity != k.identity for k in kernels):
                kernels.append(self.kernel(candidate, variant))
        if len(kernels) < 2:
            return False
        segment = candidate.segment
        self._note(
            candidate,
            self.bench.measure(segment.canonical.graph, segment.key, kernels[:PLAY_OFF], seed=self.seed),
        )
        return True

    def _next(self, candidate: Candidate, count: int, is_late: Callable[[], bool]) -> list[Kernel]:
        """Kernels of pending variants: `count`, or all that there are, or as many as are emitted in time. They stay
        pending until they are noted, so that none is lost where the search is interrupted. What cannot be emitted is
        noted as such; what comes to a kernel that was tried takes over what is known of that."""
        entry = self.logs.open(candidate)
        kernels: list[Kernel] = []
        for variant in tuple(entry.pending):
            if len(kernels) == count or (kernels and is_late()):
                break
            try:
                kernel = self.kernel(candidate, variant)
            except EmitError as e:
                self.reject(candidate, variant, Status.rejected, str(e))
                continue
            twin = entry.twin(kernel)
            if twin:
                entry.copy(variant, twin)
            elif all(k.identity != kernel.identity for k in kernels):
                kernels.append(kernel)
        return kernels

    def _upcoming(
        self, candidate: Candidate, now: Sequence[Kernel], count: int, is_late: Callable[[], bool] = lambda: False
    ) -> list[Kernel]:
        """Kernels of what is pending after those that are measured now, as far as they can be emitted in time."""
        found: list[Kernel] = []
        measured = {(k.family, k.schedule) for k in now}
        for variant in [v for v in self.logs.open(candidate).pending if v not in measured][:count]:
            if is_late():
                break
            with suppress(EmitError):  # said when its turn comes
                found.append(self.kernel(candidate, variant))
        return found

    def expect(self, candidates: Sequence[Candidate], is_late: Callable[[], bool]) -> None:
        """Lets compilers turn to kernels of the first races of these, once they have nothing else to do: to more of
        one segment than of each of many. None are emitted from when `is_late` says so: those of large segments take
        seconds."""
        if self.bench is not None:
            count = LIKELY if len(candidates) == 1 else None
            self.bench.expect(self._first_races(candidates, is_late, count))

    def _first_races(
        self, candidates: Sequence[Candidate], is_late: Callable[[], bool] = lambda: False, count: int | None = None
    ) -> list[Kernel]:
        """Kernels of their first races, or of some: `count` of each, where that is given."""
        found: list[Kernel] = []
        for candidate in candidates:
            if len(found) < MOST_AHEAD and not is_late():
                found += self._upcoming(candidate, (), count or self.hopeful(candidate), is_late)
        return found

    def extend(self, candidate: Candidate, count: int, is_late: Callable[[], bool] = lambda: False) -> bool:
        """Makes `count` schedules pending beyond the families' first ones: of the winner's family, guided by what was
        measured. Whether there are any; none where the winner is near its bound or none of the last ones beat it, or
        where it is late before it is known which make a difference."""
        entry = self.logs.open(candidate)
        best = entry.best()
        if best is None or best.time_us is None or entry.fruitless >= PATIENCE:
            return False
        if best.time_us <= NEAR_BOUND * self.model.bound_us(candidate):
            return False
        space = self._space(candidate, best.family, is_late)
        tried: dict[str, float | None] = {}
        rows: dict[str, Measurement] = {}
        for (family, schedule), row in entry.tried.items():
            point = space.point(schedule) if family == best.family else None
            if point is not None:
                tried[point] = entry.relative.get((family, schedule))
                rows[point] = row
        others = self._others_of(best.family)
        propose = partial(proposals, space, tried, count, self.seed, others, self.sampler, rows)
        found = self.model.guesses.or_else(list[str](), "proposals", propose)
        entry.pending += [(best.family, schedule) for schedule in found]
        return bool(entry.pending)

    def draw_on_others(self, candidate: Candidate) -> None:
        """Where schedules of the winner's family were timed on other segments, they say which of the family's own first
        ones come first."""
        entry = self.logs.open(candidate)
        best = entry.best()
        if best is None or entry.drawn:
            return
        entry.drawn = True
        own = [v for v in entry.pending if v[0] == best.family]
        points = [schedule for _, schedule in own]
        graph, others = candidate.segment.canonical.graph, self._others_of(best.family)
        expect = partial(expected_logs, graph, points, others, self.seed)
        expected = self.model.guesses.or_else(None, "experience", expect)
        if expected is not None:
            first = [own[int(i)] for i in np.argsort(expected, kind="stable")]
            entry.pending[:] = [*first, *(v for v in entry.pending if v[0] != best.family)]

    def _others_of(self, family: str) -> Sequence[Tuned]:
        if family not in self._others:
            self._others[family] = self.costs.others(family)
        return self._others[family]

    def _space(self, candidate: Candidate, name: str, is_late: Callable[[], bool]) -> ScheduleSpace:
        """All that there is to try of a family."""
        key = candidate.segment.key, name
        if key not in self._spaces:
            family, graph = self.families[name], candidate.segment.canonical.graph
            first = self.acceptor.first_schedules(candidate.segment, name)[0]
            space = ScheduleSpace(family, graph, first, self.device, is_late)
            if not space.whole:
                return space
            self._spaces[key] = space
        return self._spaces[key]

    def kernel(self, candidate: Candidate, variant: Variant) -> Kernel:
        """The kernel of a variant. Raises EmitError."""
        if self.logs.is_new(candidate):
            return self.acceptor.emit(candidate.segment, variant)
        entry = self.logs.open(candidate)
        if variant not in entry.kernels:
            entry.kernels[variant] = self.acceptor.emit(candidate.segment, variant)
        return entry.kernels[variant]

    def reject(self, candidate: Candidate, variant: Variant, status: Status, detail: str) -> None:
        """Notes that a variant cannot be used."""
        family, schedule = variant
        row = Measurement(
            segment_key=candidate.segment.key,
            device_key=self.device.class_key,
            family=family,
            schedule=schedule,
            status=status,
            detail=detail,
            toolchain=self.device.toolchain,
            driver=self.device.driver,
        )
        self._note(candidate, [row])
        if status is Status.rejected:
            self._leave_alike(candidate, family, detail)

    def _leave_alike(self, candidate: Candidate, family: str, detail: str) -> None:
        """Schedules of a family are not tried where others could not be emitted, again and again for the same
        reason: what is wrong is the segment."""
        entry = self.logs.open(candidate)
        alike = [m for (f, _), m in entry.tried.items() if f == family and m.detail == detail]
        if len(alike) >= ALIKE and all(m.status is Status.rejected for m in alike):
            entry.pending[:] = [v for v in entry.pending if v[0] != family]

    def choice(self, candidate: Candidate, quickly: bool = False) -> Variant | None:
        """The variant to use: the best measured, else the next to be tried; None if all failed. quickly: of a segment
        that nothing was tried on, the one that compilers are soonest through with."""
        if self.logs.is_new(candidate):  # what else there is to be tried is not listed for that
            if quickly and (variant := self.model.least_unrolled(candidate)):
                return variant
            family = self.model.fastest(candidate)
            if schedules := self.acceptor.first_schedules(candidate.segment, family):
                return family, schedules[0]
        entry = self.logs.open(candidate)
        return entry.winner or next(iter(entry.pending), None)

    def prefer(self, candidate: Candidate, variant: Variant) -> None:
        """Makes a variant the next to be tried, though its family was left since others of it could not be lowered."""
        pending = self.logs.open(candidate).pending
        pending[:] = [variant, *(v for v in pending if v != variant)]

    def failures(self, candidate: Candidate) -> list[Measurement]:
        """Measurements of variants that were tried on the candidate and did not pass."""
        return [m for m in self.logs.open(candidate).tried.values() if m.status is not Status.ok]

    def _note(self, candidate: Candidate, rows: Sequence[Measurement]) -> None:
        # What a compiler was given up on in the time of this search may compile in that of another.
        kept = [m for m in rows if m.status is not Status.compile_timeout]
        if kept or not rows:
            self.costs.record(candidate.segment.canonical.graph, kept)
        self._statuses.update(((m.segment_key, *variant_of(m)), m.status) for m in rows)
        self.races += [seen for m in rows[:1] if (seen := m.surroundings) is not None]
        entry = self.logs.open(candidate)
        entry.note(rows)
        self.logs.leave_hopeless(candidate, entry)
