"""Partitions of atoms, as masks."""

from collections.abc import Iterator, Sequence

from scheduler.bitset import bits
from scheduler.cover.execution_order import in_order
from scheduler.segments.segment_mask import SegmentMask


def execution_order(preds: Sequence[int], segments: Sequence[int]) -> tuple[int, ...] | None:
    """Parts so that each comes after what it reads, lowest atom first where free; None if they form a cycle. `preds`:
    by atom, those that it reads."""
    reads = [sum(1 << r for r in {r for a in bits(s) for r in bits(preds[a])}) & ~s for s in segments]
    order = in_order(((SegmentMask(s, s), r) for s, r in zip(segments, reads, strict=True)), sum(segments))
    return None if order is None else tuple(piece.members for piece in order)


def partitions(n: int) -> Iterator[list[int]]:
    """All partitions of n atoms, as masks."""
    blocks: list[int] = []

    def grow(atom: int) -> Iterator[list[int]]:
        if atom == n:
            yield list(blocks)
            return
        for i in range(len(blocks)):
            blocks[i] |= 1 << atom
            yield from grow(atom + 1)
            blocks[i] ^= 1 << atom
        blocks.append(1 << atom)
        yield from grow(atom + 1)
        blocks.pop()

    yield from grow(0)
