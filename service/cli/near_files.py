"""Files whose names are near to one that is not there, for the message that says so."""

import os
from itertools import islice

from fusion_ir.errors import nearest

_MOST = 500  # names of a folder that are compared


def near_files(argument: str) -> str:
    """A hint such as "; did you mean 'swiglu.json'?" of the files in the same folder, or "" where none is near."""
    folder, name = os.path.split(argument)
    try:
        with os.scandir(folder or ".") as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST))
    except (OSError, ValueError):  # ValueError: a null byte in the name
        return ""
    return nearest(name, names)
