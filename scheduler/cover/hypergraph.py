"""The parts of covers, as sets of numbers: tensors, atoms that compute them, pieces that compute and write some.

Tensors are numbered; atoms are, too. Several atoms may compute the same tensor (alternatives), and an atom may be a
member of several chosen pieces (recomputation). Sets of tensors and of atoms are masks.

    tensor 0 <- atom 0            piece {0, 1} writes {1}: reads nothing, keeps tensor 0 to itself
    tensor 1 <- atom 1 reads 0    piece {1} writes {1}: reads tensor 0, which another piece has to write
             <- atom 2 reads 0    piece {2} writes {1}: reads tensor 0, computes tensor 1 by the alternative
"""

from collections.abc import Iterable, Sequence

import numpy as np

from scheduler.bitset import bits
from scheduler.segments.segment_mask import SegmentMask


class Hypergraph:
    """Atoms and tensors of one problem. `reads`: by atom, the tensors that it reads, inputs of the graph left out.
    `stands`: by atom, the tensor that it computes. `outputs`: tensors that somebody wants."""

    def __init__(self, reads: Sequence[int], stands: Sequence[int], outputs: int) -> None:
        self.reads = tuple(reads)
        self.stands = tuple(stands)
        self.outputs = outputs
        self.everything = (1 << 1 + max(stands, default=-1)) - 1
        self._read: dict[int, int] = {}
        self._alternatives = sum(1 << a for a, t in enumerate(stands) if a != t)
        self.needs = _needs(self.reads, self.stands)
        self.required = self.needed_for(outputs)

    def made(self, members: int) -> int:
        """Tensors that these atoms compute."""
        made = members & ~self._alternatives
        for a in bits(members & self._alternatives):
            made |= 1 << self.stands[a]
        return made

    def read(self, members: int) -> int:
        """Tensors that these atoms read and do not compute."""
        if members not in self._read:
            reads = 0
            for a in bits(members):
                reads |= self.reads[a]
            self._read[members] = reads & ~self.made(members)
        return self._read[members]

    def needed_for(self, tensors: int) -> int:
        """Tensors that have to be computed for `tensors`, whichever alternatives are taken; `tensors` among them."""
        needed = 0
        for t in bits(tensors):
            if not needed >> t & 1:
                needed |= self.needs[t]
        return needed

    def needing(self) -> list[int]:
        """By tensor, the tensors for which it has to be computed; itself among them."""
        count = len(self.needs)
        size = (count + 7) // 8
        packed = b"".join(needed.to_bytes(size, "little") for needed in self.needs)
        bits_ = np.unpackbits(np.frombuffer(packed, np.uint8).reshape(count, size), axis=1, bitorder="little")
        turned = np.packbits(bits_[:, :count].T, axis=1, bitorder="little")
        return [int.from_bytes(row.tobytes(), "little") for row in turned]


def _needs(reads: Sequence[int], stands: Sequence[int]) -> list[int]:
    """By tensor, the tensors that every way to compute it computes, itself among them: the largest solution of

    needs[t] = {t} | intersection over atoms a of t of (union over tensors r that a reads of needs[r]).
    """
    count = 1 + max(stands, default=-1)
    everything = (1 << count) - 1
    by_tensor: list[list[int]] = [[] for _ in range(count)]
    for a, t in enumerate(stands):
        by_tensor[t].append(a)
    needs = [everything] * count
    changed = True
    while changed:  # twice where atoms are numbered in topological order
        changed = False
        for t, atoms in enumerate(by_tensor):
            common = everything
            for a in atoms:
                above = 0
                for r in bits(reads[a]):
                    if not above >> r & 1:
                        above |= needs[r]
                common &= above
            common |= 1 << t
            if common != needs[t]:
                needs[t], changed = common, True
    return needs


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
