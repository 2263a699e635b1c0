"""Orders in which the pieces of a cover can run."""

from collections.abc import Iterable, Sequence

from scheduler.segments.segment_mask import SegmentMask


def in_order(pieces: Iterable[tuple[SegmentMask, int]], outputs: int) -> tuple[SegmentMask, ...] | None:
    """Pieces, given with what they read, in an order of execution: each comes after others have written what it reads,
    the lowest first where several can. Pieces whose writes nobody needs are left out. None where the outputs are not
    written."""
    waiting = sorted(pieces, key=lambda p: (p[0].members & -p[0].members, p[0]))
    order: list[tuple[SegmentMask, int]] = []
    written = 0
    while waiting:
        ready = next((i for i, (_, reads) in enumerate(waiting) if not reads & ~written), None)
        if ready is None:
            break
        order.append(waiting.pop(ready))
        written |= order[-1][0].writes
    if outputs & ~written:
        return None
    return _needed(order, outputs)


def _needed(order: Sequence[tuple[SegmentMask, int]], outputs: int) -> tuple[SegmentMask, ...]:
    """Pieces of an order that are the first to write a tensor that is an output, or that a later one of them reads."""
    first: list[int] = []
    written = 0
    for piece, _ in order:
        first.append(piece.writes & ~written)
        written |= piece.writes
    wanted, needed = outputs, list[SegmentMask]()
    for (piece, reads), new in zip(reversed(order), reversed(first), strict=True):
        if new & wanted:
            needed.append(piece)
            wanted |= reads
    return tuple(reversed(needed))


def reached(pieces: Iterable[tuple[SegmentMask, int]]) -> int:
    """Tensors that these pieces, given with what they read, can write in some order."""
    waiting, written = list(pieces), 0
    while True:
        still: list[tuple[SegmentMask, int]] = []
        for entry in waiting:
            if entry[1] & ~written:
                still.append(entry)
            else:
                written |= entry[0].writes
        if len(still) == len(waiting):
            return written
        waiting = still
