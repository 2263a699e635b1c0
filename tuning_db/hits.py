"""Counting hits without a write on the hot path: counts gather in memory and are written in batches."""

import atexit
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import text

from tuning_db.answers import mark_stale
from tuning_db.engine import Database
from tuning_db.errors import DatabaseError
from tuning_db.logs import warn
from tuning_db.reading.counting import COUNT
from tuning_db.requests import Resolved

FLUSH_SECONDS = 1.0


@dataclass(slots=True)
class _Count:
    hits: int = 0
    at: float = 0.0
    stale_plan: str | None = None  # the plan that was served as stale


class HitCounter:
    """Counts in memory; a thread of its own, started by the first hit, writes every FLUSH_SECONDS and at `close`.

    A process that is killed loses the counts of its last FLUSH_SECONDS: they are statistics, no more.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, _Count] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hit(self, resolved: Resolved) -> None:
        """Counts one hit; remembers that a plan stored as measured was served as stale."""
        with self._lock:
            count = self._counts.setdefault(resolved.request.digest, _Count())
            count.hits += 1
            count.at = self._clock()
            if resolved.state == "stale" and resolved.due:
                count.stale_plan = resolved.plan_key
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="tuning_db-hits", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def flush(self) -> None:
        """Writes what was counted so far. Where the database refuses, the counts are kept for the next time."""
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return
        # Sorted: two processes that lock rows in one order do not block each other for good.
        rows = [{"request": key, "count": c.hits, "at": c.at} for key, c in sorted(counts.items())]
        try:
            with self._database.write() as connection:
                connection.execute(text(COUNT), rows)
        except DatabaseError as error:
            warn("hits were not written", error=str(error), requests=len(rows))
            self._put_back(counts)
            return
        try:
            for key, count in counts.items():
                if count.stale_plan is not None:
                    mark_stale(self._database, key, count.stale_plan)
        except DatabaseError as error:  # the next reader finds the same and tries again
            warn("stale answers were not marked", error=str(error))

    def close(self) -> None:
        """Stops the thread and writes what is left."""
        atexit.unregister(self.close)
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.flush()

    def _put_back(self, counts: dict[str, _Count]) -> None:
        with self._lock:
            for key, count in counts.items():
                kept = self._counts.setdefault(key, _Count())
                kept.hits += count.hits
                kept.at = max(kept.at, count.at)
                kept.stale_plan = kept.stale_plan or count.stale_plan

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_SECONDS):
            self.flush()
