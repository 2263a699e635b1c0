"""Hits from a SQLite file, read by sqlite3 alone: SQLAlchemy takes longer to import than the rest of a hit takes."""

import json
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any

from tuning_db.logs import warn
from tuning_db.reading.answers import resolve
from tuning_db.reading.content import verify
from tuning_db.reading.counting import COUNT
from tuning_db.reading.graphs import verifies
from tuning_db.reading.seal import BYTES, NAME, SEAL
from tuning_db.requests import Conditions, RequestKey, Resolved
from tuning_db.revisions import revisions
from tuning_db.sqlite_file import BUSY_SECONDS, claim, prepare_connection

_PLAIN = re.compile(r"sqlite:///(?P<path>[^?#%]+)")  # what means the same to everybody who reads addresses
_REVISION = "SELECT version_num FROM alembic_version"


class _NotPlain(Exception):
    """Something that a `Store` has to look at: damage, tables of another revision."""


class SqliteHits:
    """One SQLite file, opened to answer one request from what is stored, or to leave it to a `Store`.

    It gives what `Plans.resolve` gives, counts the hit as that does, and knows one more answer: that this is no plain
    hit. It then says nothing, changes nothing, and logs nothing: the `Store` that is asked next will.
    """

    def __init__(self, connection: sqlite3.Connection, place: str, seal: bytes) -> None:
        """Made by `opened`. place: the file; seal: `Store.seal`."""
        self._connection = connection
        self.place = place
        self.seal = seal

    @staticmethod
    def opened(url: str) -> "SqliteHits | None":
        """None where the address is of another kind, there is no file, or its tables are not those of this version.
        Raises DatabaseError for a file that others can write."""
        match = _PLAIN.fullmatch(url)
        path = Path(match["path"]).absolute() if match else None
        if path is None or not path.is_file():
            return None
        claim(path)
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(closing(sqlite3.connect(path, timeout=BUSY_SECONDS)))
                connection.isolation_level = None  # the driver starts no transactions of its own
                prepare_connection(connection)
                held = connection.execute(_REVISION).fetchall()
                seal = dict(connection.execute(SEAL).fetchall()).get(NAME)
            except (sqlite3.Error, UnicodeDecodeError):
                return None
            if held != [(revisions()[-1],)] or not isinstance(seal, bytes) or len(seal) != BYTES:
                return None
            stack.pop_all()
        return SqliteHits(connection, str(path), seal)

    def __enter__(self) -> "SqliteHits":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def resolve(
        self, request: RequestKey, now: Conditions, seconds: float, clock: Callable[[], float] = time.time
    ) -> Resolved | None:
        """`Plans.resolve` of a request whose plan is whole, of now, and due for no other search; None for any other.
        clock: seconds since 1970."""
        try:
            found = resolve(self, request, now, seconds)
            if found is None or found.due or found.state == "stale" or not verifies(self, request.graph_key):
                return None
            steps = json.loads(found.body)["steps"]
            binaries, sources = ({step[name] for step in steps if step[name]} for name in ("binary", "source"))
            if not verify(self, found.plan_key, binaries, sources):
                return None
        except (_NotPlain, sqlite3.Error, UnicodeDecodeError):
            return None
        self._count(found, clock())
        return found

    def cached(self, table: str, key: str, statement: str, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Every row of one SELECT, see `Reader`."""
        return self._connection.execute(statement, values or {}).fetchall()

    def miss(self, table: str, key: str, reason: str) -> None:
        """Ends the attempt, see `Reader`."""
        raise _NotPlain

    def _count(self, found: Resolved, at: float) -> None:
        try:
            self._connection.execute(COUNT, {"count": 1, "at": at, "request": found.request.digest})
        except sqlite3.Error as error:
            warn("hits were not written", error=str(error), requests=1)
