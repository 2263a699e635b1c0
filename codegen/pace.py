"""How long a race takes: so that a search knows how many candidates there is time for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Taken:
    """Seconds that a segment took once, and those that each candidate of its last race took."""

    once: float
    each: float


class Pace:
    """Races of a segment take as long as its finals, `finals_s`, however many candidates there are, and then some for
    each (compiling, checking, screening), as in the race before. The first one takes more: its inputs are sampled and
    interpreted."""

    def __init__(self, finals_s: float) -> None:
        self.finals_s = finals_s
        self._taken: dict[str, _Taken] = {}

    def note(self, segment_key: str, count: int, seconds: float, once: float) -> None:
        """A race of `count` candidates took so many seconds, of which `once` for what is done but once."""
        before = self._taken.get(segment_key)
        each = max(seconds - once - self.finals_s, 0.0) / count
        self._taken[segment_key] = _Taken(max(once, before.once if before else 0.0), each)

    def seconds(self, segment_key: str, count: int) -> float:
        """What a race of so many will take; of a segment that was in none, what it would take for the slowest one that
        was; 0 where there was none at all."""
        taken = self._taken.get(segment_key)
        if taken:
            return self.finals_s + count * taken.each
        return max((self.finals_s + t.once + count * t.each for t in self._taken.values()), default=0.0)
