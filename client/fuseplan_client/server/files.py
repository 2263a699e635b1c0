"""Files of a cache: written whole or not at all, and read only where nobody else could have written them."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from fuseplan_client.server.ownership import Exposed, check_owner

TEMPORARY = ".new-"  # how names of files begin that are not whole yet


def write_whole(file: Path, content: bytes) -> None:
    """Puts a file in place at once: readers see the old one, the new one, or none, whoever is killed meanwhile. Raises
    OSError, and leaves nothing then."""
    new = file.parent / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)
        os.replace(new, file)
    except BaseException:
        remove(new)
        raise


def read_own(file: Path, most_bytes: int) -> bytes | None:
    """The content of a file, which then counts as used now; None where there is no such file. Raises Exposed where
    somebody else could have written it, or it has more than `most_bytes` bytes, OSError."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Exposed(f"{file} is no file")
        check_owner(file, found)
        if found.st_size > most_bytes:
            raise Exposed(f"{file} has {found.st_size:,} bytes, more than are kept")
        content = opened.read(most_bytes + 1)
        with suppress(OSError):  # a folder that cannot be written to is read all the same
            os.utime(descriptor)
    return content


def remove(file: Path) -> None:
    """Removes a file, where it is there and may be removed."""
    with suppress(OSError):  # it is discarded: whoever reads it next finds it damaged again
        file.unlink()
