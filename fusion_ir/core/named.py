"""A graph together with the names that its sender knows its tensors by. Names never reach a plan or a kernel."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node


@dataclass(frozen=True, slots=True)
class NamedGraph:
    """Names in the order of the graph's inputs and outputs. No two inputs have one name, and no two outputs.

    `node_names`: by position in `graph.nodes`, "" for an input and for a node that its sender gave none; () where there
    are none at all. `notes` says, in sentences for the sender, what a reader took for granted that the text left open.
    """

    graph: Graph
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, names, count in (
            ("input", self.input_names, len(self.graph.inputs)),
            ("output", self.output_names, len(self.graph.outputs)),
        ):
            if len(names) != count:
                raise ValueError(f"{count} {what}s but {len(names)} names")
            if len(set(names)) != count:
                repeated = next(n for i, n in enumerate(names) if n in names[:i])
                raise ValueError(f"two {what}s are named {repeated!r}")
        if self.node_names and len(self.node_names) != len(self.graph.nodes):
            raise ValueError(f"{len(self.graph.nodes)} nodes but {len(self.node_names)} names")

    @staticmethod
    def unnamed(graph: Graph) -> "NamedGraph":
        """The graph with its tensors called in0, in1, ... and out0, out1, ..."""
        inputs = tuple(f"in{i}" for i in range(len(graph.inputs)))
        return NamedGraph(graph, inputs, tuple(f"out{i}" for i in range(len(graph.outputs))))


def names_of_nodes(
    graph: Graph, tensors: Iterable[tuple[str, Node]], image: Mapping[Node, Node] | None = None
) -> tuple[str, ...]:
    """`NamedGraph.node_names` of what a reader bound to names, in its order. Of several names for one node, as an alias
    or an equal computation has them, the first counts; one that is the node's number, "%7", is none.

    image: what became of nodes since they were bound, where something did.
    """
    names: dict[Node, str] = {}
    for name, node in tensors:
        names.setdefault(node if image is None else image.get(node, node), name)
    given = enumerate(names.get(node, "") if node.op != "input" else "" for node in graph.nodes)
    found = tuple(["" if name == f"%{position}" else name for position, name in given])
    return found if any(found) else ()


def unique_name(name: str, taken: Collection[str]) -> str:
    """`name` where it is free, else name_N with the first free N above the number of names taken."""
    number = len(taken) + 1
    unique = name
    while unique in taken:
        unique = f"{name}_{number}"
        number += 1
    return unique
