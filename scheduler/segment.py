"""A segment: what one launch computes. Tensors read, tensors written, the cone between."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from fusion_ir.extent import dense_strides
from fusion_ir.graph import Graph, InputSpec, OutputSpec
from fusion_ir.key import CanonicalSegment, canonical_segment, graph_key
from fusion_ir.node import Node
from fusion_ir.ops import make_input
from scheduler.atoms import Atoms
from scheduler.masks import bits
from scheduler.piece import Piece

TEMPORARY_ALIGNMENT_BYTES = 64
# What kernels assume of the buffers that callers pass for outputs; plans demand it.
OUTPUT_ALIGNMENT_BYTES = 64


@dataclass(frozen=True, eq=False)
class Segment:
    """`graph` computes `writes` (its outputs, in order) from `reads` (its inputs, in order), nodes of the graph that
    was cut.

    A read that is an input of that graph keeps its layout; any other is as its writer stored it: in the layout of the
    output that it is, else dense. cone: nodes computed, operands first, as they are in that graph or its alternatives:
    over the nodes that stand for what they read, whichever producer computed that.
    """

    piece: Piece
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
        return canonical_segment(self.graph)

    @cached_property
    def key(self) -> str:
        """Equal for segments that one kernel serves."""
        return graph_key(self.canonical.graph)

    @property
    def arguments(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """Reads and writes in the order of a kernel's parameters, which is that of `canonical.graph`."""
        _, inputs, outputs = self.canonical
        return tuple(self.reads[i] for i in inputs), tuple(self.writes[i] for i in outputs)


def extract(atoms: Atoms, piece: Piece) -> Segment:
    """The segment that computes these atoms, and whatever is free below them."""
    wanted = {o.node: o for o in atoms.graph.outputs}
    reads = tuple(atoms.tensors[t] for t in bits(atoms.reads_of(piece.members)))
    writes = tuple(atoms.nodes[t] for t in bits(piece.writes))
    tensor = atoms.alternatives.tensor
    made_by = {tensor(n): n for n in (atoms.nodes[a] for a in bits(piece.members & ~atoms.givens))}
    rebuilt: dict[Node, Node] = {}
    inputs: list[InputSpec] = []
    for position, node in enumerate(reads):
        if node.op == "input":
            spec = atoms.graph.inputs[node.attr("position", int)]
        elif node in wanted:
            spec = InputSpec(node.shape, node.dtype, wanted[node].strides, OUTPUT_ALIGNMENT_BYTES)
        else:
            spec = InputSpec(node.shape, node.dtype, dense_strides(node.sizes), TEMPORARY_ALIGNMENT_BYTES)
        inputs.append(spec)
        rebuilt[node] = make_input(position, spec)
    cone = _cone(atoms, writes, set(reads), made_by)
    for node in cone:
        rebuilt[tensor(node)] = node.over(tuple([rebuilt[tensor(a)] for a in node.args]))
    outputs = tuple(
        OutputSpec(rebuilt[n], wanted[n].strides if n in wanted else dense_strides(n.sizes)) for n in writes
    )
    return Segment(piece, reads, writes, cone, Graph(tuple(inputs), outputs))


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
