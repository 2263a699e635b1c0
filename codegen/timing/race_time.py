"""Predicted seconds of a race, so that a search knows how many candidates it has time for."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Taken:
    """Seconds of a segment's races. once: for work that is done but once (`work`: operations of the interpreter). In
    the last race, compiled: for a round of compilers; finals: for the finals; each: for each candidate besides."""

    once: float
    work: float
    compiled: float
    finals: float
    each: float
    cold: bool


class RaceTime:
    """Predicts a segment's race from the race before: a round of compilers for every `at_once` candidates, the finals
    (`finals_s` at the most, however many candidates there are), and a time for each candidate (checking, screening). A
    segment's first race takes longer: its inputs are sampled and interpreted."""

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
        """Notes a race of `count` candidates, which took `seconds` after `compiled` seconds of compiling. once: the
        seconds of them for work that is done but once, `work` operations. cold: some seconds went to the start of
        children."""
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
        """Predicted seconds of a segment's next race, of `count` candidates; 0 where it was in no race."""
        t = self._taken.get(segment_key)
        return self._again(t, count) if t else 0.0

    def first_seconds(self, segment_keys: frozenset[str], count: int, work: float = math.inf) -> float:
        """Predicted seconds of the first race of a segment, of `count` candidates: the upper quartile of such a race of
        the segments `segment_keys`, without those raced cold where others are known. Work that is done but once takes
        less time in proportion where the segment has less `work`."""
        known = [self._taken[k] for k in segment_keys if k in self._taken]
        warm = [t for t in known if not t.cold] or known
        each = sorted(t.once * min(work / max(t.work, 1.0), 1.0) + self._again(t, count) for t in warm)
        return each[-(-3 * len(each) // 4) - 1] if each else 0.0

    def _again(self, t: _Taken, count: int) -> float:
        return t.finals + count * t.each + self._rounds(count) * t.compiled

    def _rounds(self, count: int) -> int:
        return max(-(-count // self.at_once), 1)
