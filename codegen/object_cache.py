"""Compiled kernels and their sources on disk, addressed by their content."""

import hashlib
import os
import tempfile
from pathlib import Path


class CacheError(OSError):
    """The cache folder cannot be used."""


class ObjectCache:
    """A folder of immutable objects, named by the sha256 of their bytes, and of memos from keys to short texts.

    Safe for several processes: files appear by atomic renames. An object whose bytes do not match its name is a miss,
    so a damaged cache costs time and never gives a wrong answer. Raises CacheError where the folder cannot be
    written.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()  # children have other working directories
        self._verified: set[str] = set()
        try:
            for part in ("objects", "memo", "devices"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise CacheError(f"the cache folder {self.folder} cannot be made: {e.strerror}") from e

    @property
    def devices(self) -> Path:
        """The folder of what processes tell each other of the machine's devices: whose turn it is, quarantines."""
        return self.folder / "devices"

    def put(self, data: bytes) -> str:
        """Stores `data`; its sha256 in hex."""
        sha = hashlib.sha256(data).hexdigest()
        if self.get(sha) is None:
            self.write(self._object(sha), data)
        return sha

    def get(self, sha: str) -> bytes | None:
        """The object, None if it is not there or damaged."""
        file = self._object(sha)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(data).hexdigest() != sha:
            file.unlink(missing_ok=True)
            self._verified.discard(sha)
            return None
        self._verified.add(sha)
        return data

    def path(self, sha: str) -> Path | None:
        """A file that holds the object, for the dynamic linker; None if it is not there or damaged."""
        file = self._object(sha)
        if (sha not in self._verified or not file.exists()) and self.get(sha) is None:
            return None
        os.utime(file)
        return file

    def remember(self, key: str, text: str) -> None:
        """Notes `text` under `key`, replacing what was there."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.write(self._memo(key), f"{digest}\n{text}".encode())

    def recall(self, key: str) -> str | None:
        """What was noted under `key`, None if nothing was or the note is damaged."""
        try:
            digest, _, text = self._memo(key).read_text("utf-8", "replace").partition("\n")
        except FileNotFoundError:
            return None
        return text if hashlib.sha256(text.encode()).hexdigest() == digest else None

    def prune(self, max_bytes: int) -> int:
        """Removes objects, longest unused first, until at most `max_bytes` remain; bytes removed."""
        files = [(f.stat(), f) for f in (self.folder / "objects").glob("*/*")]
        total = sum(s.st_size for s, _ in files)
        removed = 0
        for stat, file in sorted(files, key=lambda item: item[0].st_mtime):
            if total - removed <= max_bytes:
                break
            file.unlink(missing_ok=True)
            self._verified.discard(file.parent.name + file.name)
            removed += stat.st_size
        return removed

    def size_bytes(self) -> int:
        """Bytes of all objects."""
        return sum(f.stat().st_size for f in (self.folder / "objects").glob("*/*"))

    def _object(self, sha: str) -> Path:
        if len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
            raise ValueError(f"not a sha256: {sha!r}")
        return self.folder / "objects" / sha[:2] / sha[2:]

    def _memo(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / "memo" / name[:2] / name[2:]

    def write(self, file: Path, data: bytes) -> None:
        """Makes or replaces a file at once: others see all of it or nothing. Raises CacheError."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=file.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as out:
                    out.write(data)
                os.replace(name, file)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as e:
            raise CacheError(f"the cache folder {self.folder} cannot be written: {e.strerror}") from e
