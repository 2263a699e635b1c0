"""Child processes with limits.

A slot is one child, in a process group of its own, that answers one job at a time. Whatever a compiler or a kernel does
there (crash, hang, allocate or print without end) becomes a `SlotFailure`; the child is killed with its group, and
the next job gets a fresh one. Children live no longer than their parent.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from codegen.sandbox.child_process import ChildLimits, ChildProcess, SlotError, SlotFailure

__all__ = ["ChildLimits", "Slot", "SlotError", "SlotFailure", "once_more"]

T = TypeVar("T")


def once_more(work: Callable[[], T]) -> T:
    """The result of `work`, which may fail once because its child was killed by somebody else. Raises SlotFailure."""
    try:
        return work()
    except SlotFailure as e:
        if not e.was_killed:
            raise
    return work()


class Slot:
    """One child running `python -m module`. A job is `{"job": name, ...}`; see `codegen/child/serve.py` for the other
    end.

    dies_with_parent: the kernel kills the child the moment its parent dies. Not for children with children of their own
    (compilers), which they must live to kill; all children notice the death of the parent by a pipe, too.
    """

    def __init__(
        self,
        module: str,
        limits: ChildLimits,
        environment: Mapping[str, str] | None = None,
        dies_with_parent: bool = True,
    ) -> None:
        self.module, self.limits, self.environment = module, limits, dict(environment or {})
        self.dies_with_parent = dies_with_parent
        self._child: ChildProcess | None = None
        self._is_paused = self._is_over = False
        self._lock = threading.Lock()

    def call(
        self,
        message: Mapping[str, Any],
        *,
        seconds: float,
        total_seconds: float | None = None,
        on_event: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> dict[str, Any]:
        """The answer to one job. `seconds`: until the child announces something else on its progress page;
        `total_seconds`: for the whole job. The answer has "output", the text printed meanwhile. Raises SlotFailure,
        SlotError."""
        with self._lock:
            if self._is_over:
                raise SlotError("it was ended")
            if self._child is None or not self._child.alive:
                self.restart()
            assert self._child is not None
            try:
                return self._child.call(message, seconds, total_seconds or float("inf"), on_event)
            except BaseException as e:
                if not isinstance(e, SlotError):
                    self._kill()
                raise

    def start(self) -> None:
        """Starts the child where there is none. Raises SlotError."""
        with self._lock:
            if self._child is None or not self._child.alive:
                self.restart()

    def pause(self) -> None:
        """Stops the child, whatever it is at, with its process group, until `resume`: limits of seconds wait, too."""
        self._is_paused = True
        if child := self._child:
            child.pause()

    def resume(self) -> None:
        """Lets the child go on after `pause`."""
        self._is_paused = False
        if child := self._child:
            child.resume()

    def abort(self) -> None:
        """Kills the child, whatever it is at: `call` fails, and raises SlotError from then on."""
        self._is_over = True
        if child := self._child:
            child.stop()

    def restart(self) -> None:
        """Kills the child if there is one, and starts another. Raises SlotError."""
        self._kill()
        try:
            once_more(self._start)
        except SlotFailure as e:
            raise SlotError(f"a child process did not start ({e})") from e

    def _start(self) -> None:
        arguments = self.module, self.limits, self.environment, self.dies_with_parent
        started = _spawner().submit(ChildProcess, *arguments)
        try:
            self._child = started.result()
        except BaseException:  # an interrupt: the child may be there, or come to be
            self._child = None
            if not started.cancel():
                started.add_done_callback(_end_child)
            raise
        try:
            self._child.wait_ready()
        except BaseException:
            self._kill()
            raise
        if self._is_paused:  # since then
            self._child.pause()

    @property
    def is_dead(self) -> bool:
        """There was a child, and it ended without being asked."""
        return self._child is not None and not self._child.alive

    @property
    def pid(self) -> int | None:
        """Process id of the child, if there is one."""
        return self._child.process.pid if self._child else None

    def cpu_seconds(self) -> float:
        """CPU time that the child used, on all cores; 0 where there is none."""
        pid = self.pid
        try:
            return 0.0 if pid is None else time.clock_gettime(_cpu_clock(pid))
        except OSError:
            return 0.0  # it has ended

    def close(self) -> None:
        """Ends the child. The slot can be used again."""
        with self._lock:
            self._kill()

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def __enter__(self) -> "Slot":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end_child(started: Future[ChildProcess]) -> None:
    """Ends a child that nobody waited for, and removes its home."""
    if started.exception() is None:
        started.result().kill()


_spawner_of: dict[int, ThreadPoolExecutor] = {}


def _cpu_clock(pid: int) -> int:
    """Id of the clock of a process's CPU time, as clock_getcpuclockid of Linux's C libraries computes it."""
    return (~pid << 3) | 2


def _spawner() -> ThreadPoolExecutor:
    """The one thread that starts children: "die with the parent" means the parent's *thread* to Linux, and this one
    stays."""
    pid = os.getpid()
    if pid not in _spawner_of:
        # By a thread of its own: a KeyboardInterrupt, raised in the main thread between the start of the spawner's and
        # the line that lists it, would leave a thread that nobody ends, and a process that waits for it at its end.
        starter = threading.Thread(target=_start_spawner, args=(pid,))
        starter.start()
        starter.join()
    return _spawner_of[pid]


def _start_spawner(pid: int) -> None:
    spawner = ThreadPoolExecutor(1, "slot-spawner")
    spawner.submit(int).result()
    _spawner_of[pid] = spawner
