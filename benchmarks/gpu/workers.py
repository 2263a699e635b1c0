"""A crew of worker processes that `make bench-gpu` has prepare its entries: tasks in, outcomes out, in any order.

Workers are spawned, since CUDA does not survive a fork. A task that raises has the error for its outcome; so has one
whose worker died, and another worker takes its place.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType, TracebackType
from typing import Any

CLOSING_SECONDS = 3.0  # that a worker has to end after it was asked to
LATE_SECONDS = 1.0  # the same of one that is replaced while others wait
NICENESS = 5
CPUS_EACH = 4  # of a worker, shared with others
Work = Callable[[Any], Any]


@dataclass(frozen=True)
class Done:
    """The outcome of a task. problem: why there is no `answer`, "" otherwise. seconds: of work."""

    task: Any
    answer: Any = None
    problem: str = ""
    seconds: float = 0.0


class _Worker:
    """One process and the task it is at, if any."""

    def __init__(self, make: Callable[..., Work], arguments: tuple[Any, ...], cpus: set[int]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_serve, args=(other, make, arguments, cpus), daemon=True)
        self.process.start()
        other.close()
        self.task: Any = None
        self.since = 0.0

    def give(self, task: Any) -> None:
        self.task, self.since = task, time.monotonic()
        with contextlib.suppress(OSError):  # a worker that is gone is found by its end of the pipe
            self.connection.send(task)

    def ask_to_end(self) -> None:
        """Closes the pipe, which ends a worker without a task; terminates one that has a task."""
        self.connection.close()
        if self.task is not None:
            self.process.terminate()

    def end(self, seconds: float) -> None:
        """Waits until the process has ended, and kills it after `seconds`."""
        self.process.join(max(seconds, 0.0))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Crew:
    """`size` processes, each with `make(*arguments)` for its work: a function of a task. A context manager.

    make, arguments and tasks are pickled: functions of modules and plain data. A task that takes longer than
    `most_seconds` loses its worker.
    """

    def __init__(self, size: int, make: Callable[..., Work], *arguments: Any, most_seconds: float = 300.0) -> None:
        self._make, self._arguments, self._most_seconds = make, arguments, most_seconds
        self._waiting: deque[Any] = deque()
        self._size, self._started = size, 0
        self._workers: list[_Worker] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pending(self) -> int:
        """Tasks without an outcome."""
        return len(self._waiting) + sum(w.task is not None for w in self._workers)

    def submit(self, task: Any) -> None:
        """Another task, begun when those before it are begun and a worker is free."""
        self._waiting.append(task)
        self._hand_out()

    def outcomes(self, seconds: float) -> list[Done]:
        """The outcomes that came in; where tasks are pending, waits for one for up to `seconds`."""
        busy = {w.connection: w for w in self._workers if w.task is not None}
        if not busy:
            return []
        ready = wait(list(busy), max(seconds, 0.0))
        done = [self._received(busy[c]) for c in ready if isinstance(c, Connection)]
        late = [w for w in self._workers if w.task is not None and time.monotonic() - w.since > self._most_seconds]
        done += [self._replaced(w, f"took longer than {self._most_seconds:.0f} s") for w in late]
        self._hand_out()
        return done

    def close(self) -> None:
        """Ends all processes, whatever they are at. They may clean up: the semaphores that libraries make, tqdm's among
        them, would be reported as leaked."""
        for worker in self._workers:
            worker.ask_to_end()
        end = time.monotonic() + CLOSING_SECONDS
        for worker in self._workers:
            worker.end(end - time.monotonic())
        self._workers = []

    def _hand_out(self) -> None:
        while self._waiting:
            idle = next((w for w in self._workers if w.task is None), None)
            if idle is None:
                if len(self._workers) >= self._size:
                    return
                idle = _Worker(self._make, self._arguments, self._cpus())
                self._workers.append(idle)
            idle.give(self._waiting.popleft())

    def _cpus(self) -> set[int]:
        """CPUs of the next worker: a few, since a worker and each of its children start a thread for every CPU."""
        all_ = sorted(os.sched_getaffinity(0))
        groups = max(len(all_) // CPUS_EACH, 1)
        self._started += 1
        return set(all_[self._started % groups :: groups])

    def _received(self, worker: _Worker) -> Done:
        try:
            answer, problem = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join(CLOSING_SECONDS)
            return self._replaced(worker, f"its worker died, exit code {worker.process.exitcode}")
        done = Done(worker.task, answer, problem, time.monotonic() - worker.since)
        worker.task = None
        return done

    def _replaced(self, worker: _Worker, problem: str) -> Done:
        worker.ask_to_end()
        worker.end(LATE_SECONDS)
        self._workers.remove(worker)  # another is started for the next task
        return Done(worker.task, problem=problem, seconds=time.monotonic() - worker.since)


def _serve(connection: Connection, make: Callable[..., Work], arguments: tuple[Any, ...], cpus: set[int]) -> None:
    """A worker's whole life. It gives way to its parent, which times. Ctrl-C is for the parent, with which it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    os.nice(NICENESS)
    os.sched_setaffinity(0, cpus)
    work: Work | None = None
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            work = work or make(*arguments)
            answer, problem = work(task), ""
        except Exception as e:  # whatever it is, it is the task's outcome
            answer, problem = None, told(e)
            traceback.print_exc()
        try:
            connection.send((answer, problem))
        except OSError:
            return


def _leave(number: int, frame: FrameType | None) -> None:
    """Ends the process as if its work had raised: the signal's own way leaves out what is registered for the end."""
    sys.exit(128 + number)


def told(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]
