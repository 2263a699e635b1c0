"""The revision of a database's tables: which one it holds, whether the database is ours, and the upgrade to another."""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from tuning_db.engine import BUSY_SECONDS, FAILURES, Database
from tuning_db.errors import DatabaseError
from tuning_db.revisions import revisions


def current(database: Database) -> str | None:
    """The revision that the database holds, None for an empty one. DatabaseError where it cannot be read."""
    with database.write() as connection:
        return _current(connection)


def revision_of(url: str) -> str | None:
    """`current` of the database at an address, without the upgrade that opening a `Store` brings."""
    database = Database(url)
    try:
        return current(database)
    finally:
        database.close()


def prepare(database: Database, *, upgrade: bool, target: str | None = None) -> None:
    """Brings the tables to revision `target` (the newest by default); other processes may call it at once.

    An empty database is filled; an older SQLite file is upgraded after a copy `<file>.<revision>.<time>.backup` was
    made beside it; an older PostgreSQL database only where `upgrade` says so, since nobody here can copy it first.
    Raises DatabaseError for a revision that this version does not know, and for another program's database.
    """
    known = revisions()
    target = target or known[-1]
    if database.path is not None:
        _use_wal(database, database.path)
    with database.write() as connection:
        database.serialize(connection, "fuseplan schema")
        held = _current(connection)
        if held == target:
            return
        if held is not None and held not in known:
            raise DatabaseError(
                f"database {database.place} has schema revision {held}; this version of Fuseplan knows up to "
                f"{known[-1]}. It was written by a newer version: install that version, or name another database"
            )
        tables = inspect(connection).get_table_names()
        if held is None and tables:
            raise DatabaseError(
                f"database {database.place} belongs to another program (it holds {', '.join(sorted(tables)[:3])}): "
                "name another database"
            )
        if held is not None and known.index(held) > known.index(target):
            raise DatabaseError(f"database {database.place} has schema revision {held}, newer than {target}")
        if held is not None and database.path is not None:
            _back_up(database.path, held)
        elif held is not None and not upgrade:
            raise DatabaseError(
                f"database {database.place} has schema revision {held}, this version of Fuseplan needs {target}: "
                "make a backup (pg_dump), then run `fuseplan db upgrade`"
            )
        from tuning_db.upgrading import upgrade_to  # noqa: PLC0415  Alembic, which takes longer than a hit does

        upgrade_to(connection, target)


def _current(connection: Connection) -> str | None:
    """The revision that Alembic noted in the database; None where it noted none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    heads = connection.execute(text("SELECT version_num FROM alembic_version")).scalars()
    return "+".join(sorted(heads)) or None


def _use_wal(database: Database, path: Path) -> None:
    """Turns on the write-ahead log, a property of the file. SQLite does not wait for others here, so we do."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                return
        except FAILURES as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise database.explain(error) from error
            time.sleep(0.02)


def _back_up(path: Path, held: str) -> Path:
    """A consistent copy beside the file; the caller holds the write lock, so nothing is half done in it."""
    copy = path.with_name(f"{path.name}.{held}.{time.strftime('%Y%m%dT%H%M%S')}.backup")
    partial = copy.with_name(copy.name + ".partial")
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as target:
            source.backup(target)
        partial.replace(copy)
    except (OSError, sqlite3.Error) as error:
        raise DatabaseError(f"database {path} was not upgraded: {copy} cannot be written: {error}") from error
    return copy
