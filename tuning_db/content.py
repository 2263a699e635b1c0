"""Storing binaries and sources: immutable, named by their sha256, shared by plans."""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, delete, exists, select

from tuning_db.checks import digest
from tuning_db.engine import Database
from tuning_db.models import BinaryRow, PlanBinaryRow, PlanSourceRow, SourceRow

_LEVEL = 6


def plans_with(database: Database, link_table: type[PlanBinaryRow] | type[PlanSourceRow], sha256: str) -> list[str]:
    """Keys of the plans that were stored with a binary or a source."""
    needing = select(link_table.plan_key).where(link_table.sha256 == sha256)
    return [str(row.plan_key) for row in database.cached(link_table.__tablename__, sha256, needing)]


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
