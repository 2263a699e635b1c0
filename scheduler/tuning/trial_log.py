"""What is known of the segments of one key: tried and pending schedules, and which of them won.

Spells: for a second now and then, or for minutes, a machine that others work on too is slower, and favours other
schedules: a log softmax of 34 MB takes 1.95 ms with one task for each core, and 3 % more with eight; while somebody
disturbs one core, 2.3 to 2.8 ms and 2 to 13 % less. The winner so far, which is in every race, shows it.
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

    kernels: of variants that were emitted; twins: the first variant of each kernel. winner: of all races so far.
    relative: times as they would have been in the first race, by way of the winners that took part in several.
    fruitless: candidates tried since the winner was last another one, without those that were rejected unbuilt: they
    cost next to nothing, and a library's list may be short. drawn: whether other segments said what to try.
    races: those that were taken in. doubted: what would have won or nearly won a race in a spell, and has to be timed
    again, the fastest first.
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
        """The one that won against all that it was timed with; None where nothing passed its check."""
        return self.tried[self.winner] if self.winner else None

    def twin(self, kernel: Kernel) -> Variant | None:
        """A variant that was tried and comes to the same kernel."""
        return next((v for v in self.tried if v in self.kernels and self.kernels[v].identity == kernel.identity), None)

    def copy(self, variant: Variant, twin: Variant) -> None:
        """What is known of a variant is known of another that comes to the same kernel."""
        self.pending[:] = [v for v in self.pending if v != variant]
        self.tried[variant] = self.tried[twin]
        if twin in self.relative:
            self.relative[variant] = self.relative[twin]

    def note(self, rows: Sequence[Measurement]) -> None:
        """Takes in the rows of one race. The winner so far, if it took part, stays unless another is clearly faster:
        what it took in other races, in other moments of the machine, does not count. In a spell it stays anyway, and
        what was near it is doubted; a second such race in a row counts: the machine may have become another."""
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
        """What was near the fastest of a race in a spell has to be timed again."""
        near = sorted((time, v) for v, time in times.items() if time <= NEAR_IN_SPELL * min(times.values()))
        found = [v for _, v in near if v != self.winner and v not in self.doubted and self._doubts[v] < MOST_DOUBTS]
        self._doubts.update(found)
        self.doubted += found


def variant_of(m: Measurement) -> Variant:
    """What was measured."""
    return m.family, m.schedule


def races(rows: Iterable[Measurement]) -> Iterator[list[Measurement]]:
    """Rows in order, those of one race together."""
    for _, together in groupby(enumerate(rows), key=lambda row: row[1].race or row[0]):
        yield [m for _, m in together]


def relative_times(rows: Iterable[Measurement]) -> dict[Variant, float]:
    """Times of variants as they would have been in one race: races are tied together by a variant that was in both.
    What cannot be tied to the first race is left out."""
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
    """Of those that passed their check; of equals the first."""
    passed = [m for m in rows if m.status is Status.ok and m.time_us is not None]
    best = min(passed, key=lambda m: m.time_us or 0.0, default=None)
    return best and variant_of(best)
