"""The log of trials on the segments of one key: tried and pending schedules, and which of them won.

Spells: for a second now and then, or for minutes, a machine that others work on too is slower, and favours other
schedules. A log softmax of 34 MB takes 1.95 ms with one task for each core, and 3 % more with eight; while another
process disturbs one core, 2.3 to 2.8 ms with one task for each, and 2 to 13 % less with eight. The winner so far, which
is in every race, shows a spell by its time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from codegen.kernel import Kernel
from codegen.schedule import Variant
from codegen.timing.protocol import LEAST_US, beats
from fusion_ir.records import Measurement, Status

SPELL = 1.08  # times what the winner took in the race before
NEAR_IN_SPELL = 1.2  # times the fastest: may have lost for the spell
MOST_DOUBTS = 2  # of one schedule: a machine that is never the same must not be raced for ever


@dataclass
class TrialLog:
    """Everything tried or still to try on the segments of one key.

    kernels: by variant that was emitted. winner: of all races so far. relative: times as they would have been in the
    first race, by way of the winners that took part in several. fruitless: variants tried since the winner last
    changed, without those that were rejected unbuilt: these cost next to nothing, and a library's list may be short.
    drawn: whether other segments said what to try. races: those that were taken in. doubted: variants that won or
    nearly won a race in a spell, and have to be timed again, the fastest first.
    """

    pending: list[Variant]
    tried: dict[Variant, Measurement] = field(default_factory=dict[Variant, Measurement])
    kernels: dict[Variant, Kernel] = field(default_factory=dict[Variant, Kernel])
    winner: Variant | None = None
    relative: dict[Variant, float] = field(default_factory=dict[Variant, float])
    fruitless: int = 0
    drawn: bool = False
    races: set[str] = field(default_factory=set[str])
    doubted: list[Variant] = field(default_factory=list[Variant])
    _last: dict[Variant, float] = field(default_factory=dict[Variant, float])  # times in the last race that counted
    _in_spell: bool = False  # the last race did not count
    _doubts: Counter[Variant] = field(default_factory=Counter[Variant])  # how often each was doubted

    def best(self) -> Measurement | None:
        """Measurement of the winner; None where nothing passed its check."""
        return self.tried[self.winner] if self.winner else None

    def twin(self, kernel: Kernel) -> Variant | None:
        """A variant that was tried and whose kernel is identical, if there is one."""
        return next((v for v in self.tried if v in self.kernels and self.kernels[v].identity == kernel.identity), None)

    def copy(self, variant: Variant, twin: Variant) -> None:
        """Takes over for `variant` what is known of `twin`, whose kernel is identical."""
        self.pending[:] = [v for v in self.pending if v != variant]
        self.tried[variant] = self.tried[twin]
        if twin in self.relative:
            self.relative[variant] = self.relative[twin]

    def note(self, rows: Sequence[Measurement]) -> None:
        """Takes in the rows of one race. The winner so far, if it took part, stays unless another is clearly faster in
        this race: its times in other races, at other moments of the machine, do not count. In a spell, while the
        machine is disturbed, the winner stays anyway, and variants near the fastest are queued to be raced again; a
        second such race in a row counts, since the machine may have changed for good."""
        held, before = next((m for m in rows if variant_of(m) == self.winner), None), self.winner
        self.races.update(m.race for m in rows)
        times = {variant_of(m): max(m.time_us, LEAST_US) for m in rows if m.time_us is not None}
        pace = times[before] / self._last[before] if before in times and before in self._last else 1.0
        self._in_spell = pace > SPELL and not self._in_spell
        for m in rows:
            known = self.tried.get(variant_of(m))
            if known is None or not self._in_spell or m.status is not Status.ok:
                self.tried[variant_of(m)] = m
        self.pending[:] = [v for v in self.pending if v not in self.tried]
        challenger = _fastest(rows)
        if held is not None and held.status is not Status.ok:
            self.winner = challenger or _fastest(self.tried.values())
        elif held is None:
            self.winner = _fastest(self.tried[v] for v in (self.winner, challenger) if v)
        elif challenger and not self._in_spell and beats(self.tried[challenger].samples_us, held.samples_us):
            self.winner = challenger
        if self.winner != before:
            self.fruitless = 0
        elif not self._in_spell:
            self.fruitless += sum(m.status is not Status.rejected for m in rows)
        scale = self.relative[before] / times[before] if before in times else 1.0
        self.relative.update((v, scale * time) for v, time in times.items())
        if self._in_spell:
            self._doubt(times)
        else:
            raced = {variant_of(m) for m in rows}
            self.doubted[:] = [v for v in self.doubted if v not in raced]
            if pace * SPELL < 1:
                self._doubt({v: time for v, time in self._last.items() if v not in times})
            self._last = times

    def _doubt(self, times: Mapping[Variant, float]) -> None:
        """Queues variants near the fastest of a race in a spell to be timed again, each at most `MOST_DOUBTS` times."""
        near = sorted((time, v) for v, time in times.items() if time <= NEAR_IN_SPELL * min(times.values()))
        found = [v for _, v in near if v != self.winner and v not in self.doubted and self._doubts[v] < MOST_DOUBTS]
        self._doubts.update(found)
        self.doubted += found


def variant_of(m: Measurement) -> Variant:
    """The variant that was measured."""
    return m.family, m.schedule


def races(rows: Iterable[Measurement]) -> Iterator[list[Measurement]]:
    """Rows in order, those of one race together."""
    for _, together in groupby(enumerate(rows), key=lambda row: row[1].race or row[0]):
        yield [m for _, m in together]


def relative_times(rows: Iterable[Measurement]) -> dict[Variant, float]:
    """Times of variants as they would have been in one race: races are tied together by a variant that was in both.
    Races that cannot be tied to the first one are left out."""
    found: dict[Variant, float] = {}
    for race in races(rows):
        times = {variant_of(m): m.time_us for m in race if m.status is Status.ok and m.time_us}
        if not found:
            found.update(times)
            continue
        shared = next((v for v in times if v in found), None)
        if shared:
            scale = found[shared] / times[shared]
            found.update((v, scale * time) for v, time in times.items() if v not in found)
    return found


def _fastest(rows: Iterable[Measurement]) -> Variant | None:
    """The fastest variant of those that passed their check; of equals the first. None where none passed."""
    passed = [m for m in rows if m.status is Status.ok and m.time_us is not None]
    best = min(passed, key=lambda m: m.time_us or 0.0, default=None)
    return best and variant_of(best)
