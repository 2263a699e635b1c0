"""Answers and binaries on disk: checked when they are read, bounded in bytes, shared by processes."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuseplan_client.server.answers import SHA256
from fuseplan_client.server.files import TEMPORARY, read_own, remove, write_whole
from fuseplan_client.server.ownership import check_folder, make_private

MOST_BYTES = 2 * 2**30
ROOMS = ("answers", "binaries", "refused")
MAGIC = b"fuseplan-answer-1"
LEFT_SHARE = 0.9  # of the most bytes, once some were removed
UNSEEN_SHARE = 1 / 16  # of the most bytes, that a process writes before it looks at what others wrote
LARGEST_SHARE = 0.25
ABANDONED_S = 3600.0  # after which a file that was never finished is nobody's


@dataclass(frozen=True)
class Kept:
    """An answer as it was received. signature: its header, "" where it had none. stored: seconds since 1970."""

    body: bytes
    signature: str
    stored: float


@dataclass
class _Count:
    """Bytes in the cache as far as this process knows: at its last look, and written by it since."""

    process: int
    looked: int | None = None
    written: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def default_folder() -> Path | None:
    """The folder `fuseplan-client` in the user's cache, by XDG's rules; None where there is no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "fuseplan-client"
    except RuntimeError:
        return None


class PlanCache:
    """A folder of answers, by the digest of server and request, and of binaries, by their sha256.

    Nothing here raises: what cannot be read counts as absent, what cannot be written is not kept, and `note` is told
    why. A folder that others own or can write to is not used at all, since code is loaded from it. Files are written
    whole; damaged ones are removed. Of more than `most_bytes` bytes those go first that were used longest ago; several
    processes may exceed it by a sixteenth each.
    """

    def __init__(self, folder: Path, most_bytes: int, note: Callable[[str], None]) -> None:
        self._folder, self._most_bytes, self._note = folder, most_bytes, note
        self._count = _Count(os.getpid())

    def answer(self, digest: str) -> Kept | None:
        """The answer that was kept for a digest (see `answer_digest`)."""
        content = self._read("answers", digest)
        if content is None:
            return None
        kept = _unpacked(content)
        if kept is None:
            self._discard("answers", digest)
        return kept

    def keep_answer(self, digest: str, kept: Kept) -> None:
        """Keeps an answer in place of an older one."""
        self._write("answers", digest, _packed(kept))

    def binary(self, sha256: str) -> bytes | None:
        """The binary of this name."""
        content = self._read("binaries", sha256)
        if content is not None and hashlib.sha256(content).hexdigest() != sha256:
            self._discard("binaries", sha256)
            return None
        return content

    def keep_binary(self, sha256: str, content: bytes) -> None:
        """Keeps a binary, which hashes to its name."""
        self._write("binaries", sha256, content)

    def is_refused(self, plan_key: str) -> bool:
        """Whether this plan was found to be of no use here."""
        return self._read("refused", plan_key) is not None

    def refuse(self, plan_key: str) -> None:
        """Notes that a plan is of no use here: kept answers with it are not used any more."""
        self._write("refused", plan_key, b"refused\n")

    def _read(self, room: str, name: str) -> bytes | None:
        file = self._file(room, name)
        try:
            if not file.parent.is_dir():
                return None
            check_folder(self._folder)
            check_folder(file.parent)
            return read_own(file, self._most_bytes)
        except OSError as e:
            self._note(f"the cache is not read: {_said(e)}")
            return None

    def _write(self, room: str, name: str, content: bytes) -> None:
        if len(content) > LARGEST_SHARE * self._most_bytes:
            self._note(
                f"not kept: {len(content):,} bytes, more than a quarter of the {self._most_bytes:,} of the cache"
            )
            return
        file = self._file(room, name)
        try:
            make_private(self._folder)
            make_private(file.parent)
            write_whole(file, content)
            self._make_room(len(content))
        except OSError as e:
            self._note(f"the cache is not written to: {_said(e)}")

    def _file(self, room: str, name: str) -> Path:
        assert SHA256.fullmatch(name), name
        return self._folder / room / name

    def _discard(self, room: str, name: str) -> None:
        self._note(f"a damaged file of the cache was discarded: {room}/{name}")
        remove(self._file(room, name))

    def _make_room(self, added: int) -> None:
        """Removes what was used longest ago, where there may be too much. Raises OSError."""
        if self._count.process != os.getpid():  # a child of a fork, whose parent may have held the lock
            self._count = _Count(os.getpid())
        count = self._count
        with count.lock:
            count.written += added
            is_known = count.looked is not None and count.written <= UNSEEN_SHARE * self._most_bytes
            if is_known and (count.looked or 0) + count.written <= self._most_bytes:
                return
            found = sorted(self._found())
            total = sum(size for _, size, _ in found)
            most = LEFT_SHARE * self._most_bytes if total > self._most_bytes else total
            for _, size, file in found:
                if total <= most:
                    break
                file.unlink(missing_ok=True)
                total -= size
            count.looked, count.written = total, 0

    def _found(self) -> Iterator[tuple[int, int, Path]]:
        """Time of last use in ns, bytes and path of every whole file; what killed writers left long ago is removed."""
        for room in ROOMS:
            folder = self._folder / room
            if not folder.is_dir():
                continue
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        facts = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # removed by another process
                        continue
                    if entry.name.startswith(TEMPORARY):  # somebody may be writing it
                        if facts.st_mtime < time.time() - ABANDONED_S:
                            remove(Path(entry.path))
                        continue
                    yield facts.st_mtime_ns, facts.st_size, Path(entry.path)


def answer_digest(server: str, request: bytes) -> str:
    """The name that the answer of a server to a request is kept by."""
    return hashlib.sha256(b"\0".join((b"answer", server.encode(), request))).hexdigest()


def _packed(kept: Kept) -> bytes:
    head = json.dumps({"signature": kept.signature, "stored": kept.stored}).encode()
    content = head + b"\n" + kept.body
    return b" ".join((MAGIC, hashlib.sha256(content).hexdigest().encode())) + b"\n" + content


def _unpacked(data: bytes) -> Kept | None:
    """None for anything but what `_packed` makes."""
    first, _, content = data.partition(b"\n")
    if first != b" ".join((MAGIC, hashlib.sha256(content).hexdigest().encode())):
        return None
    head, _, body = content.partition(b"\n")
    try:
        found: dict[str, Any] = json.loads(head)
        return Kept(body, str(found["signature"]), float(found["stored"]))
    except (ValueError, TypeError, KeyError):  # of another version with the same first line
        return None


def _said(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror}{where}" if error.strerror else str(error)
