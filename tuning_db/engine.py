"""The connection to a database: SQLite in WAL or PostgreSQL, read and written through one small class."""

import re
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVarTuple, overload

from sqlalchemy import URL, Connection, Engine, Row, create_engine, event, func, make_url, select, text
from sqlalchemy import exc as sql
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.selectable import TypedReturnsRows

from tuning_db.checks import digest, miss
from tuning_db.errors import DatabaseError
from tuning_db.models import Base
from tuning_db.sqlite_file import BUSY_SECONDS, claim, prepare_connection

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

POOL_SIZE, POOL_OVERFLOW = 16, 64  # together more than the threads of an HTTP server's pool
# How long a host that is gone is waited for, in seconds and (tcp_user_timeout) milliseconds; for one that is there and
# says nothing, there is no limit here: who asks has one.
REACHING = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
            "tcp_user_timeout": 20_000}  # fmt: skip
_SECRET = re.compile(r"(?<=password=)[^&]*", re.IGNORECASE)
_CORRUPT_SQLITE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_TOOBIG}
_CORRUPT_POSTGRESQL = {"XX001", "XX002"}  # data_corrupted, index_corrupted

# Exceptions that a database can raise. UnicodeDecodeError: Python's sqlite3, for a message that quotes damaged bytes.
FAILURES = (sql.DBAPIError, sql.TimeoutError, sqlite3.Error, UnicodeDecodeError)

Columns = TypeVarTuple("Columns")


class Database:
    """One database, usable from any thread. Reads are single statements; `write` is a transaction.

    On SQLite a write starts with BEGIN IMMEDIATE: it waits for other writers up to BUSY_SECONDS and never has to be
    rolled back because a reader became a writer. Every failure of the database itself is a DatabaseError.
    """

    def __init__(self, url: str) -> None:
        """Connects later. Raises DatabaseError for an address of another kind or a path that cannot be written."""
        parsed = _parse(url)
        self.path = Path(parsed.database or "").absolute() if parsed.get_backend_name() == "sqlite" else None
        if self.path is not None:
            claim(self.path)
            engine = _sqlite_engine(parsed.set(database=str(self.path)))
            self._reader = engine
            self._writer = engine.execution_options(fuseplan_begin="BEGIN IMMEDIATE")
            self.place = str(self.path)
        else:
            self._reader, self._writer = _postgresql_engines(parsed)
            self.place = shown(parsed.render_as_string(hide_password=True))

    def close(self) -> None:
        """Closes idle connections; on SQLite the last one of all processes folds the write-ahead log into the file."""
        self._reader.dispose()
        self._writer.dispose()

    @overload
    def rows(self, statement: TypedReturnsRows[*Columns]) -> Sequence[Row[*Columns]]: ...
    @overload
    def rows(self, statement: str) -> Sequence[Row[Any]]: ...
    def rows(self, statement: Any) -> Any:
        """Every row of one SELECT, text or not."""
        with self._explained():
            return self._read(statement)

    @overload
    def cached(
        self, table: str, key: str, statement: TypedReturnsRows[*Columns], values: Mapping[str, Any] | None = None
    ) -> Sequence[Row[*Columns]]: ...
    @overload
    def cached(
        self, table: str, key: str, statement: str, values: Mapping[str, Any] | None = None
    ) -> Sequence[Row[Any]]: ...
    def cached(self, table: str, key: str, statement: Any, values: Mapping[str, Any] | None = None) -> Any:
        """Every row of one SELECT from a table of the cache: none, and a line in the log, where they cannot be read."""
        try:
            return self._read(statement, values)
        except FAILURES as error:
            cause = _cause(error)
            if not _is_corruption(cause):
                raise self.explain(error) from error
            miss(table, key, str(cause))
            return ()

    def miss(self, table: str, key: str, reason: str) -> None:
        """Logs and counts a row that does not verify, see `Reader`."""
        miss(table, key, reason)

    def _read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Once more where the connection was one of before, and nobody is at its other end any more."""
        statement = text(statement) if isinstance(statement, str) else statement
        try:
            with self._reader.connect() as connection:
                return connection.execute(statement, values).all()
        except sql.DBAPIError as error:
            if not error.connection_invalidated:
                raise
        with self._reader.connect() as connection:
            return connection.execute(statement, values).all()

    @contextmanager
    def write(self) -> Generator[Connection]:
        """A transaction, committed when the block ends without an exception."""
        with self._explained(), self._writer.begin() as connection:
            yield connection

    def serialize(self, connection: Connection, what: str) -> None:
        """Takes the lock named `what` until the transaction ends; others that ask for it wait. SQLite needs no lock: it
        has one writer anyway."""
        if self.path is None:
            lock = int(digest(what)[:15], 16)
            connection.execute(select(func.pg_advisory_xact_lock(lock)))

    def insert(self, table: type[Base]) -> "sqlite.Insert | postgresql.Insert":
        """An INSERT that knows ON CONFLICT, in this database's dialect."""
        if self.path is not None:
            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415  SQLite does without

        return postgresql.insert(table)

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except FAILURES as error:
            raise self.explain(error) from error

    def explain(self, error: Exception) -> DatabaseError:
        """The error for a person: the place, then the driver's own words."""
        cause = _cause(error)
        words = " ".join(str(cause).split())
        if "readonly database" in words or "unable to open" in words:
            words += " (the file and its folder must both be writable)"
        elif _code(cause) == sqlite3.SQLITE_NOTADB:
            words = (
                "the file is no SQLite database; see first whether the path is the one you mean, and leave the file as "
                "it is where it is not; a damaged database is replaced by a backup"
            )
        elif _is_corruption(cause):
            words += "; restore a backup, or move the file away: plans can be made anew"
        return DatabaseError(f"database {self.place}: {words}")


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (sql.ArgumentError, ValueError) as error:
        expected = "expected sqlite:///PATH or postgresql://..."
        raise DatabaseError(f"not a database address: {expected}, got {shown(url)}") from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise DatabaseError(f"database {shown(url)}: expected sqlite or postgresql, got {parsed.drivername}")
    if parsed.get_backend_name() == "sqlite" and (parsed.database in (None, "", ":memory:") or parsed.query):
        raise DatabaseError(f"database {shown(url)}: expected a file, as in sqlite:////var/lib/fuseplan/plans.db")
    return parsed


def shown(url: str) -> str:
    """The address without what may be a password: `postgresql://me:***@host/plans?password=***`."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.startswith("sqlite"):
        return url
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}{':***' if colon else ''}{at}{_SECRET.sub('***', place)}"


def _sqlite_engine(url: URL) -> Engine:
    # isolation_level None: the driver starts no transactions of its own.
    arguments = {"timeout": BUSY_SECONDS, "isolation_level": None}
    engine = create_engine(url, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW, connect_args=arguments)

    def connected(connection: sqlite3.Connection, _record: object) -> None:
        prepare_connection(connection)

    def begins(connection: Connection) -> None:
        statement: str | None = connection.get_execution_options().get("fuseplan_begin")
        if statement is not None:
            connection.exec_driver_sql(statement)

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begins)
    return engine


def _postgresql_engines(url: URL) -> tuple[Engine, Engine]:
    """The engines for reads and for writes. A write finds out first whether its connection still has a server, which is
    a round trip; a read just asks, and asks again where there was none: a hit is one round trip."""
    options: Any = {"pool_size": POOL_SIZE, "max_overflow": POOL_OVERFLOW, "connect_args": dict(REACHING)}
    try:
        return (
            create_engine(url, isolation_level="AUTOCOMMIT", **options),
            create_engine(url, pool_pre_ping=True, **options),
        )
    except ImportError as error:
        raise DatabaseError(f"PostgreSQL needs psycopg: pip install 'fuseplan[postgres]' ({error})") from error


def _cause(error: BaseException) -> BaseException:
    """The driver's own error."""
    return error.orig if isinstance(error, sql.DBAPIError) and error.orig is not None else error


def _code(cause: BaseException) -> int | None:
    """SQLite's primary result code, None where it is no error of SQLite's."""
    code: int | None = getattr(cause, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _is_corruption(cause: BaseException) -> bool:
    """Whether the driver says that what is stored cannot be read, as opposed to being away or busy."""
    if isinstance(cause, sqlite3.Error):
        code = _code(cause)
        return "decode to UTF-8" in str(cause) if code is None else code in _CORRUPT_SQLITE
    return isinstance(cause, UnicodeDecodeError) or getattr(cause, "sqlstate", None) in _CORRUPT_POSTGRESQL
