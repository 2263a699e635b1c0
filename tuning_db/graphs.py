"""Graphs that were asked about, and the names their tensors came with."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, select

from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.text.printing import parse_graph
from tuning_db.checks import checksum, digest, miss
from tuning_db.engine import Database
from tuning_db.models import GraphRow

_NODE = re.compile(r"^%[0-9]+ = (?:([a-z0-9_]+)\()?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of a graph's inputs and outputs, in order: the envelope of a plan, which knows only in0 ... out0 ...
    nodes: by position in the canonical text, "" for those without one; () where there are none, or none were kept."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...] = ()

    def json(self) -> str:
        nodes = {"nodes": self.nodes} if self.nodes else {}
        return json.dumps({"inputs": self.inputs, "outputs": self.outputs, **nodes})

    @staticmethod
    def of_json(text: str) -> "Names":
        value: Any = json.loads(text)
        return Names(tuple(value["inputs"]), tuple(value["outputs"]), tuple(value.get("nodes", ())))

    @staticmethod
    def of_graph(named: NamedGraph) -> "Names":
        return Names(named.input_names, named.output_names, named.node_names)

    def named(self, graph: Graph) -> NamedGraph:
        """The graph that these are the names of, with them. Raises ValueError where they are of another one."""
        return NamedGraph(graph, self.inputs, self.outputs, (), self.nodes)


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """`text` is canonical and hashes to `graph_key`; `names` are those under which it was stored last."""

    graph_key: str
    text: str
    names: Names
    nodes: int
    ops: tuple[str, ...]
    created: float

    def named(self) -> NamedGraph:
        """The graph with its names."""
        return self.names.named(parse_graph(self.text).graph)


@dataclass(frozen=True, slots=True)
class NewGraph:
    """A graph to store: canonical text, and the names its tensors came with."""

    graph_key: str
    text: str
    names: Names


_ONE = select(GraphRow.text, GraphRow.names, GraphRow.nodes, GraphRow.ops, GraphRow.created, GraphRow.checksum).where(
    GraphRow.key == bindparam("key")
)


def put_graph(database: Database, graph_key: str, text: str, names: Names) -> None:
    """Stores a graph, or only its names where it is known. ValueError: `text` does not hash to `graph_key`."""
    stored = graph(database, graph_key)
    if stored is not None and stored.names == names and stored.text == text:
        return
    with database.write() as connection:
        put_graphs(database, connection, [NewGraph(graph_key, text, names)])


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


def verifies(database: Database, graph_key: str) -> bool:
    """Whether the graph can be had."""
    return graph(database, graph_key) is not None


def blanks(words: set[str]) -> str:
    """Sorted words, each between blanks, so that ` word ` finds a whole one."""
    return " " + "".join(f"{word} " for word in sorted(words))
