"""Bytes of temporaries that are alive at once while a cover is executed."""

from collections.abc import Iterable, Sequence

from scheduler.bitset import bits
from scheduler.segments.hypergraph import Hypergraph
from scheduler.segments.segment_mask import SegmentMask


class PeakMemory:
    """`bytes_`: sizes by tensor; empty where memory is not limited. Outputs do not count: callers provide them."""

    def __init__(self, hypergraph: Hypergraph, bytes_: Sequence[int]) -> None:
        self._hypergraph = hypergraph
        self._bytes = bytes_ or [0] * len(hypergraph.stands)
        self._known: dict[int, int] = {}

    def of(self, tensors: int) -> int:
        """Bytes of these tensors together, outputs left out."""
        tensors &= ~self._hypergraph.outputs
        if tensors not in self._known:
            self._known[tensors] = sum(self._bytes[t] for t in bits(tensors))
        return self._known[tensors]

    def least(self, piece: SegmentMask) -> int:
        """Bytes alive at the least while the piece runs: what it reads and writes."""
        return self.of(piece.writes | self._hypergraph.read(piece.members))

    def peak(self, order: Iterable[SegmentMask]) -> int:
        """The most bytes alive while any of these pieces, given in execution order, runs: what it reads and writes, and
        what was written before and is read after."""
        alive, peak = self._hypergraph.outputs, 0
        for piece in reversed(tuple(order)):
            reads = self._hypergraph.read(piece.members)
            peak = max(peak, self.of(alive | piece.writes | reads))
            alive = alive & ~piece.writes | reads
        return peak
