"""A stored graph, and the names its tensors came with."""

import json
from dataclasses import dataclass
from typing import Any

from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.text.printing import parse_graph
from tuning_db.checks import checksum, digest
from tuning_db.reading.rows import Reader

_ONE = "SELECT text, names, nodes, ops, created, checksum FROM graphs WHERE key = :key"


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


def graph(reader: Reader, graph_key: str) -> StoredGraph | None:
    """The graph, or None where there is none that verifies."""
    rows = reader.cached("graphs", graph_key, _ONE, {"key": graph_key})
    if not rows:
        return None
    text, names, nodes, ops, created, check = rows[0]
    if digest(text) != graph_key or checksum(graph_key, names, nodes, ops) != check:
        reader.miss("graphs", graph_key, "checksum")
        return None
    return StoredGraph(graph_key, text, Names.of_json(names), nodes, tuple(ops.split()), created)


def verifies(reader: Reader, graph_key: str) -> bool:
    """Whether the graph can be had."""
    return graph(reader, graph_key) is not None
