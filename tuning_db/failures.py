"""Searches that ended without a plan: they are not made again until something that they depend on changes.

A failure holds for the request (graph, device and limits), the conditions (driver, toolchain, version) and as many
seconds as the search had.
"""

import time
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, select

from tuning_db.checks import checksum, miss, storable
from tuning_db.engine import Database
from tuning_db.models import FailureRow
from tuning_db.requests import Conditions, RequestKey


@dataclass(frozen=True, slots=True)
class Failure:
    """A search that ended without a plan. error: the service's words, as JSON, or the queue's. created: seconds since
    1970."""

    error: str
    created: float


@dataclass(frozen=True, slots=True)
class FailureKey:
    """The key under which a search's failure is noted: its request, its conditions, and the seconds that it has."""

    request: RequestKey
    conditions: Conditions
    had_s: float


_ONE = select(FailureRow.conditions, FailureRow.had_s, FailureRow.error, FailureRow.created, FailureRow.checksum).where(
    FailureRow.key == bindparam("key")
)


class Failures:
    """Searches that ended without a plan."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, request: RequestKey, now: Conditions, had_s: float, error: str) -> None:
        """Notes that a search with `had_s` seconds ended without a plan, in place of an earlier note on the request."""
        with self._database.write() as connection:
            note(self._database, connection, request.digest, now.json(), had_s, Failure(error, time.time()))

    def failure(self, request: RequestKey, now: Conditions, seconds: float) -> Failure | None:
        """The failure of an earlier search that a search of `seconds` would repeat; None where that is open."""
        for conditions, had_s, error, created, check in self._database.cached(
            "failures", request.digest, _ONE, {"key": request.digest}
        ):
            if checksum(request.digest, conditions, had_s, error, created) != check:
                miss("failures", request.digest, "checksum")
            elif conditions == now.json() and seconds <= had_s:
                return Failure(error, created)
        return None

    def forget(self, request: RequestKey) -> bool:
        """Deletes the failure noted for a request, so that the next request searches again. False: none was noted."""
        with self._database.write() as connection:
            return connection.execute(delete(FailureRow).where(FailureRow.key == request.digest)).rowcount > 0


def note(
    database: Database, connection: Connection, request: str, conditions: str, had_s: float, failure: Failure
) -> None:
    """`Failures.put` in a transaction: request is the digest of one, conditions are JSON."""
    values = {
        "conditions": conditions,
        "had_s": float(had_s),
        "error": storable(failure.error),
        "created": failure.created,
    }
    row = values | {"key": request, "checksum": checksum(request, *values.values())}
    insert = database.insert(FailureRow).values(**row)
    connection.execute(insert.on_conflict_do_update(index_elements=["key"], set_=row))
