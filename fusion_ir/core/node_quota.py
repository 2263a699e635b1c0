"""Limits on the cost of building a graph from outside: nodes and operands, counted as they are made and kept.

A reader checks the nodes that are written; it would see those that composites expand to only afterwards. Within
`limited` every node is counted when `ops.make` makes it, whoever asks for it, and once more when a reader keeps it as
part of the graph, so that reading ends at the first node beyond the limit:

    with limited():
        graph = read(text)  # FormatError: more than 60,000 nodes are made of it
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from fusion_ir.core.limits import LIMITS, check_count
from fusion_ir.core.node import Node
from fusion_ir.errors import FormatError


class _Count:
    __slots__ = ("kept", "nodes", "operands")

    def __init__(self) -> None:
        self.nodes = self.operands = 0
        self.kept = set[Node]()


_counts: ContextVar[_Count | None] = ContextVar("fusion_ir.core.node_quota", default=None)


@contextmanager
def limited() -> Generator[None]:
    """Within the block, LIMITS.made nodes and LIMITS.made_operands operands may be made, and LIMITS.nodes distinct
    nodes kept; a block within another counts towards the outer one. Raises FormatError beyond these limits."""
    if _counts.get() is not None:
        yield
        return
    token = _counts.set(_Count())
    try:
        yield
    finally:
        _counts.reset(token)


def count(operands: int) -> None:
    """Counts a node with `operands` operands that is about to be made. Raises FormatError beyond the limits."""
    counted = _counts.get()
    if counted is None:
        return
    counted.nodes += 1
    counted.operands += operands
    if counted.nodes > LIMITS.made:
        raise FormatError("", f"more than {LIMITS.made:,} nodes are made of it, most of them by composite ops")
    if counted.operands > LIMITS.made_operands:
        raise FormatError("", f"its nodes have more than {LIMITS.made_operands:,} operands in all")


def keep(place: str, node: Node) -> None:
    """Counts `node`, the result of a statement at `place`, and the nodes below it that no earlier result had. Raises
    FormatError where all results together have more than LIMITS.nodes."""
    counted = _counts.get()
    if counted is None:
        return
    stack = [node]
    while stack:
        found = stack.pop()
        if found not in counted.kept:
            counted.kept.add(found)
            check_count(place, "nodes after composite ops were taken apart", len(counted.kept), LIMITS.nodes)
            stack += found.args
