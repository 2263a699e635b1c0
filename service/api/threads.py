"""A few threads for calls that would block the event loop, with a bounded queue and a deadline for each call.

A call that has not ended at its deadline is given up by whoever waits for it, while its thread goes on: a database that
stands still holds these threads and nothing else. Threads are daemons: they do not keep a server from ending.
"""

import asyncio
import functools
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from fastapi import Request

from service.errors import ApiError

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Threads:
    """`size` threads, `waiting` calls that may wait for one; `seconds` for each call, its time in the queue included.

    slug: that of the problem where there is no answer in time, or no place in the queue. what: the subject of the
    problem's text, such as "The database".
    """

    size: int
    waiting: int
    seconds: float
    slug: str
    what: str
    _jobs: "queue.SimpleQueue[Callable[[], None] | None]" = field(default_factory=queue.SimpleQueue)
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: int = 0  # calls that wait or run

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls `function` in a thread with the deadline `self.seconds` and returns its result. Raises ApiError `slug`,
        and whatever `function` raises."""
        return await self.within(self.seconds, function, *args, **kwargs)

    async def within(self, seconds: float, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`run` with the deadline `seconds` in place of `self.seconds`."""
        future = self._submit(functools.partial(function, *args, **kwargs))
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not limit.expired():
                raise  # the call's own
            raise ApiError(self.slug, f"{self.what} did not answer within {seconds:g} s.") from None

    def close(self) -> None:
        """Ends threads as they finish what they do; waits for none."""
        with self._lock:
            for _ in self._threads:
                self._jobs.put(None)
            self._threads.clear()

    def _submit(self, function: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def work() -> None:
            settle: Callable[[], None] | None = None
            if future.set_running_or_notify_cancel():
                try:
                    settle = functools.partial(future.set_result, function())
                except BaseException as error:
                    settle = functools.partial(future.set_exception, error)
            with self._lock:
                self._open -= 1  # before its caller knows, who may have the next call already
            if settle is not None:
                settle()

        with self._lock:
            if self._open >= self.size + self.waiting:
                raise ApiError(self.slug, f"{self._open} calls wait for {self.what[0].lower() + self.what[1:]}.")
            self._open += 1
            if self._open > len(self._threads) < self.size:
                self._threads.append(threading.Thread(target=self._run, name=self.slug, daemon=True))
                self._threads[-1].start()
        self._jobs.put(work)
        return future

    def _run(self) -> None:
        while (work := self._jobs.get()) is not None:
            work()


def in_threads(kind: str) -> Callable[[Callable[..., T]], Callable[..., Awaitable[T]]]:
    """Makes an endpoint that blocks one that waits: its body runs in the context's threads of this name.

    `def get(request, plan_key)` -> `async def get(request, plan_key)`
    """

    def made(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
        @functools.wraps(endpoint)
        async def call(*args: Any, **kwargs: Any) -> T:
            request: Request = kwargs["request"]
            threads: Threads = getattr(request.app.state.context, kind)
            return await threads.run(endpoint, *args, **kwargs)

        return call

    return made


blocking = in_threads("database")
