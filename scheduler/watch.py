"""The clock of a search: how much of its budget is left, and who is told."""

from collections.abc import Callable

from scheduler.bench import Event, Progress


class Watch:
    """Runs from its making. `reserve_s` seconds of the budget are kept for timing whole plans."""

    def __init__(self, seconds: float, reserve_s: float, progress: Progress | None, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.progress = progress
        self.started = clock()
        self.end = self.started + seconds
        self.search_end = self.end - reserve_s
        self.best_us: float | None = None

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return self.clock() - self.started

    def is_over(self) -> bool:
        """Whether measuring segments has to end."""
        return self.clock() >= self.search_end

    def tell(self, phase: str, measured: int) -> None:
        """Reports progress, if anyone listens."""
        if self.progress is not None:
            self.progress(Event(phase, measured, self.best_us, self.seconds))
