"""The share of a search's time in which its cores work; the rest is idle time."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class CoreUse:
    """Counts the core seconds that `cores` cores work. Each worker reports its work (`working`), and the search reports
    when it only waits for workers (`waiting`): otherwise it counts as working on a core itself."""

    def __init__(self, cores: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.cores = cores
        self._clock = clock
        self._lock = threading.Lock()
        self._busy = 1  # the search itself
        self._since = clock()
        self._worked = 0.0  # core seconds

    def restart(self) -> None:
        """Begins to count anew."""
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
        """For the block, one core more has something to do, or as many as a process uses. clock: the CPU seconds that
        the process has used."""
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
        """Core seconds worked since the restart."""
        self._change(0)
        return self._worked

    def idle_share(self, seconds: float) -> float:
        """Share of all core seconds, `seconds` since the restart on every core, in which a core had nothing to do."""
        if seconds <= 0:
            return 0.0
        return min(max(1 - self.core_seconds() / (self.cores * seconds), 0.0), 1.0)

    def _change(self, cores: int) -> None:
        with self._lock:
            now = self._clock()
            self._worked += min(max(self._busy, 0), self.cores) * (now - self._since)
            self._since = now
            self._busy += cores
