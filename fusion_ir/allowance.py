"""What a graph from outside may cost while it is built: nodes and operands, counted as `ops.make` makes them.

A reader checks what is written; what composites expand to, it would see only afterwards. Within `limited` every node is
counted when it is made, whoever makes it, so that reading ends at the node too many:

    with limited():
        graph = read(text)  # FormatError: more than 60,000 nodes are made of it
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from fusion_ir.errors import FormatError
from fusion_ir.limits import LIMITS


class _Count:
    __slots__ = ("nodes", "operands")

    def __init__(self) -> None:
        self.nodes = self.operands = 0


_counts: ContextVar[_Count | None] = ContextVar("fusion_ir.allowance", default=None)


@contextmanager
def limited() -> Generator[None]:
    """Within the block, LIMITS.made nodes and LIMITS.made_operands operands may be made; within another, it counts with
    that. Raises FormatError where more are."""
    if _counts.get() is not None:
        yield
        return
    token = _counts.set(_Count())
    try:
        yield
    finally:
        _counts.reset(token)


def count(operands: int) -> None:
    """A node of so many operands is about to be made. Raises FormatError."""
    counted = _counts.get()
    if counted is None:
        return
    counted.nodes += 1
    counted.operands += operands
    if counted.nodes > LIMITS.made:
        raise FormatError("", f"more than {LIMITS.made:,} nodes are made of it, most of them by composite ops")
    if counted.operands > LIMITS.made_operands:
        raise FormatError("", f"its nodes have more than {LIMITS.made_operands:,} operands in all")
