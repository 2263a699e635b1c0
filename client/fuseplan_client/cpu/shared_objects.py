"""Loading compiled code into this process: only bytes that hash to the name that a plan has for them, and each once."""

import ctypes
import hashlib
import os
import threading
from itertools import count

_loaded: dict[str, ctypes.CDLL] = {}
_lock = threading.Lock()
_loads = count()


class ObjectError(OSError):
    """A file of code is not what its name says, or cannot be loaded here; says why."""


def load_object(sha256: str, data: bytes) -> ctypes.CDLL:
    """Loads a shared object, for good, and once in a process. Raises ObjectError where the bytes have another sha256,
    or are nothing to load."""
    with _lock:
        if sha256 not in _loaded:
            check_digest(sha256, data)
            _loaded[sha256] = _load(sha256, data)
        return _loaded[sha256]


def check_digest(sha256: str, data: bytes) -> None:
    """Raises ObjectError unless the bytes have this sha256."""
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ObjectError(f"expected a binary of sha256 {sha256}, got one of {found}")


def entry_address(library: ctypes.CDLL, name: str) -> int:
    """Address of a function of a loaded object. Raises ObjectError where it has none of this name."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise ObjectError(f"the binary has no entry {name}") from None


def _load(sha256: str, data: bytes) -> ctypes.CDLL:
    """Loads from memory that nobody else can reach, so that what was checked is what is loaded."""
    file = os.memfd_create(f"fuseplan-{sha256[:12]}", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(file), "wb") as out:
            out.write(data)
        return ctypes.CDLL(_name(file))
    except OSError as e:
        raise ObjectError(f"binary {sha256[:12]} cannot be loaded: {e}") from e
    finally:
        os.close(file)  # what is loaded stays


def _name(descriptor: int) -> str:
    """A path to a descriptor that was never used before: the loader does not load a path twice, and the system uses
    descriptors again. Slashes with and without a dot are the digits of a number; the process by its number, since
    others may load by /proc/self."""
    digits = "".join("/." if digit == "1" else "/" for digit in f"{next(_loads):024b}")
    return f"/proc/{os.getpid()}/fd{digits}/{descriptor}"
