"""A segment: what one launch computes. Tensors read, tensors written, the cone between."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.keys.graph_key import CanonicalSegment, canonical_segment, graph_key
from scheduler.bitset import bits
from scheduler.segments.atoms import Atoms
from scheduler.segments.boundary import Boundary
from scheduler.segments.segment_mask import SegmentMask


@dataclass(frozen=True, eq=False)
class Segment:
    """`graph` computes `writes` (its outputs, in order) from `reads` (its inputs, in order), nodes of the graph that
    was cut.

    Reads and writes lie in memory as `scheduler.segments.boundary` says. cone: nodes computed, operands first, as they
    are in that graph or its alternatives: over the nodes that stand for what they read, whichever producer computed
    that.
    """

    piece: SegmentMask
    reads: tuple[Node, ...]
    writes: tuple[Node, ...]
    cone: tuple[Node, ...]
    graph: Graph

    @property
    def members(self) -> int:
        """Atoms computed."""
        return self.piece.members

    @cached_property
    def canonical(self) -> CanonicalSegment:
        """The graph with its boundary in canonical order: what kernels are made for and measurements belong to."""
        return _identity(self.graph)[0]

    @cached_property
    def key(self) -> str:
        """Equal for segments that one kernel serves."""
        return _identity(self.graph)[1]

    @property
    def arguments(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """Reads and writes in the order of a kernel's parameters, which is that of `canonical.graph`."""
        _, inputs, outputs = self.canonical
        return tuple(self.reads[i] for i in inputs), tuple(self.writes[i] for i in outputs)


@lru_cache(maxsize=4096)
def _identity(graph: Graph) -> tuple[CanonicalSegment, str]:
    """The graph in canonical order, and its key."""
    canonical = canonical_segment(graph)
    return canonical, graph_key(canonical.graph)


def extract(atoms: Atoms, piece: SegmentMask) -> Segment:
    """The segment that computes these atoms, and whatever is free below them."""
    boundary, stands_for = atoms.boundary, atoms.alternatives.stands_for
    read, written = tuple(bits(atoms.reads_of(piece.members))), tuple(bits(piece.writes))
    reads, writes = tuple([atoms.tensors[t] for t in read]), tuple([atoms.nodes[t] for t in written])
    added = bits(piece.members & ~atoms.givens)
    made_by = {stands_for.get(n, n): n for n in (atoms.nodes[a] for a in added)} if added else {}
    rebuilt = {atoms.tensors[t]: boundary.input(position, t) for position, t in enumerate(read)}
    cone = _cone(atoms, writes, set(reads), made_by)
    for node in cone:
        args = tuple(
            [rebuilt[stands_for.get(a, a)] for a in node.args] if stands_for else [rebuilt[a] for a in node.args]
        )
        rebuilt[stands_for.get(node, node)] = boundary.over(node, args)
    inputs = tuple([boundary.specs[t] for t in read])
    outputs = tuple(
        [
            OutputSpec(rebuilt[n], boundary.specs[t].strides, _donor(boundary, t, read))
            for n, t in zip(writes, written, strict=True)
        ]
    )
    return Segment(piece, reads, writes, cone, boundary.one(Graph(inputs, outputs)))


def _donor(boundary: Boundary, tensor: int, read: tuple[int, ...]) -> int | None:
    """The position among the tensors read of the one whose memory an output may take over; None where it takes over
    none, or the segment does not read that."""
    donor = boundary.donors.get(tensor)
    return read.index(donor) if donor is not None and donor in read else None


def _cone(atoms: Atoms, writes: tuple[Node, ...], reads: set[Node], made_by: Mapping[Node, Node]) -> tuple[Node, ...]:
    """Nodes computed on the way from `reads` to `writes`, operands first. made_by: what computes a tensor, where that
    is not its own node."""
    tensor = atoms.alternatives.tensor
    found: set[Node] = set()
    stack = [made_by.get(n, n) for n in writes]
    order: list[Node] = []
    if not made_by:
        found.update(stack)
        while stack:
            for arg in stack.pop().args:
                if arg not in found and arg not in reads:
                    found.add(arg)
                    stack.append(arg)
        return tuple(sorted(found, key=atoms.order.__getitem__))
    while stack:  # depth first: a producer may come after who reads its tensor
        node = stack[-1]
        below = [tensor(a) for a in node.args]
        waiting = [n for t in below if t not in reads and (n := made_by.get(t, t)) not in found]
        stack += waiting
        if not waiting:
            stack.pop()
            if node not in found:
                found.add(node)
                order.append(node)
    return tuple(order)
