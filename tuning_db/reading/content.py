"""Stored binaries and sources, named by their sha256."""

import zlib
from collections.abc import Iterable, Iterator, Sequence

from tuning_db.checks import digest
from tuning_db.reading.rows import Reader

_BINARY = "SELECT content, size FROM binaries WHERE sha256 = :sha"
_SOURCE = "SELECT text FROM sources WHERE sha256 = :sha"
_CHUNK = 500  # values in one statement


def binary(reader: Reader, sha256: str) -> bytes | None:
    """The binary, or None where there is none that verifies."""
    rows = reader.cached("binaries", sha256, _BINARY, {"sha": sha256})
    if not rows:
        return None
    return _content(reader, sha256, *rows[0])


def _content(reader: Reader, sha256: str, compressed: bytes, size: int) -> bytes | None:
    try:
        content = zlib.decompressobj().decompress(compressed, size) if size else b""
    except (zlib.error, TypeError, ValueError, OverflowError, MemoryError) as error:
        reader.miss("binaries", sha256, str(error))
        return None
    if digest(content) != sha256:
        reader.miss("binaries", sha256, "content does not hash to its key")
        return None
    return content


def verify(reader: Reader, plan_key: str, binaries: Iterable[str], sources: Iterable[str]) -> bool:
    """Whether all binaries that a plan names, and the sources that were stored with it, are there and verify."""
    return all(
        len(found) == len(shas)
        for shas, found in (
            (set(binaries), _verified_binaries(reader, sorted(binaries))),
            (set(sources), _verified_sources(reader, plan_key, sorted(sources))),
        )
    )


def _verified_binaries(reader: Reader, shas: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for listed, values, some in _chunks(shas):
        rows = f"SELECT sha256, content, size FROM binaries WHERE sha256 IN ({listed})"
        stored = {sha: (content, size) for sha, content, size in reader.cached("binaries", some[0], rows, values)}
        for sha256 in some:
            if sha256 not in stored:
                reader.miss("binaries", sha256, "a plan needs it, and it is gone")
            elif _content(reader, sha256, *stored[sha256]) is not None:
                found.add(sha256)
    return found


def _verified_sources(reader: Reader, plan_key: str, shas: Sequence[str]) -> set[str]:
    """The sources among `shas` that are stored and verify, and those that the plan was stored without."""
    found: set[str] = set()
    for listed, values, some in _chunks(shas):
        rows = f"SELECT sha256, text FROM sources WHERE sha256 IN ({listed})"
        stored = dict(reader.cached("sources", some[0], rows, values))
        mine = f"SELECT sha256 FROM plan_sources WHERE plan_key = :plan AND sha256 IN ({listed})"
        linked = {sha for (sha,) in reader.cached("plan_sources", plan_key, mine, {"plan": plan_key, **values})}
        for sha256 in some:
            if sha256 not in stored and sha256 in linked:
                reader.miss("sources", sha256, "a plan was stored with it, and it is gone")
            elif sha256 in stored and digest(stored[sha256]) != sha256:
                reader.miss("sources", sha256, "text does not hash to its key")
            else:
                found.add(sha256)
    return found


def _chunks(shas: Sequence[str]) -> Iterator[tuple[str, dict[str, str], Sequence[str]]]:
    """Digests in lists short enough for one statement, each with the names of its values, and these by their names."""
    for start in range(0, len(shas), _CHUNK):
        some = shas[start : start + _CHUNK]
        values = {f"sha{n}": sha for n, sha in enumerate(some)}
        yield ", ".join(f":{name}" for name in values), values, some


def source(reader: Reader, sha256: str) -> str | None:
    """The text of a source, or None where there is none that verifies."""
    for (text,) in reader.cached("sources", sha256, _SOURCE, {"sha": sha256}):
        if digest(text) == sha256:
            return text
        reader.miss("sources", sha256, "text does not hash to its key")
    return None
