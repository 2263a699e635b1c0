"""Graphs that were asked about, and the names their tensors came with."""

import json
import re
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select

from tuning_db.checks import checksum, digest, miss
from tuning_db.engine import Database
from tuning_db.models import GraphRow

_NODE = re.compile(r"^%[0-9]+ = (?:([a-z0-9_]+)\()?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of a graph's inputs and outputs, in order: the envelope of a plan, which knows only in0 ... out0 ..."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def json(self) -> str:
        return json.dumps({"inputs": self.inputs, "outputs": self.outputs})

    @staticmethod
    def of_json(text: str) -> "Names":
        value: Any = json.loads(text)
        return Names(tuple(value["inputs"]), tuple(value["outputs"]))


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """`text` is canonical and hashes to `graph_key`; `names` are those under which it was stored last."""

    graph_key: str
    text: str
    names: Names
    nodes: int
    ops: tuple[str, ...]
    created: float


_ONE = select(GraphRow.text, GraphRow.names, GraphRow.nodes, GraphRow.ops, GraphRow.created, GraphRow.checksum).where(
    GraphRow.key == bindparam("key")
)


def put_graph(database: Database, graph_key: str, text: str, names: Names) -> None:
    """Stores a graph, or only its names where it is known. ValueError: `text` does not hash to `graph_key`."""
    if digest(text) != graph_key:
        raise ValueError(f"graph text hashes to {digest(text)}, not to {graph_key}")
    stored = graph(database, graph_key)
    if stored is not None and stored.names == names:
        return
    found = _NODE.findall(text)
    row: dict[str, Any] = {"names": names.json(), "nodes": len(found), "ops": blanks({op for op in found if op})}
    row |= {"key": graph_key, "text": text, "checksum": checksum(graph_key, row["names"], row["nodes"], row["ops"])}
    insert = database.insert(GraphRow).values(**row, created=time.time())
    with database.write() as connection:
        connection.execute(insert.on_conflict_do_update(index_elements=["key"], set_=row))


def graph(database: Database, graph_key: str) -> StoredGraph | None:
    """The graph, or None where there is none that verifies."""
    rows = database.cached("graphs", graph_key, _ONE, {"key": graph_key})
    if not rows:
        return None
    text, names, nodes, ops, created, check = rows[0]
    if digest(text) != graph_key or checksum(graph_key, names, nodes, ops) != check:
        miss("graphs", graph_key, "checksum")
        return None
    return StoredGraph(graph_key, text, Names.of_json(names), nodes, tuple(ops.split()), created)


def blanks(words: set[str]) -> str:
    """Sorted words, each between blanks, so that ` word ` finds a whole one."""
    return " " + "".join(f"{word} " for word in sorted(words))
