"""Which file a compiler is: as long as that stays as it is, so does what the compiler says of itself."""

import os
import re
import shutil
from collections.abc import Sequence

# What g++ and clang++ are called once links are followed. Wrappers (ccache, distcc, a script) have other names, or are
# no program of the machine's: what they start may change while they stay.
_NAME = re.compile(r"(?:.*-)?(?:g\+\+|clang(?:\+\+)?)(?:-[0-9.]+)?")
_PROGRAM = b"\x7fELF"


def compiler_key(command: Sequence[str], path: str) -> str | None:
    """The compiler's file by its place, size and times, and the command that starts it; None where that does not say
    which compiler it is. path: as $PATH."""
    found = shutil.which(command[0], path=path)
    if found is None:
        return None
    real = os.path.realpath(found)
    if not _NAME.fullmatch(os.path.basename(real)):
        return None
    try:
        with open(real, "rb") as file:
            if file.read(len(_PROGRAM)) != _PROGRAM:
                return None
            seen = os.fstat(file.fileno())
    except OSError:
        return None
    facts = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    return "\n".join(("compiler", *command, real, *map(str, facts)))
