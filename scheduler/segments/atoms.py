"""The units of cutting: nodes whose tensors may be stored. All other nodes are recomputed by whoever reads them.

View ops and casts that lose nothing are free: a segment that needs one recomputes it, and no cut is made there. So a
narrow tensor is stored before it is widened, and a tensor is stored before it is broadcast.

    %3 = mul(%1, %2): bf16[64]                 atom 0, reads in0, in1
    %4 = cast(%3): f32[64]                     free
    %5 = broadcast_in_dim(%4): f32[32, 64]     free
    %6 = exp(%5)                               atom 1, reads atom 0

A padding or a concatenation is an atom where it is summed up (`_copies`): it may be stored, and need not be.

Where a tensor has several producers (`scheduler.rewrites.alternatives`), each of them is an atom. Readers of the
tensor have the bit of the producer that the graph was given with.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.value_preserving import is_free
from scheduler.bitset import bits
from scheduler.rewrites.alternatives import Alternatives
from scheduler.segments.boundary import Boundary
from scheduler.segments.hypergraph import Hypergraph
from scheduler.segments.segment_mask import SegmentMask

SUMS = (OpKind.CONTRACT, OpKind.REDUCTION, OpKind.SCAN, OpKind.SCATTER)
LIGHT = (OpKind.VIEW, OpKind.POINTWISE)
COPIES = ("cat", "pad")  # views that are no strides over one tensor


@dataclass(frozen=True)
class Atoms:
    """Atoms 0 ... n-1; sets of them are masks. First the `given` ones, those of the graph, in depth-first topological
    order; then what alternatives add, operands before those of them that read them.

    nodes:   what each atom computes.
    tensors: what a segment may read: the atoms' nodes, then the graph's inputs; sets of them are masks too, in which
             the atoms have the bits they have among themselves.
    reads:   per atom, the tensors that computing it alone reads.
    through: free nodes: whoever reads one sees what it is made of. A graph output may be free for its readers (a
             broadcast of something smaller) and an atom that writes it all the same.
    stands:  per atom, the atom whose tensor it produces: itself, or for an alternative another atom.
    """

    graph: Graph
    nodes: tuple[Node, ...]
    tensors: tuple[Node, ...]
    reads: tuple[int, ...]
    through: frozenset[Node]
    stands: tuple[int, ...]
    given: int
    alternatives: Alternatives

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def all(self) -> int:
        return (1 << len(self.nodes)) - 1

    @cached_property
    def preds(self) -> tuple[int, ...]:
        """Atoms that each atom reads."""
        return tuple(r & self.all for r in self.reads)

    @cached_property
    def succs(self) -> tuple[int, ...]:
        """Atoms that read each atom."""
        succs = [0] * len(self.nodes)
        for a, reads in enumerate(self.preds):
            for p in bits(reads):
                succs[p] |= 1 << a
        return tuple(succs)

    @cached_property
    def hypergraph(self) -> Hypergraph:
        """The atoms and the tensors among them: which atoms produce a tensor, and what it needs in every way."""
        return Hypergraph(self.preds, self.stands, self.outputs)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """By atom, the tensors that it needs, in whatever way these are produced."""
        return tuple(map(self.hypergraph.needed_for, self.preds))

    @cached_property
    def outputs(self) -> int:
        """Atoms that are outputs of the graph."""
        wanted = {o.node for o in self.graph.outputs}
        return sum(1 << a for a, n in enumerate(self.nodes) if n in wanted)

    @cached_property
    def sums(self) -> dict[OpKind, int]:
        """Atoms that sum up, by kind."""
        kinds = {a: kind_of(node) for a, node in enumerate(self.nodes)}
        return {kind: sum(1 << a for a, own in kinds.items() if own is kind) for kind in SUMS}

    @cached_property
    def light(self) -> int:
        """Atoms whose tensors are cheap to compute again: views, and pointwise ops."""
        return sum(1 << a for a, node in enumerate(self.nodes) if kind_of(node) in LIGHT)

    @cached_property
    def read_once(self) -> int:
        """Tensors of one producer that one atom reads."""
        several = enumerate(zip(self.succs, self.hypergraph.producers, strict=True))
        return sum(1 << t for t, (readers, made_by) in several if readers.bit_count() == 1 == len(made_by))

    @cached_property
    def constants(self) -> int:
        """Tensors that depend on constant inputs alone: the constant inputs, and atoms that are no graph outputs. A
        segment of such atoms is computed once for each version of the constants. 0 where no input is constant."""
        if all(spec.constant is None for spec in self.graph.inputs):
            return 0
        known = sum(
            1 << t
            for t, n in enumerate(self.tensors)
            if n.op == "input" and self.graph.inputs[n.attr("position", int)].constant is not None
        )
        for a, reads in enumerate(self.reads):
            if not reads & ~known and not self.outputs >> self.stands[a] & 1:
                known |= 1 << a
        return known

    def is_constant(self, tensors: int) -> bool:
        """Whether all of these depend on constant inputs alone."""
        return not tensors & ~self.constants

    @cached_property
    def order(self) -> dict[Node, int]:
        """Position of every node of the graph and its alternatives; operands come first."""
        return {n: i for i, n in enumerate((*self.graph.nodes, *self.alternatives.added))}

    @cached_property
    def bit(self) -> dict[Node, int]:
        """The bit of a tensor that readers stop at: an atom that is not seen through, or an input."""
        return {n: i for i, n in enumerate(self.tensors) if n not in self.through}

    @cached_property
    def boundary(self) -> Boundary:
        """The tensors as segments read and write them."""
        return Boundary(self.graph, self.tensors)

    @cached_property
    def givens(self) -> int:
        """Atoms of the graph as given."""
        return (1 << self.given) - 1

    def reads_of(self, members: int) -> int:
        """Tensors that a segment of these atoms reads."""
        known = self._reads_of.get(members)
        if known is None:
            known = 0
            for a in bits(members):
                known |= self.reads[a]
            known = self._reads_of[members] = known & ~self.hypergraph.made(members)
        return known

    def writes_of(self, members: int) -> int:
        """Tensors that a segment of these atoms writes where no other segment computes any of them again: outputs of
        the graph, and tensors that other atoms read."""
        known = self._writes_of.get(members)
        if known is None:
            made, others = self.hypergraph.made(members), self.all & ~members
            known = made & self.outputs
            for t in bits(made & ~self.outputs):
                if self.succs[t] & others:
                    known |= 1 << t
            self._writes_of[members] = known
        return known

    @cached_property
    def _reads_of(self) -> dict[int, int]:
        """Answers of `reads_of` by members: each set is asked about several times."""
        return {}

    @cached_property
    def _writes_of(self) -> dict[int, int]:
        """Answers of `writes_of` by members."""
        return {}

    def piece(self, members: int) -> SegmentMask:
        """The segment of these atoms that writes whatever other atoms read; where all are the graph's own atoms,
        whatever others of the graph's own read."""
        own = not members & ~self.givens
        return SegmentMask(members, (self.plain if own else self).writes_of(members))

    def is_plain(self, piece: SegmentMask) -> bool:
        """Whether the segment is one of a partition of the graph's own atoms."""
        return not piece.members & ~self.givens and piece.writes == self.plain.writes_of(piece.members)

    def is_own(self, piece: SegmentMask) -> bool:
        """Whether the segment would be there if the graph had no alternatives."""
        return not piece.members & ~self.givens and not piece.writes & ~self.plain.writes_of(piece.members)

    @property
    def plain(self) -> "Atoms":
        """The atoms of the graph as given alone."""
        return self if self.given == len(self.nodes) else self._given_alone

    @cached_property
    def _given_alone(self) -> "Atoms":
        n, added = self.given, len(self.nodes) - self.given
        reads = tuple(r & self.givens | r >> added & ~self.givens for r in self.reads[:n])
        tensors = (*self.nodes[:n], *self.tensors[len(self.nodes) :])
        return Atoms(
            self.graph, self.nodes[:n], tensors, reads, self.through, self.stands[:n], n, Alternatives(self.graph)
        )

    def is_convex(self, members: int) -> bool:
        """Whether no path leaves the set and comes back, whichever alternatives are chosen outside."""
        return self.is_possible(SegmentMask(members, self.hypergraph.made(members)))

    def is_possible(self, piece: SegmentMask) -> bool:
        """Whether no tensor that the segment reads needs, in every way of producing it, a tensor that it writes."""
        return not self.hypergraph.needed_for(self.reads_of(piece.members) & self.all) & piece.writes

    def free_below(self, atom: int) -> frozenset[Node]:
        """Free nodes that the atom alone computes on the way."""
        found: set[Node] = set()
        stack = list(self.nodes[atom].args)
        while stack:
            node = stack.pop()
            if node in self.through and node not in found:
                found.add(node)
                stack.extend(node.args)
        return frozenset(found)


def atoms_of(
    graph: Graph, materialised: frozenset[Node] = frozenset(), alternatives: Alternatives | None = None
) -> Atoms:
    """The atoms of a prepared graph; `materialised`: nodes that are atoms although they are free."""
    alternatives = alternatives or Alternatives(graph)
    every = (*graph.nodes, *alternatives.added)
    materialised |= frozenset(alternatives.producers) | _stored(alternatives) | _copies(every)
    wanted = {o.node for o in graph.outputs}
    through: set[Node] = set()
    computed: list[Node] = []
    added: list[Node] = []
    below: dict[Node, tuple[Node, ...]] = {}  # per node, the tensors that it is made of as its readers see it
    made_of: dict[Node, tuple[Node, ...]] = {}
    for node in every:
        tensor = alternatives.tensor(node)
        parts = tuple(dict.fromkeys(t for a in node.args for t in below[a]))
        made_of[node] = parts
        free = is_free(node) and node not in materialised and node is tensor
        into = computed if node in alternatives.givens else added
        if free and node in wanted:
            free = all(t.op == "input" for t in parts) or node.bytes > sum(t.bytes for t in parts)
            into.append(node)
        elif not free and node.op != "input":
            into.append(node)
        if free:
            through.add(node)
        below[node] = parts if free else (tensor,)
    nodes = (*_depth_first(computed, made_of), *added)
    used = dict.fromkeys(t for n in nodes for t in made_of[n] if t.op == "input")
    tensors = (*nodes, *sorted(used, key=lambda n: n.attr("position", int)))
    place = {n: i for i, n in enumerate(tensors)}
    reads = tuple(sum(1 << place[t] for t in made_of[n]) for n in nodes)
    stands = tuple(place[alternatives.tensor(n)] for n in nodes)
    return Atoms(graph, nodes, tensors, reads, frozenset(through), stands, len(computed), alternatives)


def _stored(alternatives: Alternatives) -> frozenset[Node]:
    """Free nodes that alternatives add and that are worth storing: concatenations, which few kernels see through, and
    what is made of constants alone, once for all runs."""
    return frozenset(n for n in alternatives.added if n.op == "cat") | alternatives.folded


def _copies(nodes: Iterable[Node]) -> frozenset[Node]:
    """Paddings and concatenations that products, reductions and scans read, by way of views: libraries read tensors as
    they lie in memory, and what is read several times, or along the lanes, costs its case distinction each time. A
    segment may have them inside all the same."""
    found: set[Node] = set()
    seen: set[Node] = set()
    stack = [a for n in nodes if kind_of(n) in SUMS for a in n.args]
    while stack:
        node = stack.pop()
        if node in seen or not is_free(node):
            continue
        seen.add(node)
        if node.op in COPIES:
            found.add(node)
        else:
            stack.extend(node.args)
    return frozenset(found)


def _depth_first(nodes: list[Node], made_of: dict[Node, tuple[Node, ...]]) -> tuple[Node, ...]:
    """Topological order in which a reader follows as soon as its last operand is there: keeps the cover's states
    few."""
    atoms = set(nodes)
    waiting = {n: sum(t in atoms for t in made_of[n]) for n in nodes}
    readers: dict[Node, list[Node]] = {n: [] for n in nodes}
    for n in nodes:
        for t in made_of[n]:
            if t in atoms:
                readers[t].append(n)
    stack = [n for n in reversed(nodes) if not waiting[n]]
    order: list[Node] = []
    while stack:
        node = stack.pop()
        order.append(node)
        for reader in reversed(readers[node]):
            waiting[reader] -= 1
            if not waiting[reader]:
                stack.append(reader)
    return tuple(order)
