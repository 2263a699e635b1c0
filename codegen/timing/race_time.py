"""How long a race takes: so that a search knows how many candidates there is time for."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Taken:
    """Seconds that a segment took once, for so much work (operations of the interpreter), those of a round of compilers
    and of the finals in its last race, and those that each candidate took besides."""

    once: float
    work: float
    compiled: float
    finals: float
    each: float
    cold: bool


class RaceTime:
    """Races of a segment take a round of compilers for every `at_once` candidates, the finals, `finals_s` at the most,
    however many candidates there are, and then some for each (checking, screening), as in the race before. The first
    one takes more: its inputs are sampled and interpreted."""

    def __init__(self, finals_s: float, at_once: int = 1) -> None:
        self.finals_s, self.at_once = finals_s, at_once
        self._taken: dict[str, _Taken] = {}

    def note(
        self,
        segment_key: str,
        count: int,
        compiled: float,
        seconds: float,
        once: float,
        *,
        work: float = 0.0,
        cold: bool = False,
    ) -> None:
        """A race of `count` candidates took so many seconds after it was compiled in others, of which `once` for what
        is done but once, which is so much work. cold: some of it for the start of children."""
        before = self._taken.get(segment_key)
        finals = min(self.finals_s, max(seconds - once, 0.0))
        self._taken[segment_key] = _Taken(
            max(once, before.once if before else 0.0),
            work,
            compiled / self._rounds(count),
            finals,
            max(seconds - once - finals, 0.0) / count,
            cold,
        )

    def seconds(self, segment_key: str, count: int) -> float:
        """What a race of so many will take; of a segment that was in none 0."""
        t = self._taken.get(segment_key)
        return self._again(t, count) if t else 0.0

    def first_seconds(self, segment_keys: frozenset[str], count: int, work: float = math.inf) -> float:
        """The same of a segment that was in none, as if three of four of these took no longer, but for what was cold;
        what is done but once takes less of a segment with less work."""
        known = [self._taken[k] for k in segment_keys if k in self._taken]
        warm = [t for t in known if not t.cold] or known
        each = sorted(t.once * min(work / max(t.work, 1.0), 1.0) + self._again(t, count) for t in warm)
        return each[-(-3 * len(each) // 4) - 1] if each else 0.0

    def _again(self, t: _Taken, count: int) -> float:
        return t.finals + count * t.each + self._rounds(count) * t.compiled

    def _rounds(self, count: int) -> int:
        return max(-(-count // self.at_once), 1)
