"""Compiled kernels and their sources on disk, addressed by their content."""

import hashlib
import hmac
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from fusion_ir.ownership import Exposed, make_private


class CacheError(OSError):
    """The cache folder cannot be used."""


def object_digest(file: Path | str) -> str:
    """The sha256 that the content of an object file has to have, by the file's name. ValueError: it is no object's."""
    path = Path(file)
    return _checked(path.parent.name + path.name)


def object_bytes(file: Path | str) -> bytes:
    """The content of an object file, read once. Raises CacheError where it is not what the file's name says."""
    expected = object_digest(file)
    data = Path(file).read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise CacheError(f"{file} was changed: expected content of sha256 {expected}, got {found}")
    return data


def _checked(sha: str) -> str:
    if len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
        raise ValueError(f"not a sha256: {sha!r}")
    return sha


class ObjectCache:
    """A folder of immutable objects, named by the sha256 of their bytes, and of memos from keys to short texts.

    Safe for several processes: files appear by atomic renames. An object whose bytes do not match its name is a miss,
    so a damaged cache costs time and never gives a wrong answer. Raises CacheError where the folder cannot be
    written, or others can write there.

    seal: a secret that is kept elsewhere (`tuning_db.Store.seal`). Memos say which object is to be run, so a memo
    written without the secret is a miss, whoever could write to the folder at some time.
    """

    def __init__(self, folder: Path | str, seal: bytes = b"") -> None:
        self.folder = Path(folder).absolute()  # children have other working directories
        self._seal = seal
        try:
            make_private(self.folder)
            for part in ("objects", "memo", "devices"):
                make_private(self.folder / part)
        except Exposed as e:
            raise CacheError(f"the cache folder {self.folder} cannot be trusted: {e}") from e
        except OSError as e:
            raise CacheError(f"the cache folder {self.folder} cannot be made: {e.strerror}") from e

    @property
    def devices(self) -> Path:
        """The folder of the files that processes share about the machine's devices: turns and quarantines."""
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
            return None
        return data

    def path(self, sha: str) -> Path | None:
        """A file that holds the object, for the dynamic linker; None if it is not there or damaged."""
        file = self._object(sha)
        if self.get(sha) is None:
            return None
        os.utime(file)
        return file

    def made(self, key: str, make: Callable[[], bytes]) -> Path:
        """A file that holds the object noted under `key`, which is made now where there is none."""
        known = self.recall(key)
        found = self.path(known) if known else None
        if found is None:
            sha = self.put(make())
            self.remember(key, sha)
            found = self.path(sha)
        assert found is not None
        return found

    def remember(self, key: str, text: str) -> None:
        """Notes `text` under `key`, replacing what was there."""
        self.write(self._memo(key), f"{self._sealed(key, text)}\n{text}".encode())

    def recall(self, key: str) -> str | None:
        """The text noted under `key`; None if there is none, it is damaged, or it was written without the seal."""
        try:
            digest, _, text = self._memo(key).read_text("utf-8", "replace").partition("\n")
        except FileNotFoundError:
            return None
        return text if hmac.compare_digest(digest.encode(), self._sealed(key, text).encode()) else None

    def prune(self, max_bytes: int) -> int:
        """Removes objects, longest unused first, until at most `max_bytes` remain; bytes removed."""
        files = [(f.stat(), f) for f in (self.folder / "objects").glob("*/*")]
        total = sum(s.st_size for s, _ in files)
        removed = 0
        for stat, file in sorted(files, key=lambda item: item[0].st_mtime):
            if total - removed <= max_bytes:
                break
            file.unlink(missing_ok=True)
            removed += stat.st_size
        return removed

    def size_bytes(self) -> int:
        """Bytes of all objects."""
        return sum(f.stat().st_size for f in (self.folder / "objects").glob("*/*"))

    def _object(self, sha: str) -> Path:
        return self.folder / "objects" / _checked(sha)[:2] / sha[2:]

    def _memo(self, key: str) -> Path:
        name = self._sealed("memo", key)  # one for each seal: databases that share a folder do not take turns
        return self.folder / "memo" / name[:2] / name[2:]

    def _sealed(self, *texts: str) -> str:
        return hmac.digest(self._seal, json.dumps(texts).encode(), "sha256").hex()

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
