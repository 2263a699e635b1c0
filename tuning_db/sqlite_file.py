"""The file of a SQLite database: whether we may trust it, and how a connection to it begins."""

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from fusion_ir.ownership import Exposed, check_file, make_private
from tuning_db.errors import DatabaseError

BUSY_SECONDS = 30
_BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite keeps beside a database, with its mode


def claim(path: Path) -> None:
    """Sees to it that the file can be written, by us alone: what it holds is decisions that we follow, and code."""
    try:
        make_private(path.parent)
        _make(path)
        for file in (path, *(path.with_name(path.name + suffix) for suffix in _BESIDE)):
            check_file(file)
            with suppress(FileNotFoundError):  # the last who uses a database removes the others
                if file.stat().st_uid == os.geteuid():
                    file.chmod(0o600)
    except Exposed as error:
        raise DatabaseError(f"database {path} cannot be trusted: {error}") from error
    except (OSError, ValueError) as error:
        raise DatabaseError(f"database {path} cannot be written: {error}") from error


def _make(path: Path) -> None:
    """Makes the file where there is none, else sees whether it can be written, without opening it.

    Whoever closes a descriptor of a file drops all locks that its process has on it (POSIX), SQLite's among them:
    another process would then take itself for the last one, and remove the write-ahead log that this one still writes.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        number = errno.EISDIR if path.is_dir() else errno.EACCES
        if number == errno.EISDIR or not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
            raise OSError(number, os.strerror(number)) from None


def prepare_connection(connection: sqlite3.Connection) -> None:
    """Sets what a connection does not keep in the file. WAL with synchronous=NORMAL: what was committed survives the
    death of the process by any signal; a power failure may take the last commits, never the file's consistency."""
    for pragma in ("foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}").close()
