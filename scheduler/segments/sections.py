"""A large graph in sections: runs of its nodes in topological order, each a graph of its own.

Sets of atoms are masks, and operations on them take longer the larger the graph is. In sections of a few hundred nodes
they stay fast, so that twenty thousand nodes take as long as a hundred times two hundred do.

    %1 = exp(in0)                  section 0: reads in0, writes %1
    %2 = broadcast_in_dim(%1)
    %3 = neg(%2)                   section 1: reads %1, computes the view %2 again
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops import make_input
from fusion_ir.ops.value_preserving import is_free
from scheduler.segments.boundary import OUTPUT_ALIGNMENT_BYTES, TEMPORARY_ALIGNMENT_BYTES
from scheduler.segments.segment import Segment


@dataclass(frozen=True)
class Section:
    """graph: the section alone. whole: by node of the section, its node in the large graph."""

    graph: Graph
    whole: dict[Node, Node]

    def of_whole(self, segment: Segment) -> Segment:
        """A segment of the section as one of the large graph."""
        reads, writes, cone = (
            tuple([self.whole[n] for n in nodes]) for nodes in (segment.reads, segment.writes, segment.cone)
        )
        return replace(segment, reads=reads, writes=writes, cone=cone)


def sections(graph: Graph, most: int) -> Iterator[Section]:
    """Sections in execution order, each with at most `most` tensors that are stored. Views are computed wherever they
    are read, as segments do."""
    strides = {o.node: o.strides for o in graph.outputs}
    stored = [n for n in graph.nodes if n.op != "input" and (not is_free(n) or n in strides)]
    section_of = {n: i // most for i, n in enumerate(stored)}
    below = _below(graph, section_of)
    last = dict[Node, int]()  # section that reads it
    for node in stored:
        for tensor in below[node]:
            last[tensor] = max(last.get(tensor, 0), section_of[node])
    for start in range(0, len(stored), most):
        own = stored[start : start + most]
        written = [n for n in own if n in strides or last.get(n, 0) > section_of[n]]
        yield _section(graph, own, written, strides)


def _below(graph: Graph, section_of: dict[Node, int]) -> dict[Node, tuple[Node, ...]]:
    """By node, the stored tensors and inputs that it is made of, seen through views."""
    below: dict[Node, tuple[Node, ...]] = {}
    seen: dict[Node, tuple[Node, ...]] = {}  # what a reader of the node sees
    for node in graph.nodes:
        below[node] = tuple(dict.fromkeys([t for a in node.args for t in seen[a]]))
        seen[node] = (node,) if node in section_of or node.op == "input" else below[node]
    return below


def _section(
    graph: Graph, own: Sequence[Node], written: Sequence[Node], strides: dict[Node, tuple[int, ...]]
) -> Section:
    inside = set(own)
    image: dict[Node, Node] = {}
    specs: list[InputSpec] = []
    for root in own:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in image:
                stack.pop()
            elif node.op == "input" or (node not in inside and (not is_free(node) or node in strides)):
                specs.append(_spec(graph, node, strides))
                image[node] = make_input(len(specs) - 1, specs[-1])
            elif missing := [a for a in node.args if a not in image]:
                stack += missing
            else:
                image[node] = node.over(tuple([image[a] for a in node.args]))
    outputs = [OutputSpec(image[n], strides.get(n) or dense_strides(n.sizes)) for n in written]
    return Section(Graph(tuple(specs), tuple(outputs)), {small: node for node, small in image.items()})


def _spec(graph: Graph, node: Node, strides: dict[Node, tuple[int, ...]]) -> InputSpec:
    """How a tensor lies in memory for the section that reads it: see `Boundary`."""
    if node.op == "input":
        return graph.inputs[node.attr("position", int)]
    if node in strides:
        return InputSpec(node.shape, node.dtype, strides[node], OUTPUT_ALIGNMENT_BYTES)
    return InputSpec(node.shape, node.dtype, dense_strides(node.sizes), TEMPORARY_ALIGNMENT_BYTES)
