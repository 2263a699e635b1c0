"""Binaries and sources: immutable, named by their sha256, shared by plans."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, select

from tuning_db.checks import digest, miss
from tuning_db.engine import Database
from tuning_db.models import BinaryRow, PlanBinaryRow, PlanSourceRow, SourceRow

_BINARY = select(BinaryRow.content, BinaryRow.size).where(BinaryRow.sha256 == bindparam("sha"))
_SOURCE = select(SourceRow.text).where(SourceRow.sha256 == bindparam("sha"))
_CHUNK = 500  # values in one statement
_LEVEL = 6


def binary(database: Database, sha256: str) -> bytes | None:
    """The binary, or None where there is none that verifies."""
    rows = database.cached("binaries", sha256, _BINARY, {"sha": sha256})
    if not rows:
        return None
    return _content(sha256, *rows[0])


def _content(sha256: str, compressed: bytes, size: int) -> bytes | None:
    try:
        content = zlib.decompressobj().decompress(compressed, size) if size else b""
    except (zlib.error, TypeError, ValueError, OverflowError, MemoryError) as error:
        miss("binaries", sha256, str(error))
        return None
    if digest(content) != sha256:
        miss("binaries", sha256, "content does not hash to its key")
        return None
    return content


def verify(database: Database, plan_key: str, binaries: Iterable[str], sources: Iterable[str]) -> bool:
    """Whether all binaries that a plan names, and the sources that were stored with it, are there and verify."""
    return all(
        len(found) == len(shas)
        for shas, found in (
            (set(binaries), _verified_binaries(database, sorted(binaries))),
            (set(sources), _verified_sources(database, plan_key, sorted(sources))),
        )
    )


def _verified_binaries(database: Database, shas: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for some in _chunks(shas):
        rows = select(BinaryRow.sha256, BinaryRow.content, BinaryRow.size).where(BinaryRow.sha256.in_(some))
        stored = {row.sha256: (row.content, row.size) for row in database.cached("binaries", some[0], rows)}
        for sha256 in some:
            if sha256 not in stored:
                miss("binaries", sha256, "a plan needs it, and it is gone")
            elif _content(sha256, *stored[sha256]) is not None:
                found.add(sha256)
    return found


def _verified_sources(database: Database, plan_key: str, shas: Sequence[str]) -> set[str]:
    """The sources among `shas` that are stored and verify, and those that the plan was stored without."""
    found: set[str] = set()
    for some in _chunks(shas):
        rows = select(SourceRow.sha256, SourceRow.text).where(SourceRow.sha256.in_(some))
        stored = {row.sha256: row.text for row in database.cached("sources", some[0], rows)}
        mine = select(PlanSourceRow.sha256).where(PlanSourceRow.plan_key == plan_key, PlanSourceRow.sha256.in_(some))
        linked = {row.sha256 for row in database.cached("plan_sources", plan_key, mine)}
        for sha256 in some:
            if sha256 not in stored and sha256 in linked:
                miss("sources", sha256, "a plan was stored with it, and it is gone")
            elif sha256 in stored and digest(stored[sha256]) != sha256:
                miss("sources", sha256, "text does not hash to its key")
            else:
                found.add(sha256)
    return found


def _chunks(shas: Sequence[str]) -> list[Sequence[str]]:
    return [shas[n : n + _CHUNK] for n in range(0, len(shas), _CHUNK)]


def plans_with(database: Database, link_table: type[PlanBinaryRow] | type[PlanSourceRow], sha256: str) -> list[str]:
    """Keys of the plans that were stored with a binary or a source."""
    needing = select(link_table.plan_key).where(link_table.sha256 == sha256)
    return [str(row.plan_key) for row in database.cached(link_table.__tablename__, sha256, needing)]


def source(database: Database, sha256: str) -> str | None:
    """The text of a source, or None where there is none that verifies."""
    for (text,) in database.cached("sources", sha256, _SOURCE, {"sha": sha256}):
        if digest(text) == sha256:
            return text
        miss("sources", sha256, "text does not hash to its key")
    return None


def check_digests(binaries: Mapping[str, bytes], sources: Mapping[str, str]) -> None:
    """Raises ValueError for an entry that does not hash to its key."""
    for sha256, content in (*binaries.items(), *sources.items()):
        if digest(content) != sha256:
            raise ValueError(f"content hashes to {digest(content)}, not to {sha256}")


def put_content(
    database: Database, connection: Connection, binaries: Mapping[str, bytes], sources: Mapping[str, str]
) -> None:
    """Stores the binaries and sources of a plan. A row that exists is written again, which mends a damaged one."""
    rows = [{"sha256": s, "content": zlib.compress(c, _LEVEL), "size": len(c)} for s, c in sorted(binaries.items())]
    _put(database, connection, BinaryRow, rows, ("content", "size"))
    _put(database, connection, SourceRow, [{"sha256": s, "text": t} for s, t in sorted(sources.items())], ("text",))


def link(
    database: Database, connection: Connection, plan_key: str, binaries: Iterable[str], sources: Iterable[str]
) -> None:
    """Links a plan to the binaries and sources that it needs, all of them stored, and removes its links to others: such
    links are damaged."""
    for table, shas in ((PlanBinaryRow, binaries), (PlanSourceRow, sources)):
        rows = [{"plan_key": plan_key, "sha256": sha} for sha in sorted(shas)]
        connection.execute(delete(table).where(table.plan_key == plan_key, table.sha256.not_in(sorted(shas))))
        if rows:
            connection.execute(database.insert(table).on_conflict_do_nothing(), rows)


def stored(connection: Connection, table: type[BinaryRow] | type[SourceRow], shas: Iterable[str]) -> set[str]:
    """The digests among `shas` that `table` holds."""
    return set(connection.execute(select(table.sha256).where(table.sha256.in_(sorted(shas)))).scalars())


def unlink(connection: Connection, plan_key: str) -> None:
    """Removes a plan's links, and the binaries and sources that no other plan needs."""
    for link_table, table in ((PlanBinaryRow, BinaryRow), (PlanSourceRow, SourceRow)):
        mine = select(link_table.sha256).where(link_table.plan_key == plan_key)
        shas = list(connection.execute(mine).scalars())
        connection.execute(delete(link_table).where(link_table.plan_key == plan_key))
        needed = exists().where(link_table.sha256 == table.sha256)
        connection.execute(delete(table).where(table.sha256.in_(shas), ~needed))


def _put(
    database: Database,
    connection: Connection,
    table: type[BinaryRow] | type[SourceRow],
    rows: list[dict[str, Any]],
    columns: tuple[str, ...],
) -> None:
    if rows:
        insert = database.insert(table)
        changed = {name: insert.excluded[name] for name in columns}
        connection.execute(insert.on_conflict_do_update(index_elements=["sha256"], set_=changed), rows)
