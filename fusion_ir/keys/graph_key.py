"""Keys of graphs and segments: two with equal keys are equal.

`graph_key` hashes the canonical text: blind to names and to the order in which nodes were written, sensitive to all
else. A segment's boundary has no order of its own, so `canonical_segment` gives it one before it is hashed. Equal keys
mean equal canonical texts; two isomorphic segments with different keys are possible where symmetric parts are told
apart only by the order in which they were given, and cost a measurement, never a wrong answer.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from fusion_ir.core.graph import Graph, InputSpec, OutputSpec, topological
from fusion_ir.core.layout import normal_strides
from fusion_ir.core.node import Node
from fusion_ir.ops import make_input
from fusion_ir.text.printing import print_graph

# Kernels gain nothing from more: the widest access there is (CUDA from compute capability 10.0) moves 32 bytes.
SEGMENT_ALIGNMENT_BYTES = 32


class CanonicalSegment(NamedTuple):
    """`inputs[i]` and `outputs[i]`: positions, in the segment as given, of input and output i of `graph`."""

    graph: Graph
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def graph_key(graph: Graph) -> str:
    """sha256 of the canonical text, in hexadecimal."""
    return hashlib.sha256(print_graph(graph).encode()).hexdigest()


def segment_key(segment: Graph) -> str:
    """Key of a segment, whose inputs and outputs are sets: the key of its canonical form."""
    return graph_key(canonical_segment(segment).graph)


def canonical_segment(segment: Graph) -> CanonicalSegment:
    """The segment with its boundary in canonical order, so that kernels and measurements can be shared.

    Outputs are ordered by a structural hash of their cones, inputs by first use from the outputs. Layouts are brought
    to what a kernel can tell apart: alignment up to 32 bytes, strides of axes of extent 1 dense; constants become
    ordinary inputs, since no kernel depends on their version.

        in0: f32[8] align 64, in1: f32[4] align 16      in0: f32[4] align 16, in1: f32[8] align 32
        out0: exp(in0), out1: neg(in1)              ->  out0: neg(in0), out1: exp(in1)
    """
    specs = [_kernel_view(spec) for spec in segment.inputs]
    outputs = _output_order(segment, specs)
    order = {
        n.attr("position", int): None
        for n in topological(segment.outputs[i].node for i in outputs)
        if not n.args and n.op == "input"
    }
    unused = sorted((i for i in range(len(specs)) if i not in order), key=lambda i: (repr(specs[i]), i))
    inputs = (*order, *unused)
    new_position = {old: new for new, old in enumerate(inputs)}
    rebuilt: dict[Node, Node] = {}
    for node in topological(segment.outputs[i].node for i in outputs):
        if node.op == "input":
            position = node.attr("position", int)
            rebuilt[node] = make_input(new_position[position], specs[position])
        else:
            rebuilt[node] = node.over(tuple([rebuilt[a] for a in node.args]))
    graph = Graph(
        tuple(specs[i] for i in inputs),
        tuple(_moved(segment.outputs[i], rebuilt, new_position) for i in outputs),
    )
    return CanonicalSegment(graph, inputs, outputs)


def _kernel_view(spec: InputSpec) -> InputSpec:
    alignment_bytes = min(spec.alignment_bytes, SEGMENT_ALIGNMENT_BYTES)
    return InputSpec(spec.shape, spec.dtype, normal_strides(spec.sizes, spec.strides), alignment_bytes)


def _moved(output: OutputSpec, rebuilt: Mapping[Node, Node], new_position: Mapping[int, int]) -> OutputSpec:
    node, donates = rebuilt[output.node], output.donates
    strides = normal_strides(node.sizes, output.strides)
    return replace(output, node=node, strides=strides, donates=None if donates is None else new_position[donates])


def _output_order(segment: Graph, specs: list[InputSpec]) -> tuple[int, ...]:
    """Outputs by structural hash. Where different nodes tie, a second round also hashes how inputs are used."""
    if len(segment.outputs) == 1:
        return (0,)
    hashes = _merkle(segment, {i: repr(spec) for i, spec in enumerate(specs)})
    if len({hashes[o.node] for o in segment.outputs}) < len({o.node for o in segment.outputs}):
        uses = _uses(segment, hashes)
        hashes = _merkle(segment, {i: f"{spec!r} {uses.get(i, '')}" for i, spec in enumerate(specs)})

    def rank(position: int) -> tuple[str, str, int]:
        output = segment.outputs[position]
        donated = "" if output.donates is None else repr(specs[output.donates])
        return hashes[output.node], f"{normal_strides(output.node.sizes, output.strides)} {donated}", position

    return tuple(sorted(range(len(segment.outputs)), key=rank))


def _merkle(segment: Graph, inputs: Mapping[int, str]) -> dict[Node, str]:
    """A hash per node of everything below it; `inputs` describes the inputs by position."""
    hashes: dict[Node, str] = {}
    for node in segment.nodes:
        if node.op == "input":
            hashes[node] = _digest(inputs[node.attr("position", int)])
        else:
            hashes[node] = _digest(f"{node.op} {node.attrs} {[hashes[a] for a in node.args]}")
    return hashes


def _uses(segment: Graph, hashes: Mapping[Node, str]) -> dict[int, str]:
    """A hash per used input of what is above it: for each user its own hash, its uses, and the operand's place."""
    above: dict[Node, list[str]] = {node: [] for node in segment.nodes}
    for output in segment.outputs:
        above[output.node].append(f"output {normal_strides(output.node.sizes, output.strides)}")
    uses: dict[int, str] = {}
    for node in reversed(segment.nodes):
        use = _digest(f"{hashes[node]} {sorted(above[node])}")
        for place, arg in enumerate(node.args):
            above[arg].append(f"{place} {use}")
        if node.op == "input":
            uses[node.attr("position", int)] = use
    return uses


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
