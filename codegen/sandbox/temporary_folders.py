"""Temporary folders that go with the process that made them: when it is done with them, when it ends, or, if it was
killed, when the next process makes one.

A process holds a lock on each of its folders, which the system gives back however the process ends: a folder that
somebody else can lock is nobody's.
"""

import atexit
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

PREFIX = "fuseplan-temporary-"  # of these alone: folders without a lock, as others make them, may be in use


@dataclass(frozen=True, slots=True)
class _Held:
    """A folder in use: the process that made it, and the descriptor that its lock is on; None where the file system has
    no locks."""

    maker: int
    lock: int | None


_held: dict[str, _Held] = {}
_swept: set[str] = set()  # places for temporary folders that this process has looked through


@contextmanager
def temporary_folder() -> Generator[str]:
    """An empty folder, removed with the block."""
    folder = make_folder()
    try:
        yield folder
    finally:
        remove_folder(folder)


def make_folder() -> str:
    """An empty folder, which no other user can reach, until `remove_folder` or the end of the process."""
    if tempfile.gettempdir() not in _swept:
        _swept.add(tempfile.gettempdir())
        sweep()
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        _held[folder] = _Held(os.getpid(), None)
        try:
            _held[folder] = _Held(os.getpid(), _lock(folder))
        except (BlockingIOError, FileNotFoundError):  # another process found it before it was locked, and removes it
            del _held[folder]
        else:
            return folder


def remove_folder(folder: str) -> None:
    """Removes a folder of `make_folder` with all that is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    held = _held.pop(folder, None)
    if held is not None and held.lock is not None:
        os.close(held.lock)


def sweep() -> None:
    """Removes the folders of this user's processes that were killed."""
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for folder in found:
        with suppress(OSError):  # in use, somebody else's, or gone meanwhile
            lock = _lock(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock(folder: str) -> int | None:
    """A descriptor that locks the folder as long as it is open. None where the file system has no locks. Raises
    BlockingIOError where another descriptor does, FileNotFoundError where the folder is gone, PermissionError for
    another user's."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(folder)  # who held the lock until now may have removed it
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.ENOLCK, errno.ENOTSUP):
            return None
        raise
    return descriptor


@atexit.register
def _remove_all() -> None:
    """Removes the folders that are left, such as one whose removal an interrupt struck."""
    for folder, held in list(_held.items()):
        if held.maker == os.getpid():
            remove_folder(folder)
