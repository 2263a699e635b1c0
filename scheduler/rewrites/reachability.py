"""A quick test whether a node could need another one: how far up a graph's topological order alternatives lead.

A node needs only nodes of lower places, unless another producer of one of these reads a node of a higher place. From
the place of a tensor that has such a producer, or from a higher one, a path may go on at the place that it reads.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fusion_ir.core.node import Node


class Reachability:
    """Reachability among the nodes of a graph as given. nodes: operands first."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._places = {node: place for place, node in enumerate(nodes)}
        self._top = np.arange(len(nodes))  # by place, the highest that one step from it, or from below it, leads to

    def add(self, tensor: Node, reads: Iterable[Node]) -> None:
        """Notes that the tensor can be computed from `reads` too."""
        if (place := self._places.get(tensor)) is None:
            self._top[:] = len(self._top) - 1  # of what was added: from anywhere
            return
        highest = max((self._places[r] for r in reads), default=0)
        np.maximum(self._top[place:], highest, out=self._top[place:])

    def is_out_of(self, node: Node, tensor: Node) -> bool:
        """Whether the node cannot need the tensor, whichever producers are taken; both of the graph as given."""
        place, wanted = self._places.get(node), self._places.get(tensor)
        if place is None or wanted is None:
            return False
        while self._top[place] > place:
            place = int(self._top[place])
        return place < wanted
