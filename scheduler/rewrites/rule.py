"""What a rewrite is: one declaration with its mathematics.

A rule is

    exact        if what it makes has the same bits, NaN payloads aside;
    reassociate  if it is equal by the laws of arithmetic on real numbers, rounds no more values on the way than there
                 were and none to a narrower dtype: sums in another order, (x y) z for x (y z). Then the error is at
                 most that of the same number of roundings, each relative to the sum of the magnitudes of the products,
                 which is what bounds that of the graph as given. Either may overflow where the other does not.
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
    none where it does not match, the one likeliest to pay first. What it makes is made of nodes that the node depends
    on, and of its siblings, of which none depends on another. rounding: which values are rounded to a tensor's dtype on
    the way that the graph does not round, or no more; "" where all are the same."""

    name: str
    equation: str
    numerics: Numerics
    find: Callable[[Node, GraphQueries], Iterable[Node]]
    rounding: str = ""

    def of(self, node: Node, around: GraphQueries) -> tuple[Node, ...]:
        """What is offered for a node, each once; nothing for what a prologue computes anyhow."""
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
