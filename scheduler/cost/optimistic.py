"""Lower bounds on the bytes and products of a segment, from its atoms alone: they keep most candidates out of the
cheapest cover before these are looked at, or even built.

A segment writes its outputs whole. Lower bound on the bytes that it reads: for each input tensor, the largest part that
one of its atoms needs that is computed whole. An atom is computed whole where it is written, or where a reader that is
computed whole needs all of it. Other atoms only add to that: no segment's `traffic_of` is below the bound.

    %1 = exp(%0); %2 = slice(%1); %3 = neg(%2)     {%3} reads as much of %1 as it writes; {%1, %3} need not read all
                                                   of %0, unless %1 is an output

Products count of atoms that are computed whole; of several that read one set of tensors only the largest, since they
may be one product. Families that are sure to refuse the segment are left out of its price.
"""

from collections.abc import Mapping

from codegen.families.contraction_limits import refusing
from fusion_ir.core.graph import Graph
from fusion_ir.ops.value_preserving import is_free
from scheduler.bitset import bits
from scheduler.cost.traffic import LeastTraffic, least_reads, traffic_of
from scheduler.segments.atoms import Atoms
from scheduler.segments.segment import extract
from scheduler.segments.segment_mask import SegmentMask


class OptimisticCost:
    """Lower bounds on the traffic of segments of one graph."""

    def __init__(self, atoms: Atoms) -> None:
        self._atoms = atoms
        self._read_bytes: list[dict[int, int]] = []  # by atom, of each tensor
        self._whole: list[int] = []  # by atom, the tensors that it needs all of
        self._products: dict[int, tuple[str, float]] = {}  # by atom
        self._bytes = [node.bytes for node in atoms.nodes]
        self._elements = [node.elements for node in atoms.nodes]
        self._known: dict[SegmentMask, LeastTraffic] = {}
        self._contractions = sum(1 << a for a, node in enumerate(atoms.nodes) if node.op == "contract")
        reads: dict[Graph, list[tuple[int, bool]]] = {}  # equal for equal atoms of different layers
        for a in range(len(atoms)):
            graph = extract(atoms, SegmentMask(1 << a, 1 << atoms.stands[a])).graph
            tensors = bits(atoms.reads[a])
            needed = reads[graph] = reads[graph] if graph in reads else least_reads(graph)
            self._read_bytes.append({t: read_bytes for t, (read_bytes, _) in zip(tensors, needed, strict=True)})
            self._whole.append(sum(1 << t for t, (_, is_whole) in zip(tensors, needed, strict=True) if is_whole))
            if atoms.nodes[a].op == "contract":
                traffic = traffic_of(graph)
                narrow = traffic.made_products
                self._products[a] = narrow[0] if narrow else (atoms.nodes[a].dtype.name, traffic.made_operations)

    def traffic(self, piece: SegmentMask) -> LeastTraffic:
        """Lower bound on the traffic of a segment."""
        known = self._known.get(piece)
        if known is None:
            known = self._known[piece] = self._traffic(piece)
        return known

    def _traffic(self, piece: SegmentMask) -> LeastTraffic:
        atoms = self._atoms
        producer = {atoms.stands[a]: a for a in bits(piece.members)}
        read: dict[int, int] = {}
        written = bits(piece.writes)
        whole, stack = piece.writes, [*written]
        while stack:
            a = producer[stack.pop()]
            for t, read_bytes in self._read_bytes[a].items():
                if t not in producer:
                    read[t] = max(read_bytes, read.get(t, 0))
                elif self._whole[a] >> t & 1 and not whole >> t & 1:
                    whole |= 1 << t
                    stack.append(t)
        bytes_ = sum(read.values()) + sum([self._bytes[t] for t in written])
        elements = max([self._elements[t] for t in written], default=0)
        if not piece.members & self._contractions:
            return LeastTraffic(bytes_, (), elements)
        products: dict[tuple[str, int], float] = {}
        for t in bits(whole):
            if (a := producer[t]) in self._products:
                dtype, made = self._products[a]
                key = dtype, atoms.reads[a]
                products[key] = max(made, products.get(key, 0.0))
        made_products = tuple((dtype, made) for (dtype, _), made in products.items())
        return LeastTraffic(bytes_, made_products, elements, self._refusing(piece, producer))

    def _refusing(self, piece: SegmentMask, producer: Mapping[int, int]) -> frozenset[str]:
        """Families that are sure to refuse a segment with contractions, as far as these and its ops say."""
        contractions = bits(piece.members & self._contractions)
        nodes = self._atoms.nodes
        ops = frozenset([nodes[a].op for a in bits(piece.members)])
        read = (producer[t] for t in bits(self._atoms.reads[contractions[0]]) if t in producer)
        computed = len(contractions) == 1 and not all(is_free(nodes[a]) for a in read)
        return refusing(ops, computed)
