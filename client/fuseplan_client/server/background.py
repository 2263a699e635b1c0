"""The one thread of a process in which all clients' requests are made, with its event loop and its connections."""

import asyncio
import atexit
import os
import ssl
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

import httpx

from fuseplan_client.server.errors import PlanServerError

MOST_CONNECTIONS = 64
KEPT_CONNECTIONS = 16
KEPT_SECONDS = 20.0  # less than the 30 s after which the server closes a connection that nothing comes on
END_SECONDS = 1.0
DROPPED = "the thread that makes requests has ended, as the interpreter does"
LOOK_SECONDS = 1.0  # between looks whether the thread is still there

T = TypeVar("T")


class Background:
    """An event loop in a thread of its own, and one pool of connections for each scheme."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pools: dict[str, httpx.AsyncClient] = {}
        self._thread = threading.Thread(target=self._run, name="fuseplan-client", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still takes work."""
        return self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begins work in the thread. The future may be cancelled, which cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def check(self, future: "Future[Any]") -> None:
        """Raises PlanServerError where the thread has ended before this work."""
        if not self.is_alive and not future.done():
            raise PlanServerError(DROPPED)

    def pool(self, scheme: str) -> httpx.AsyncClient:
        """The connections for "http" or "https", kept for all clients of the process. To be called in the thread.

        Proxies and credentials of the environment are not used, and redirects are not followed.
        """
        if scheme not in self._pools:
            self._pools[scheme] = httpx.AsyncClient(
                trust_env=False,
                verify=ssl.create_default_context() if scheme == "https" else False,
                follow_redirects=False,
                limits=httpx.Limits(
                    max_connections=MOST_CONNECTIONS,
                    max_keepalive_connections=KEPT_CONNECTIONS,
                    keepalive_expiry=KEPT_SECONDS,
                ),
                headers={"Accept-Encoding": "identity", "User-Agent": "fuseplan-client"},
            )
        return self._pools[scheme]

    def stop(self) -> None:
        """Ends the thread. Requests under way are cancelled, connections closed, both within END_SECONDS."""
        if self._thread.is_alive():
            self.start(self._end())
            self._thread.join(END_SECONDS)
        if not self._thread.is_alive() and not self.loop.is_closed():
            self.loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, *(pool.aclose() for pool in self._pools.values()), return_exceptions=True)
        self.loop.call_soon(self.loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


_current: Background | None = None
_lock = threading.Lock()
# Never closed: the child of a fork shares the selector with its parent, and closing its loop would change the parent's.
_of_parents: list[Background] = []


def background() -> Background:
    """The process's own thread, begun where there is none."""
    global _current
    with _lock:
        if _current is None or not _current.is_alive:
            _current = Background()
        return _current


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of work in the thread. An interrupt cancels it. Raises PlanServerError alone."""
    own, future = _begun(work)
    try:
        while not future.done():
            with suppress(TimeoutError):
                future.exception(LOOK_SECONDS)
            own.check(future)
        return future.result()
    except CancelledError as e:
        raise PlanServerError(DROPPED) from e
    except BaseException:
        future.cancel()
        raise


async def run_async(work: Coroutine[Any, Any, T]) -> T:
    """`run` for coroutines of any loop. A task that is cancelled cancels the work."""
    own, future = _begun(work)
    wrapped = asyncio.wrap_future(future)
    try:
        while not wrapped.done():
            await asyncio.wait([wrapped], timeout=LOOK_SECONDS)
            own.check(future)
        if wrapped.cancelled():
            raise PlanServerError(DROPPED)
        return await wrapped
    except BaseException:
        future.cancel()
        raise


def _begun(work: Coroutine[Any, Any, T]) -> "tuple[Background, Future[T]]":
    """Raises PlanServerError where no thread can be begun, as while the interpreter ends."""
    guarded = _guarded(work)
    try:
        own = background()
        return own, own.start(guarded)
    except RuntimeError as e:
        guarded.close()
        work.close()
        raise PlanServerError(f"the thread that makes requests cannot be begun: {e}") from e


async def _guarded(work: Coroutine[Any, Any, T]) -> T:
    """Whatever goes wrong in a way that nobody thought of is an error of this room, too."""
    try:
        return await work
    except PlanServerError:
        raise
    except Exception as e:
        raise PlanServerError(f"the request failed: {type(e).__name__}: {e}") from e


def _begin_child() -> None:
    """A child of a fork has none of its parent's threads, and must not use its parent's connections."""
    global _current, _lock
    if _current is not None:
        _of_parents.append(_current)
    _current, _lock = None, threading.Lock()


def _end() -> None:
    if _current is not None:
        _current.stop()


os.register_at_fork(after_in_child=_begin_child)
atexit.register(_end)
