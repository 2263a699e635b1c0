"""Words for a graph's nodes: the names that its sender gave them, else numbers, with the graph's text beside."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.records import Half, Step
from fusion_ir.text.printing import node_text
from service.wording.formatting import count
from service.wording.naming import UNNAMED, Naming

SHOWN = 6  # nodes in a list
SHORT = 40  # nodes of a graph that is printed whole wherever it is printed


@dataclass(frozen=True)
class NodeWords:
    """Words for the nodes of one graph. graph: None where it is no longer stored; then nodes are numbers. told: nodes
    that texts so far gave by number, which means nothing without the graph."""

    graph: Graph | None = None
    naming: Naming = UNNAMED
    told: set[int] = field(default_factory=set[int])

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes of the graph, by position in its canonical text; none where the graph is not stored."""
        return () if self.graph is None else self.graph.nodes

    def op(self, position: int) -> str | None:
        return self.nodes[position].op if position < len(self.nodes) else None

    def of(self, position: int) -> str:
        """ "T35 cos"; "%11 max for y" of a node without a name, which the sender has within y."""
        name, op = self.naming.node(position), self.op(position)
        if self.naming.has_name(position):
            return f"{name} {op}" if op else name
        self.told.add(position)
        owner = self.naming.owners.get(position)
        return f"{name}{f' {op}' if op else ''}{f' for {self.naming.node(owner)}' if owner is not None else ''}"

    def list_of(self, positions: Sequence[int], most: int = SHOWN) -> str:
        """ "T35 cos, %12 sin and 4 more"."""
        shown = ", ".join(map(self.of, positions[:most]))
        return f"{shown} and {len(positions) - most} more" if len(positions) > most else shown

    def computed_by(self, step: Step) -> Iterator[str]:
        """Lines on what a step computes: ops of whole nodes, then halves of nodes, then nodes that it computes nothing
        of but something on another way to them."""
        apart = {half.node for half in step.halves} | set(step.other_ways)
        counted = Counter(op for n in step.nodes if n not in apart and (op := self.op(n)) not in (None, "input"))
        whole = ", ".join(f"{number} {op}" for op, number in counted.most_common())
        if whole or not apart:
            yield whole or count(len(step.nodes), "node")
        alike: dict[tuple[str, str], list[int]] = {}
        for half in step.halves:
            alike.setdefault((half.half, cut_words(half)), []).append(half.node)
        for (which, words), nodes in alike.items():
            halves = {"first": "the first half", "second": "the second half", "both": "parts of both halves"}[which]
            yield f"{halves} of {self.list_of(nodes)}, {words}"
        if step.other_ways:
            yield f"on another way to {self.list_of(step.other_ways)}"

    def lines(self, *, everything: bool) -> Iterator[str]:
        """The lines of the graph's text that numbers were told of, all of a short one, or everything; with names."""
        numbers: dict[Node, int] = {}
        everything = everything or len(self.nodes) <= SHORT
        for position, node in enumerate(self.nodes):
            if everything or position in self.told:
                name = self.naming.nodes[position] if self.naming.has_name(position) else ""
                yield node_text(node, numbers, name)
            numbers[node] = position

    def is_whole(self, *, everything: bool) -> bool:
        """Whether `lines` are all that there are."""
        return everything or len(self.nodes) <= max(SHORT, len(self.told))


def cut_words(half: Half) -> str:
    """ "of which 2,816 terms each were cut into 4 × 704"; "... 3 × 938 and 2" where that does not come out even."""
    total = half.parts * half.terms + half.rest
    rest = f" and {half.rest:,}" if half.rest else ""
    return f"of which {total:,} terms each were cut into {half.parts:,} × {half.terms:,}{rest}"
