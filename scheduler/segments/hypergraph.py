"""A graph's atoms and tensors as sets of numbers: which atoms compute a tensor, and what computing it needs.

Tensors are numbered; atoms are, too. Several atoms may compute the same tensor (alternatives), and an atom may be a
member of several chosen pieces (recomputation). Sets of tensors and of atoms are masks.

    tensor 0 <- atom 0            piece {0, 1} writes {1}: reads nothing, keeps tensor 0 to itself
    tensor 1 <- atom 1 reads 0    piece {1} writes {1}: reads tensor 0, which another piece has to write
             <- atom 2 reads 0    piece {2} writes {1}: reads tensor 0, computes tensor 1 by the alternative
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from scheduler.bitset import bits


class Hypergraph:
    """Atoms and tensors of one problem.

    reads:   by atom, the tensors that it reads, inputs of the graph left out.
    stands:  by atom, the tensor that it computes.
    outputs: tensors that somebody wants.
    """

    def __init__(self, reads: Sequence[int], stands: Sequence[int], outputs: int) -> None:
        self.reads = tuple(reads)
        self.stands = tuple(stands)
        self.outputs = outputs
        self.everything = (1 << 1 + max(stands, default=-1)) - 1
        self._read: dict[int, int] = {}
        self._alternatives = sum(1 << a for a, t in enumerate(stands) if a != t)

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """By tensor, the atoms that compute it; () for the number of an alternative, whose tensor has another."""
        producers: list[list[int]] = [[] for _ in self.stands]
        for a, t in enumerate(self.stands):
            producers[t].append(a)
        return tuple(map(tuple, producers))

    @cached_property
    def needs(self) -> tuple[int, ...]:
        """By tensor, the tensors that every way to compute it computes, itself among them: the largest solution of

        needs[t] = {t} | intersection over atoms a of t of (union over tensors r that a reads of needs[r]).
        """
        needs = [self.everything] * len(self.producers)
        changed = True
        while changed:
            changed = False
            for t, atoms in enumerate(self.producers):
                common = self.everything
                for a in atoms:
                    common &= self._needed(self.reads[a], needs)
                common |= 1 << t
                if common != needs[t]:
                    needs[t], changed = common, True
            if not self._alternatives and all(not read >> a for a, read in enumerate(self.reads)):
                break  # operands come first: nothing changes any more
        return tuple(needs)

    @cached_property
    def required(self) -> int:
        """Tensors that have to be computed, whichever alternatives are taken."""
        return self.needed_for(self.outputs)

    def made(self, members: int) -> int:
        """Tensors that these atoms compute."""
        made = members & ~self._alternatives
        if made != members:
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
        return self._needed(tensors, self.needs)

    @staticmethod
    def _needed(tensors: int, needs: Sequence[int]) -> int:
        needed = 0
        for t in bits(tensors):
            if not needed >> t & 1:
                needed |= needs[t]
        return needed

    def needing(self) -> list[int]:
        """By tensor, the tensors for which it has to be computed; itself among them."""
        count = len(self.needs)
        size = (count + 7) // 8
        packed = b"".join(needed.to_bytes(size, "little") for needed in self.needs)
        bits_ = np.unpackbits(np.frombuffer(packed, np.uint8).reshape(count, size), axis=1, bitorder="little")
        turned = np.packbits(bits_[:, :count].T, axis=1, bitorder="little")
        return [int.from_bytes(row.tobytes(), "little") for row in turned]
