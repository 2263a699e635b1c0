"""How many nodes a reader has made so far: ops that are taken apart may make hundreds, and a text has many of them."""

from fusion_ir.limits import LIMITS, check_count
from fusion_ir.node import Node


class MadeNodes:
    """The distinct nodes below all that was added."""

    def __init__(self) -> None:
        self._seen: set[Node] = set()

    def add(self, place: str, node: Node) -> None:
        """Counts what is new below the node. Raises FormatError beyond the limit."""
        stack = [node]
        while stack:
            found = stack.pop()
            if found not in self._seen:
                self._seen.add(found)
                check_count(place, "nodes after composite ops were taken apart", len(self._seen), LIMITS.nodes)
                stack += found.args
