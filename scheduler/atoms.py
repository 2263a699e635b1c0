"""The units of cutting: nodes whose tensors may be stored. All others vanish into whoever reads them.

View ops and casts that lose nothing are free: a segment that needs one recomputes it, and no cut is made there. So what
is stored is the narrow tensor before its widening, and the tensor before it was broadcast.

    %3 = mul(%1, %2): bf16[64]                 atom 0, reads in0, in1
    %4 = cast(%3): f32[64]                     free
    %5 = broadcast_in_dim(%4): f32[32, 64]     free
    %6 = exp(%5)                               atom 1, reads atom 0
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.ops import OPS, OpKind
from scheduler.casts import is_exact
from scheduler.cover import bits


@dataclass(frozen=True)
class Atoms:
    """Atoms 0 ... n-1 in depth-first topological order; sets of them are masks.

    nodes:   the tensor of each atom.
    tensors: what a segment may read: the atoms' nodes, then the graph's inputs; sets of them are masks too, in which
             the atoms have the bits they have among themselves.
    reads:   per atom, the tensors that computing it alone reads.
    through: free nodes: whoever reads one sees what it is made of. A graph output may be free for its readers (a
             broadcast of something smaller) and an atom that writes it all the same.
    """

    graph: Graph
    nodes: tuple[Node, ...]
    tensors: tuple[Node, ...]
    reads: tuple[int, ...]
    through: frozenset[Node]

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
    def ancestors(self) -> tuple[int, ...]:
        above: list[int] = []
        for reads in self.preds:
            mask = reads
            for p in bits(reads):
                mask |= above[p]
            above.append(mask)
        return tuple(above)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        below = [0] * len(self.nodes)
        for a in reversed(range(len(self.nodes))):
            for s in bits(self.succs[a]):
                below[a] |= below[s] | 1 << s
        return tuple(below)

    @cached_property
    def outputs(self) -> int:
        """Atoms that are outputs of the graph."""
        wanted = {o.node for o in self.graph.outputs}
        return sum(1 << a for a, n in enumerate(self.nodes) if n in wanted)

    @cached_property
    def constants(self) -> int:
        """Tensors that depend on constant inputs alone: these, and atoms that are no outputs of the graph. A segment of
        such atoms is computed once for each version of the constants. None where the graph has no constant input."""
        if all(spec.constant is None for spec in self.graph.inputs):
            return 0
        known = sum(
            1 << t
            for t, n in enumerate(self.tensors)
            if n.op == "input" and self.graph.inputs[n.attr("position", int)].constant is not None
        )
        for a, reads in enumerate(self.reads):
            if not reads & ~known and not self.outputs >> a & 1:
                known |= 1 << a
        return known

    def is_constant(self, tensors: int) -> bool:
        """Whether all of these depend on constant inputs alone."""
        return not tensors & ~self.constants

    @cached_property
    def order(self) -> dict[Node, int]:
        """Position of every node of the graph in `graph.nodes`."""
        return {n: i for i, n in enumerate(self.graph.nodes)}

    @cached_property
    def bit(self) -> dict[Node, int]:
        """The bit of a tensor that readers stop at: an atom that is not seen through, or an input."""
        return {n: i for i, n in enumerate(self.tensors) if n not in self.through}

    def reads_of(self, members: int) -> int:
        """Tensors that a segment of these atoms reads."""
        reads = 0
        for a in bits(members):
            reads |= self.reads[a]
        return reads & ~members

    def writes_of(self, members: int) -> int:
        """Atoms among these that a segment of them writes: outputs, and what others read."""
        return sum(1 << a for a in bits(members) if self.outputs >> a & 1 or self.succs[a] & ~members)

    def is_convex(self, members: int) -> bool:
        """Whether no path leaves the set and comes back."""
        above = below = 0
        for a in bits(members):
            above |= self.ancestors[a]
            below |= self.descendants[a]
        return not above & below & ~members

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


def is_free(node: Node) -> bool:
    """View ops, and casts to a type that holds every value of the operand's."""
    if node.op == "input":
        return False
    if node.op == "cast":
        return is_exact(node.args[0].dtype, node.dtype)
    return OPS[node.op].kind is OpKind.VIEW


def atoms_of(graph: Graph, materialised: frozenset[Node] = frozenset()) -> Atoms:
    """The atoms of a prepared graph; `materialised`: nodes that are atoms although they are free."""
    wanted = {o.node for o in graph.outputs}
    through: set[Node] = set()
    computed: list[Node] = []
    below: dict[Node, tuple[Node, ...]] = {}  # per node, the tensors that it is made of as its readers see it
    made_of: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        parts = tuple(dict.fromkeys(t for a in node.args for t in below[a]))
        made_of[node] = parts
        free = is_free(node) and node not in materialised
        if free and node in wanted:
            free = all(t.op == "input" for t in parts) or node.bytes > sum(t.bytes for t in parts)
            computed.append(node)
        elif not free and node.op != "input":
            computed.append(node)
        if free:
            through.add(node)
        below[node] = parts if free else (node,)
    nodes = _depth_first(computed, made_of)
    used = dict.fromkeys(t for n in nodes for t in made_of[n] if t.op == "input")
    tensors = (*nodes, *sorted(used, key=lambda n: n.attr("position", int)))
    bit = {n: 1 << i for i, n in enumerate(tensors)}
    reads = tuple(sum(bit[t] for t in made_of[n]) for n in nodes)
    return Atoms(graph, nodes, tensors, reads, frozenset(through))


def cut(graph: Graph, computable: Callable[[Atoms, int], bool], materialised: frozenset[Node] = frozenset()) -> Atoms:
    """Atoms each of which can be computed alone: where `computable(atoms, atom)` says no, the free nodes that the atom
    would have recomputed become atoms, so that it reads finished tensors."""
    while True:
        atoms = atoms_of(graph, materialised)
        stored = frozenset[Node]()
        for a in range(len(atoms)):
            views = atoms.free_below(a)
            if views and not computable(atoms, a):
                stored |= views
        if not stored:
            return atoms
        materialised |= stored


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
