"""Segments that no family takes for their products of matrices, said from atoms alone: thousands are never built."""

from codegen.families.apart import is_thick
from scheduler.atoms import Atoms
from scheduler.masks import bits
from scheduler.piece import Piece


class Products:
    """The thick ones among atoms."""

    def __init__(self, atoms: Atoms) -> None:
        self._own = atoms.givens
        self._above = atoms.plain.ancestors
        self._thick = sum(1 << a for a, node in enumerate(atoms.nodes[: atoms.given]) if is_thick(node))

    def keep_apart(self, piece: Piece) -> bool:
        """Whether every family but `naive` is sure to refuse the segment, see `is_thick`. Of pieces with alternatives
        nothing is said."""
        thick = piece.members & self._thick
        if not thick or piece.members & ~self._own:
            return False
        *first, last = bits(thick)
        if len(first) > 1 or any(not self._above[last] >> a & 1 for a in first):
            return True
        return any(thick & ~(self._above[t] | 1 << t) for t in bits(piece.writes))
