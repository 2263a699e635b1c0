"""Taking turns: processes that share a cache folder time on a device one after the other, never beside each other.
Likewise with the schedules of a segment, lest two choose the same.

The locks are the kernel's (flock): they end with the process that holds them, however it ends, and children do not
inherit them.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from codegen.sandbox.object_cache import CacheError, ObjectCache

STRIPES = 1024  # of locks for segments: files of their own would never be removed


def device_turn(cache: ObjectCache, device_key: str) -> AbstractContextManager[None]:
    """Holds the device for the block, after everybody who asked before. Raises CacheError where nothing can be
    locked."""
    return turn_in(cache.devices, device_key)


def segment_turn(cache: ObjectCache, device_key: str, segment_key: str) -> AbstractContextManager[None]:
    """Holds a segment for the block, on devices of one class, and with it the segments that share its lock (one of
    `STRIPES`). The holder of a segment may ask for the device, never the other way round. Raises CacheError where
    nothing can be locked."""
    return turn_in(cache.devices, f"{device_key}.segments-{int(segment_key[:8], 16) % STRIPES}")


@contextmanager
def turn_in(folder: Path, name: str) -> Generator[None]:
    """The turn that files of this name in a folder stand for: for a child that takes turns itself.

    Whoever waits holds the place at the head of the queue. So a process that is through with one job and asks for the
    next comes after the one that waited, however quickly it asks."""
    with ExitStack() as turn:
        with _locked(folder / f"{name}.queue"):
            turn.enter_context(_locked(folder / f"{name}.lock"))
        yield


@contextmanager
def _locked(file: Path) -> Generator[None]:
    with _opened(file) as opened:  # closing it unlocks it
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
        except OSError as e:
            raise CacheError(f"{file} cannot be locked: {e.strerror}") from e
        yield


def _opened(file: Path) -> BinaryIO:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "rb+")
    except OSError as e:
        raise CacheError(f"{file} cannot be opened: {e.strerror}") from e
