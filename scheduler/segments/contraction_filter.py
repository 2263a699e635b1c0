"""Segments that no family takes for their products of matrices, said from atoms alone: thousands are never built."""

from collections.abc import Callable, Iterable, Mapping

from codegen.attention.phases import COMBINES
from codegen.families.contraction_limits import is_thick
from codegen.families.reduction import is_small
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.value_preserving import is_free
from scheduler.bitset import bits, union
from scheduler.segments.atoms import Atoms
from scheduler.segments.segment_mask import SegmentMask

COSTLY = frozenset({OpKind.CONTRACT, OpKind.REDUCTION, OpKind.SCAN, OpKind.GATHER, OpKind.SCATTER})

Above = Callable[[int], int]


class ContractionFilter:
    """The thick products among atoms (see `is_thick`), and the atoms that families for `target` take beside them."""

    def __init__(self, atoms: Atoms, target: str) -> None:
        kinds = [kind_of(node) for node in atoms.nodes]
        self._reads = atoms.preds
        self._stands = atoms.stands
        self._plain = atoms.plain
        self._givens = atoms.givens
        self._thick = _those(map(is_thick, atoms.nodes))
        self._long = _those(node.op == "contract" and not is_small(node) for node in atoms.nodes)
        self._costly = _those(kind in COSTLY for kind in kinds)
        self._reductions = _those(kind is OpKind.REDUCTION for kind in kinds)
        self._combined = _those(node.op in COMBINES for node in atoms.nodes)
        self._free = _those(map(is_free, atoms.nodes))
        self._by_libraries = target == "cpu"

    def keep_apart(self, piece: SegmentMask) -> bool:
        """Whether every family but `naive` is sure to refuse the segment."""
        if not piece.members & self._thick:
            return False
        made = {self._stands[a]: a for a in bits(piece.members)}  # where two compute a tensor, the last one does
        above = self._above(piece.members, made)
        written = [above(made[t]) | 1 << made[t] for t in bits(piece.writes)]
        members = union(written)  # where an alternative does without one of the atoms, that is not computed
        thick = members & self._thick
        if not thick:
            return False
        last = next((t for t in bits(thick) if not thick & ~(above(t) | 1 << t)), None)
        if last is None or any(thick & ~needed for needed in written):
            return True
        if self._by_libraries:
            return self._too_much_for_libraries(members, above)
        return self._too_much_for_tiles(members, above)

    def _above(self, members: int, made: Mapping[int, int]) -> Above:
        """By atom of a segment, the atoms of it that it is computed from. made: the atoms by their tensors."""
        if not members & ~self._givens and self._plain.is_convex(members):  # no way between two leads out of it
            ancestors = self._plain.ancestors
            return lambda a: ancestors[a] & members
        above: dict[int, int] = {}
        stack = [*made.values()]
        while stack:
            own = [made[t] for t in bits(self._reads[stack[-1]]) if t in made]
            if missing := [a for a in own if a not in above]:
                stack += missing
            else:
                above[stack.pop()] = union(above[a] | 1 << a for a in own)
        return above.__getitem__

    def _too_much_for_libraries(self, members: int, above: Above) -> bool:
        """Whether the segment computes an operand of a product, or sums up something else: library calls on the CPU
        multiply stored tensors. But `attention` has reductions behind a product, and multiplies what comes of them."""
        long = members & self._long
        reductions = members & self._reductions
        if not reductions:
            return bool(members & self._costly & ~long) or long.bit_count() > 1 or self._computes(long, 0, above)
        first = sum(1 << a for a in bits(long) if not above(a) & long)
        if first.bit_count() > 1 or long.bit_count() > 2:
            return True
        return self._computes(long, first, above) or self._reduces_before(members, above)

    def _computes(self, products: int, first: int, above: Above) -> bool:
        """Whether the segment computes an operand of a product from anything but the atom `first`."""
        read = (a for p in bits(products) for a in self._read(p, above))
        return any(not (self._free | first) >> a & 1 and not above(a) & first for a in read)

    def _read(self, atom: int, above: Above) -> list[int]:
        """Atoms of the segment that the atom reads."""
        return [a for a in bits(above(atom)) if self._reads[atom] >> self._stands[a] & 1]

    def _too_much_for_tiles(self, members: int, above: Above) -> bool:
        """Whether the segment is more than tiles on a GPU compute: one thick product, or what `attention` takes, which
        is some reductions of a product's rows and a second product of them."""
        reductions = members & self._reductions
        if not reductions:
            return (members & self._thick).bit_count() > 1
        return bool(reductions & ~self._combined) or self._reduces_before(members, above)

    def _reduces_before(self, members: int, above: Above) -> bool:
        """Whether a reduction follows from no product."""
        return any(not above(a) & self._long for a in bits(members & self._reductions))


def _those(told: Iterable[bool]) -> int:
    """The atoms of which this is true."""
    return sum(1 << a for a, holds in enumerate(told) if holds)
