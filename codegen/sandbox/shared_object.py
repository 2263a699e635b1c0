"""Loading compiled files into a process: what was checked is what is loaded, whatever becomes of the file meanwhile."""

import atexit
import ctypes
import os
import shutil
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

from codegen.sandbox.object_cache import object_bytes, object_digest

_loads = count()


def load_object(file: Path | str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Loads an object of the cache, for good, and once. Raises OSError where its content is not what its name says, or
    is nothing to load."""
    return _load(object_digest(file), str(file), mode)


@cache
def _load(digest: str, file: str, mode: int) -> ctypes.CDLL:
    """Reads once, checks, and loads a copy that nobody else can reach: between a look at a file and its being loaded
    somebody could have put another in its place."""
    copy = os.memfd_create(f"fuseplan-{digest[:12]}", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(copy), "wb") as out:
            out.write(object_bytes(file))
        return ctypes.CDLL(_name(copy), mode=mode)
    finally:
        os.close(copy)  # what is loaded stays


def private_copy(file: Path | str) -> Path:
    """A copy of an object of the cache, for those who load files by themselves. Raises OSError as `load_object`."""
    copy = _folder() / object_digest(file)
    copy.write_bytes(object_bytes(file))
    return copy


@cache
def _folder() -> Path:
    """A folder for this process's copies, which no other user can reach; removed when the process ends."""
    folder = Path(mkdtemp(prefix="fuseplan-objects-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _name(descriptor: int) -> str:
    """A path to a descriptor that was never used before: the loader does not load a path twice, whatever file is there
    now, and the system uses descriptors again. Slashes with and without a dot are the digits of a number."""
    digits = "".join("/." if digit == "1" else "/" for digit in f"{next(_loads):024b}")
    return f"/proc/self/fd{digits}/{descriptor}"
