"""Whether there is room to write: a server whose disk is full cannot store a plan."""

import os
import tempfile
from pathlib import Path

from sqlalchemy import make_url

from codegen.sandbox.object_cache import CacheError
from service.settings import Settings

PROBE_BYTES = 64 * 1024
ROOM_BYTES = 64 * 2**20  # for kernels of a search or two


def check(settings: Settings) -> None:
    """Raises CacheError unless a file can be written, and there is room for more, where cache and database lie."""
    folders = [Path(settings.cache)]
    url = make_url(settings.db)
    if url.get_backend_name() == "sqlite" and url.database:
        folders.append(Path(url.database).absolute().parent)
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(bytes(PROBE_BYTES))
                probe.flush()
            found = os.statvfs(folder)
        except OSError as error:
            raise CacheError(f"{folder} cannot be written to: {error.strerror}") from error
        room = found.f_bavail * found.f_frsize
        if room < ROOM_BYTES:
            raise CacheError(f"{folder} has room for {room // 2**20} MiB, {ROOM_BYTES // 2**20} are needed")
