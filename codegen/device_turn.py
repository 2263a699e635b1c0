"""Taking turns on a device: processes that share a cache folder time one after the other, never beside each other.

The locks are the kernel's (flock): they end with the process that holds them, however it ends, and children do not
inherit them.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from codegen.object_cache import CacheError, ObjectCache


@contextmanager
def device_turn(cache: ObjectCache, device_key: str) -> Generator[None]:
    """Holds the device for the block, after everybody who asked before. Raises CacheError where nothing can be locked.

    Whoever waits for the device holds the place at the head of the queue. So a process that is through with one job
    and asks for the next comes after the one that waited, however quickly it asks.
    """
    with ExitStack() as turn:
        with _locked(cache.devices / f"{device_key}.queue"):
            turn.enter_context(_locked(cache.devices / f"{device_key}.lock"))
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
        return os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "rb+")
    except OSError as e:
        raise CacheError(f"{file} cannot be opened: {e.strerror}") from e
