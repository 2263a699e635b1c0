"""The one thread of a process in which all clients' requests are made, with its event loop and its connections."""

import asyncio
import atexit
import os
import ssl
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import httpx

MOST_CONNECTIONS = 64
KEPT_CONNECTIONS = 16
KEPT_SECONDS = 20.0  # less than the 30 s after which the server closes a connection that nothing comes on
END_SECONDS = 1.0

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
    """The result of work in the thread. An interrupt cancels it. Raises whatever it raises."""
    future = background().start(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


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
