"""CPU time that others take while kernels are timed: other processes, and other machines where a hypervisor shares the
CPUs out. Disturbed samples are noticed, and taken again where that helps."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from codegen.hardware.machine import ROOT, cpu_ticks, system_text

STEAL = 8  # column of /proc/stat: what a hypervisor took of a CPU that had work
DISTURBED = 0.02  # of a visit's time, that some thread of ours was ready to run and others were running
MOST_REPEATS = 3  # of one visit
REPEATING = 0.5  # of the time of all visits, at the most


class RunQueue:
    """How long the threads of this process waited for a CPU, ready to run. root: of the system's files. own: count only
    the thread that makes this object, for where that thread does the timed work."""

    def __init__(self, root: Path = ROOT, *, own: bool = False) -> None:
        self._root, self._which = root, str(threading.get_native_id()) if own else "*"
        self._files: list[int] = []

    def waited_seconds(self) -> float | None:
        """Seconds that the threads found by the last `look` waited since they began, summed; None where the system
        does not say."""
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
        for file in (self._root / "proc/self/task").glob(f"{self._which}/schedstat"):
            try:
                self._files.append(os.open(file, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                continue

    def close(self) -> None:
        """Lets go of the files."""
        while self._files:
            os.close(self._files.pop())


class Steal:
    """How long a hypervisor let other machines run on these CPUs while they had work to do for this one. share: the
    part of that time that counts, where the process's threads are on some of the CPUs at a time.

    The system counts in steps of 10 ms: of several shorter visits, one shows the time taken from all of them."""

    def __init__(self, cpus: Sequence[int], root: Path = ROOT, share: float = 1.0) -> None:
        self._cpus, self._file = tuple(cpus), root / "proc/stat"
        self._unit = share / os.sysconf("SC_CLK_TCK")
        self._is_shared = False

    def look(self) -> None:
        """Finds out whether a hypervisor takes time at all. Where nothing was ever taken, the system's file, long on a
        machine of many CPUs, is not read at every visit."""
        self._is_shared = bool(self._ticks())

    def seconds(self) -> float | None:
        """Seconds taken since the system started; None where it does not say, or nothing was taken up to the last
        `look`."""
        ticks = self._ticks() if self._is_shared else None
        return None if ticks is None else ticks * self._unit

    def _ticks(self) -> int | None:
        return cpu_ticks(system_text(self._file), self._cpus, (STEAL,)) if self._cpus else None


class Disturbance:
    """Takes samples, and takes them again where others had the CPUs meanwhile: a kernel on all CPUs takes as long as
    the thread that waits longest. Of the tries of a visit the least disturbed counts.

    Counts since the last `reset`: visits; repeated: tries that were taken again; disturbed: visits whose best try was
    disturbed, too.
    """

    def __init__(
        self, queue: RunQueue, steal: Steal | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._queue, self._steal, self._clock = queue, steal or Steal(()), clock
        self.reset()

    def reset(self) -> None:
        """Begins to count, by the threads that there are now."""
        self._queue.look()
        self._steal.look()
        self.visits = self.repeated = self.disturbed = 0
        self._first, self._is_known = self._queue.waited_seconds(), self._taken() is not None
        self._all_s = self._again_s = 0.0

    @property
    def waited_ms(self) -> float | None:
        """Milliseconds that the queue's threads waited for a CPU since the last `reset`; None where nothing is
        known."""
        now = self._queue.waited_seconds()
        return None if now is None or self._first is None else 1e3 * (now - self._first)

    @property
    def share(self) -> float | None:
        """Share of visits whose best try was disturbed; None where nothing is known, or no visit was made."""
        return self.disturbed / self.visits if self._is_known and self.visits else None

    @property
    def repeats(self) -> int | None:
        """Tries that were taken again; None where nothing is known."""
        return self.repeated if self._is_known else None

    def take(self, sample: Callable[[], Sequence[float]]) -> Sequence[float]:
        """The least disturbed samples of one visit, each try a call of `sample`."""
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
        """The time that others took during a call of `sample`, summed over threads, as a share of the call's time; and
        the samples."""
        before, started = self._taken(), self._clock()
        samples = sample()
        elapsed, after = self._clock() - started, self._taken()
        self._all_s += elapsed
        return (0.0 if before is None or after is None or elapsed <= 0 else (after - before) / elapsed), samples

    def _taken(self) -> float | None:
        """Seconds that others took so far, by waits and by steal; None where neither is known."""
        known = [taken for taken in (self._queue.waited_seconds(), self._steal.seconds()) if taken is not None]
        return sum(known) if known else None
