"""Layouts that were made, and those that could not be: each is made once, few at a time, and whoever asks for one that
is there waits for nobody."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from service.api.threads import Threads
from service.dashboard.layout import Layout, LayoutError

KEPT = 128  # layouts in memory, some tens of kB each
FAILURE_SECONDS = 3600.0  # then a failure is forgotten: the machine may have been busy


@dataclass(frozen=True)
class _Failure:
    text: str
    until: float


@dataclass
class Layouts:
    """One per application. `get` is called in its event loop, `threads` are where layouts are made: as many at a time
    as there are, since they are expensive and the machine is measuring.

    A key stands for all that a layout depends on, its time limit included. clock: seconds, of any beginning.
    """

    threads: Threads
    clock: Callable[[], float] = time.monotonic
    _kept: "OrderedDict[str, Layout | _Failure]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of what is kept, never while a layout is made
    _open: "dict[str, asyncio.Task[Layout]]" = field(default_factory=dict)

    async def get(self, key: str, make: Callable[[], Layout]) -> Layout:
        """The layout under `key`, by `make` where there is none yet, which blocks for seconds; others who ask meanwhile
        get the same one.

        Raises LayoutError as `make` does, again without calling it for FAILURE_SECONDS; ApiError `busy`.
        """
        task = self._open.get(key)
        if task is None:
            kept = self._find(key)
            if isinstance(kept, _Failure):
                raise LayoutError(kept.text)
            if kept is not None:
                return kept
            task = self._open[key] = asyncio.create_task(self.threads.run(self._make, key, make))
            task.add_done_callback(partial(self._ended, key))
        return await asyncio.shield(task)  # one reader who leaves does not end it for the others

    def failure(self, key: str) -> str:
        """Why there is no layout under `key`, as far as is known; "" where there is one, or nobody asked."""
        kept = self._find(key)
        return kept.text if isinstance(kept, _Failure) else ""

    def _find(self, key: str) -> Layout | _Failure | None:
        with self._lock:
            found = self._kept.get(key)
            if isinstance(found, _Failure) and self.clock() >= found.until:
                del self._kept[key]
                return None
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def _make(self, key: str, make: Callable[[], Layout]) -> Layout:
        """In a thread; what comes of it is kept even if nobody waits for it any more."""
        try:
            made = make()
        except LayoutError as error:
            if error.lasts:
                self._keep(key, _Failure(str(error), self.clock() + FAILURE_SECONDS))
            raise
        self._keep(key, made)
        return made

    def _keep(self, key: str, made: Layout | _Failure) -> None:
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _ended(self, key: str, task: "asyncio.Task[Layout]") -> None:
        del self._open[key]
        if not task.cancelled():
            task.exception()  # seen, also where all who asked have left
