"""The clock of a search: how much of its budget is left, and who is told."""

from collections.abc import Callable

from scheduler.bench import Event, Progress


class Watch:
    """Runs from its making. `plans_s` seconds of the budget are kept for timing whole plans, `play_off_s` before them
    for settling near ties."""

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
        self.plans_start = self.end - plans_s
        self.search_end = self.plans_start - play_off_s
        self.best_us: float | None = None
        self._pace: dict[str, float] = {}  # seconds that a candidate of a segment took, by segment key

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return self.clock() - self.started

    def is_over(self) -> bool:
        """Whether measuring segments has to end."""
        return self.clock() >= self.search_end

    def is_time_for_plans(self) -> bool:
        """Whether settling near ties has to end."""
        return self.clock() >= self.plans_start

    def affordable(self, segment_key: str, most: int) -> int:
        """How many candidates of a segment, at least one, there is time for at the pace of those before."""
        pace = self._pace.get(segment_key, 0.0)
        left = max(self.search_end - self.clock(), 0.0)
        return most if most * pace <= left else max(int(left / pace), 1)

    def paced(self, segment_key: str, candidates: int, started: float) -> None:
        """Notes that so many candidates were measured since `started`."""
        self._pace[segment_key] = (self.clock() - started) / max(candidates, 1)

    def tell(self, phase: str, measured: int) -> None:
        """Reports progress, if anyone listens."""
        if self.progress is not None:
            self.progress(Event(phase, measured, self.best_us, self.seconds))
