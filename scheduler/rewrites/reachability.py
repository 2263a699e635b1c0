"""How far up a graph's topological order alternatives lead: whether a node could need another one, in no time.

A node needs nodes of lower places alone, but where another producer of one of these reads something of a higher place.
Whoever comes by that place, or a higher one, may go on from there.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fusion_ir.core.node import Node


class Reachability:
    """Of the nodes of a graph as given, operands first."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._places = {node: place for place, node in enumerate(nodes)}
        self._top = np.arange(len(nodes))  # by place, the highest that one step from it, or from below it, leads to

    def add(self, tensor: Node, reads: Iterable[Node]) -> None:
        """The tensor can be computed from these, too."""
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
