"""Segments that no family takes for their products of matrices, said from atoms alone: thousands are never built."""

from codegen.attention.phases import COMBINES
from codegen.families.contraction_limits import is_thick
from codegen.families.reduction import is_small
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.value_preserving import is_free
from scheduler.bitset import bits
from scheduler.segments.atoms import Atoms
from scheduler.segments.segment_mask import SegmentMask

COSTLY = frozenset({OpKind.CONTRACT, OpKind.REDUCTION, OpKind.SCAN, OpKind.GATHER})


class ContractionFilter:
    """The thick products among atoms (see `is_thick`), and the atoms that families for `target` take beside them."""

    def __init__(self, atoms: Atoms, target: str) -> None:
        nodes = atoms.nodes[: atoms.given]
        kinds = [kind_of(node) for node in nodes]
        self._own = atoms.givens
        self._reads = atoms.plain.preds
        self._above = atoms.plain.ancestors
        self._thick = sum(1 << a for a, node in enumerate(nodes) if is_thick(node))
        self._long = sum(1 << a for a, node in enumerate(nodes) if node.op == "contract" and not is_small(node))
        self._costly = sum(1 << a for a, kind in enumerate(kinds) if kind in COSTLY)
        self._reductions = sum(1 << a for a, kind in enumerate(kinds) if kind is OpKind.REDUCTION)
        self._combined = sum(1 << a for a, node in enumerate(nodes) if node.op in COMBINES)
        self._free = sum(1 << a for a, node in enumerate(nodes) if is_free(node))
        self._by_libraries = target == "cpu"

    def keep_apart(self, piece: SegmentMask) -> bool:
        """Whether every family but `naive` is sure to refuse the segment. False for a segment with alternatives, which
        is not looked at."""
        thick = piece.members & self._thick
        if not thick or piece.members & ~self._own:
            return False
        *first, last = bits(thick)
        if len(first) > 1 or any(not self._above[last] >> a & 1 for a in first):
            return True
        if any(thick & ~(self._above[t] | 1 << t) for t in bits(piece.writes)):
            return True
        return self._too_much_for_libraries(piece, last) if self._by_libraries else self._too_much_for_tiles(piece)

    def _too_much_for_libraries(self, piece: SegmentMask, product: int) -> bool:
        """Whether the segment computes an operand of the product, or has a second costly op: library calls on the CPU
        multiply stored tensors and sum up nothing else. But `attention` has reductions behind a product, and multiplies
        what comes of them."""
        if piece.members & self._reductions:
            first = (piece.members & self._thick & -(piece.members & self._thick)).bit_length() - 1
            return self._computes_operands(piece, first) or self._reduces_before(piece)
        others = piece.members & self._costly & ~(1 << product)
        return bool(others) or self._computes_operands(piece, product)

    def _computes_operands(self, piece: SegmentMask, product: int) -> bool:
        return bool(self._reads[product] & piece.members & ~self._free)

    def _too_much_for_tiles(self, piece: SegmentMask) -> bool:
        """Whether the segment is more than tiles on a GPU compute: one thick product, or what `attention` takes, which
        is some reductions of a product's rows and a second product of them."""
        reductions = piece.members & self._reductions
        if not reductions:
            return (piece.members & self._thick).bit_count() > 1
        return bool(reductions & ~self._combined) or self._reduces_before(piece)

    def _reduces_before(self, piece: SegmentMask) -> bool:
        """Whether a reduction follows from no product."""
        long = piece.members & self._long
        return any(not self._above[a] & long for a in bits(piece.members & self._reductions))
