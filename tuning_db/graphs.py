"""Graphs that were asked about."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from tuning_db.checks import checksum, digest
from tuning_db.engine import Database
from tuning_db.lately_verified import LatelyVerified
from tuning_db.models import GraphRow
from tuning_db.reading.graphs import Names, StoredGraph, graph

_NODE = re.compile(r"^%[0-9]+ = (?:([a-z0-9_]+)\()?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NewGraph:
    """A graph to store: canonical text, and the names its tensors came with."""

    graph_key: str
    text: str
    names: Names


class Graphs:
    """Graphs by key, as canonical text with names."""

    def __init__(self, database: Database, verified: LatelyVerified) -> None:
        """verified: shared with whoever answers by plans for these graphs."""
        self._database = database
        self._verified = verified

    def put(self, graph_key: str, text: str, names: Names) -> None:
        """Stores a graph, or only its names where it is known; idempotent. Raises ValueError where the text does not
        hash to the key."""
        stored = graph(self._database, graph_key)
        if stored is not None and stored.names == names and stored.text == text:
            return
        with self._database.write() as connection:
            put_graphs(self._database, connection, [NewGraph(graph_key, text, names)])

    def graph(self, graph_key: str) -> StoredGraph | None:
        """The graph. Where there is none that verifies, its plans answer nothing until it is stored again."""
        found = graph(self._database, graph_key)
        if found is None:
            self._verified.forget(graph_key)
        return found


def put_graphs(database: Database, connection: Connection, graphs: Sequence[NewGraph]) -> None:
    """Stores graphs, or only the names of those that are known. ValueError: a text does not hash to its key."""
    rows = [_row(graph) | {"created": time.time()} for graph in graphs]
    if rows:
        insert = database.insert(GraphRow)
        changed = {name: insert.excluded[name] for name in rows[0] if name not in ("key", "created")}
        connection.execute(insert.on_conflict_do_update(index_elements=["key"], set_=changed), rows)


def _row(graph: NewGraph) -> dict[str, Any]:
    if digest(graph.text) != graph.graph_key:
        raise ValueError(f"graph text hashes to {digest(graph.text)}, not to {graph.graph_key}")
    found = _NODE.findall(graph.text)
    names, nodes, ops = graph.names.json(), len(found), blanks({op for op in found if op})
    check = checksum(graph.graph_key, names, nodes, ops)
    return {
        "key": graph.graph_key, "text": graph.text, "names": names, "nodes": nodes, "ops": ops, "checksum": check,
    }  # fmt: skip


def blanks(words: set[str]) -> str:
    """Sorted words, each between blanks, so that ` word ` finds a whole one."""
    return " " + "".join(f"{word} " for word in sorted(words))
