"""The one door to the database: plans, graphs, devices, measurements, the queue, and batches."""

import time
from collections.abc import Callable
from types import TracebackType

from sqlalchemy import select, true

from tuning_db import cache_seal as seals
from tuning_db import checks, schema
from tuning_db.batches import Batches
from tuning_db.devices import Devices
from tuning_db.engine import Database
from tuning_db.errors import DatabaseError
from tuning_db.failures import Failures
from tuning_db.graphs import Graphs
from tuning_db.lately_verified import LatelyVerified
from tuning_db.measurements import Trials
from tuning_db.operations import Operations
from tuning_db.plans import Plans
from tuning_db.refusals import Refusals
from tuning_db.segments import Segments


class Store:
    """Usable from any thread; every process opens its own. Close it, or use it as a context manager.

    plans: with what they are made of, and the requests that they answer. refusals: of plans, by clients. graphs,
    devices: those that plans are for. failures: of searches that ended without a plan. segments, trials: parts of
    graphs, and every candidate that was tried for them. queue: operations that workers take. batches: requests that
    were sent together.

    Every method of these raises DatabaseError where the database is away, busy for too long, full or not writable.
    Damaged rows of the cache (plans, graphs, binaries, sources, measurements, devices) are logged and count as missing.
    """

    def __init__(self, url: str, *, upgrade: bool = False, clock: Callable[[], float] = time.time) -> None:
        """Opens `sqlite:///PATH` or `postgresql://...`, creating the tables where there are none.

        An older SQLite file is upgraded, after a copy; an older PostgreSQL database only with `upgrade`. Raises
        DatabaseError for a path that cannot be written, a file that is no database, and a newer schema.
        """
        self._database = Database(url)
        try:
            schema.prepare(self._database, upgrade=upgrade)
        except BaseException:
            self._database.close()
            raise
        verified = LatelyVerified(clock)
        self.failures = Failures(self._database)
        self.plans = Plans(self._database, self.failures, verified, clock)
        self.refusals = Refusals(self._database)
        self.graphs = Graphs(self._database, verified)
        self.devices = Devices(self._database)
        self.segments = Segments(self._database)
        self.trials = Trials(self._database)
        self.queue = Operations(self._database, clock)
        self.batches = Batches(self._database, clock)

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Writes the hits counted so far and closes the connections."""
        self.plans.close()
        self._database.close()

    @property
    def place(self) -> str:
        """The file, or the address without its password."""
        return self._database.place

    def upgrade(self) -> str:
        """Brings the tables to the newest revision, unless they have it already, and returns that revision."""
        schema.prepare(self._database, upgrade=True)
        return self.revision()

    def revision(self) -> str:
        """The revision of the tables."""
        revision = schema.current(self._database)
        if revision is None:
            raise DatabaseError(f"database {self.place} has lost its tables")
        return revision

    def ping(self) -> None:
        """Raises DatabaseError unless the database answers."""
        self._database.rows(select(true()))

    def seal(self) -> bytes:
        """The database's secret for object caches, shared by all processes that use the database."""
        return seals.seal(self._database)

    @staticmethod
    def damaged() -> dict[str, int]:
        """How many rows this process found damaged, by table."""
        return checks.missed()
