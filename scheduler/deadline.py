"""The clock of a search: how much of its budget is left, and who is told."""

import math
from collections.abc import Callable

from scheduler.budget import Event, Progress

BEAT_S = 0.5  # between two reports of work that has no steps to report


class Deadline:
    """Runs from its making. `plans_s` seconds of the budget are kept for timing whole plans, `play_off_s` before them
    for settling near ties: no longer than `keep` says, once that is known."""

    def __init__(
        self,
        seconds: float,
        plans_s: float,
        progress: Progress | None,
        clock: Callable[[], float],
        play_off_s: float = 0.0,
    ) -> None:
        self.clock = clock
        self.progress = progress
        self.started = clock()
        self.end = self.started + seconds
        self._plans_s, self._play_off_s = plans_s, play_off_s
        self.best_us: float | None = None
        self._over = False
        self._phase, self._since = "", self.started
        self._spent: dict[str, float] = {}  # seconds of phases that are over
        self._told: Event | None = None  # last, and when
        self._told_at = self.started

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return self.clock() - self.started

    @property
    def plans_start(self) -> float:
        """When whole plans have to be timed."""
        return self.end - self._plans_s

    @property
    def search_end(self) -> float:
        """When near ties have to be settled."""
        return self.plans_start - self._play_off_s

    def keep(self, *, plans_s: float = math.inf, least_plans_s: float = 0.0, play_off_s: float = math.inf) -> None:
        """No more than so many seconds are kept any longer: measuring segments may go on until then. But at least so
        many for plans, unless that is more than half of what is left."""
        least_plans_s = min(least_plans_s, (self.end - self.clock()) / 2)
        self._plans_s = min(max(self._plans_s, least_plans_s), plans_s)
        self._play_off_s = min(self._play_off_s, play_off_s)
        self._over = False

    def finish(self) -> None:
        """There is no time to measure any of the segments that are to be."""
        self._over = True

    def is_over(self) -> bool:
        """Whether measuring segments has to end."""
        return self._over or self.clock() >= self.search_end

    def is_time_for_plans(self) -> bool:
        """Whether settling near ties has to end."""
        return self.clock() >= self.plans_start

    def affordable(self, seconds: Callable[[int], float], most: int) -> int:
        """How many candidates, at most `most`, there is time to race, where a race of n takes seconds(n)."""
        left = self.search_end - self.clock()
        return max((n for n in range(1, most + 1) if seconds(n) <= left), default=0)

    def tell(self, phase: str, measured: int) -> None:
        """The search is in this phase. Reports progress, if anyone listens."""
        if phase != self._phase:
            self._spent[self._phase] = self.spent(self._phase)
            self._phase, self._since = phase, self.clock()
        if self.progress is not None:
            self._told, self._told_at = Event(phase, measured, self.best_us, self.seconds), self.clock()
            self.progress(self._told)

    def spent(self, phase: str) -> float:
        """Seconds of the search so far that were in a phase that was told of."""
        here_s = self.clock() - self._since if phase == self._phase else 0.0
        return self._spent.get(phase, 0.0) + here_s

    def look(self) -> None:
        """For long work to call now and then, often: who listens is told that it goes on, twice a second at the most,
        and may end it (`Progress`)."""
        if self._told is not None and self.clock() - self._told_at >= BEAT_S:
            self.tell(self._told.phase, self._told.measured)

    def silence(self) -> None:
        """Tells nobody any more: who ended the search would do it again."""
        self.progress = None

    @property
    def is_late(self) -> bool:
        """Whether the whole budget is spent."""
        return self.clock() >= self.end
