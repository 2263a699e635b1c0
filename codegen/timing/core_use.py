"""How much of the time that a search has its cores spend working: what is left over is idle."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class CoreUse:
    """Of `cores` cores. Whoever works says so; whoever waits for that says that, too: else it counts as working
    itself, as a search does between two calls."""

    def __init__(self, cores: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.cores = cores
        self._clock = clock
        self._lock = threading.Lock()
        self._busy = 1  # the search itself
        self._since = clock()
        self._worked = 0.0  # core seconds

    def restart(self) -> None:
        """From here on."""
        with self._lock:
            self._since, self._worked = self._clock(), 0.0

    @contextmanager
    def working(self, cores: int = 1) -> Generator[None]:
        """For the block, so many cores more have something to do."""
        self._change(cores)
        try:
            yield
        finally:
            self._change(-cores)

    @contextmanager
    def working_by(self, clock: Callable[[], float]) -> Generator[None]:
        """For the block, one core more has something to do, or as many as a process uses: by the clock of its CPU
        time, in seconds."""
        before, used, since = self.core_seconds(), clock(), self._clock()
        with self.working():
            try:
                yield
            finally:
                seconds = self._clock() - since
                worked = self.core_seconds() - before
                more = min(max(clock() - used - seconds, 0.0), self.cores * seconds - worked)
                with self._lock:
                    self._worked += max(more, 0.0)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """For the block, the search itself has nothing to do but wait."""
        self._change(-1)
        try:
            yield
        finally:
            self._change(1)

    def core_seconds(self) -> float:
        """Worked so far."""
        self._change(0)
        return self._worked

    def idle_share(self, seconds: float) -> float:
        """Of so many seconds since the restart, on all cores: those in which one had nothing to do."""
        if seconds <= 0:
            return 0.0
        return min(max(1 - self.core_seconds() / (self.cores * seconds), 0.0), 1.0)

    def _change(self, cores: int) -> None:
        with self._lock:
            now = self._clock()
            self._worked += min(max(self._busy, 0), self.cores) * (now - self._since)
            self._since = now
            self._busy += cores
