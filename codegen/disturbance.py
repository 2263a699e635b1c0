"""What other processes take of the CPUs while something is timed on them: noticed, and timed again where that helps."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from codegen.machine import ROOT

DISTURBED = 0.02  # of a visit's time, that some thread of ours was ready to run and another process was running
MOST_REPEATS = 3  # of one visit
REPEATING = 0.5  # of the time of all visits, at the most


class RunQueue:
    """How long the threads of this process waited for a CPU, ready to run. root: of the system's files."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._files: list[int] = []

    def waited_seconds(self) -> float | None:
        """Of all threads that there were at the last `look`, since they began; None where the system does not say."""
        total = 0
        for file in self._files:
            try:
                words = os.pread(file, 128, 0).split()
            except OSError:
                continue  # a thread that has ended
            total += int(words[1]) if len(words) == 3 else 0
        return total / 1e9 if self._files else None

    def look(self) -> None:
        """Finds the threads that there are now."""
        self.close()
        for file in (self._root / "proc/self/task").glob("*/schedstat"):
            try:
                self._files.append(os.open(file, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                continue

    def close(self) -> None:
        """Lets go of the files."""
        while self._files:
            os.close(self._files.pop())


class Disturbance:
    """Takes samples, and takes them again while others had the CPUs meanwhile: a kernel on all of them takes as long as
    the thread that waits longest. Of the tries of a visit the least disturbed counts.

    visits: made; repeated: tries that were taken again; disturbed: visits that stayed so. Since the last `reset`.
    """

    def __init__(self, queue: RunQueue | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._queue, self._clock = queue or RunQueue(), clock
        self.reset()

    def reset(self) -> None:
        """Begins to count, by the threads that there are now."""
        self._queue.look()
        self.visits = self.repeated = self.disturbed = 0
        self._first = self._queue.waited_seconds()
        self._all_s = self._again_s = 0.0

    @property
    def waited_ms(self) -> float | None:
        """That threads of ours waited for others, since the last `reset`."""
        now = self._queue.waited_seconds()
        return None if now is None or self._first is None else 1e3 * (now - self._first)

    @property
    def share(self) -> float | None:
        """Of visits that stayed disturbed; None where nothing is known, or none was made."""
        return None if self._first is None or not self.visits else self.disturbed / self.visits

    def take(self, sample: Callable[[], Sequence[float]]) -> Sequence[float]:
        """What `sample` gives at one visit."""
        self.visits += 1
        least, best = self._try(sample)
        tries = 1
        while least > DISTURBED and tries <= MOST_REPEATS and self._again_s <= REPEATING * self._all_s:
            before = self._clock()
            found, again = self._try(sample)
            self._again_s += self._clock() - before
            tries += 1
            self.repeated += 1
            if found < least:
                least, best = found, again
        self.disturbed += least > DISTURBED
        return best

    def _try(self, sample: Callable[[], Sequence[float]]) -> tuple[float, Sequence[float]]:
        """Samples, and which share of the time one thread or several waited for others meanwhile."""
        before, started = self._queue.waited_seconds(), self._clock()
        samples = sample()
        elapsed, after = self._clock() - started, self._queue.waited_seconds()
        self._all_s += elapsed
        return (0.0 if before is None or after is None or elapsed <= 0 else (after - before) / elapsed), samples
