"""Declarations of rewrites, each with its mathematics.

A rule is

    exact        if what it makes has the node's bits, NaN payloads aside;
    reassociate  if that is equal by the laws of arithmetic on real numbers, and rounds no more values on the way than
                 the graph does and none to a narrower dtype: sums in another order, (x y) z for x (y z). Then the error
                 is at most that of as many roundings, each relative to the sum of the magnitudes of the products, which
                 also bounds that of the graph as given. Either may overflow where the other does not.
    approximate  otherwise.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fusion_ir.core.node import Node
from fusion_ir.records import NUMERICS, Numerics
from scheduler.rewrites.matching.graph_queries import GraphQueries


@dataclass(frozen=True)
class Rule:
    """`apply` gives an equal node (same shape, dtype and, for `exact`, bits but for NaN payloads), None where it does
    not match. What it gives stands for the node from then on."""

    name: str
    equation: str
    numerics: Numerics
    apply: Callable[[Node], Node | None]

    @property
    def looseness(self) -> int:
        """Place of its class among `NUMERICS`."""
        return NUMERICS.index(self.numerics)


@dataclass(frozen=True)
class Alternative:
    """`find` gives other nodes that equal a node of a graph (same shape and dtype), for the search to weigh against it:
    none where it does not match, the one likeliest to pay first. They are made of nodes that the node depends on, and
    of its siblings, of which none depends on another. rounding: values that are rounded to a tensor's dtype on the way
    though the graph does not round them, or no more; "" where there are none."""

    name: str
    equation: str
    numerics: Numerics
    find: Callable[[Node, GraphQueries], Iterable[Node]]
    rounding: str = ""

    def of(self, node: Node, around: GraphQueries) -> tuple[Node, ...]:
        """Nodes offered for a node, each once; none for a node without operands, or that a prologue computes anyhow."""
        if not node.args or around.is_constant(node):
            return ()
        found = tuple(dict.fromkeys(new for new in self.find(node, around) if new is not node))
        for new in found:
            if new.sizes != node.sizes or new.dtype != node.dtype:
                raise AssertionError(f"rewrite {self.name} made {new} of {node}")
        return found

    @property
    def looseness(self) -> int:
        """Place of its class among `NUMERICS`."""
        return NUMERICS.index(self.numerics)
