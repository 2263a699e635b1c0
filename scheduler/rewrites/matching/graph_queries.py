"""Questions of rules about the graph around a node: who reads it, what it depends on, whether on constants alone."""

from collections.abc import Container, Iterator
from functools import cached_property

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node


class GraphQueries:
    """Answers about all nodes of a graph. Nodes that rules make are no nodes of it: nobody reads them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._outputs = {o.node for o in graph.outputs}
        self._constant: dict[Node, bool] = {}
        self._below: dict[Node, int] = {}

    def readers(self, node: Node) -> tuple[Node, ...]:
        """Nodes of the graph that read a node, once each, in topological order."""
        return self.graph.users.get(node, ())

    def is_output(self, node: Node) -> bool:
        """Whether the caller wants the node."""
        return node in self._outputs

    def is_shared(self, node: Node) -> bool:
        """Whether a node of the graph has more than one reader, the caller who wants it counted as one."""
        return len(self.readers(node)) + self.is_output(node) > 1

    def is_constant(self, node: Node) -> bool:
        """Whether a node, of the graph or made by a rule, depends on constants alone: a prologue computes it, once per
        version of these."""
        if (known := self._constant.get(node)) is not None:
            return known
        for n in _unknown(node, self._constant):
            own = n.op != "input" or any(name == "constant" and value is not None for name, value in n.attrs)
            self._constant[n] = own and all(self._constant[a] for a in n.args)
        return self._constant[node]

    def depends(self, node: Node, on: Node) -> bool:
        """Whether a node of the graph is computed from another one, or is it."""
        return bool(self._reached(node) >> self.places[on] & 1)

    @cached_property
    def places(self) -> dict[Node, int]:
        """By node of the graph, its place in topological order."""
        return {node: place for place, node in enumerate(self.graph.nodes)}

    def _reached(self, node: Node) -> int:
        """Mask of places that a node depends on, its own included."""
        for n in _unknown(node, self._below):
            mask = 1 << self.places[n]
            for a in n.args:
                mask |= self._below[a]
            self._below[n] = mask
        return self._below[node]


def _unknown(node: Node, known: Container[Node]) -> Iterator[Node]:
    """The nodes below one that are not known yet, operands first; each must be known when the next is asked for."""
    stack = [node]
    while stack:
        missing = [a for a in stack[-1].args if a not in known]
        if missing and stack[-1] not in known:
            stack += missing
            continue
        n = stack.pop()
        if n not in known:
            yield n
