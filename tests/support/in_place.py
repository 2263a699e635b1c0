"""Graphs whose outputs may have the memory of inputs, and tensors as bytes."""

import numpy as np
from fuseplan_client.cpu.tensors import empty
from fuseplan_client.fill import CARRIERS, random_values
from fuseplan_client.plan import Plan, Tensor

from fusion_ir import building as build
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bool_, f32
from fusion_ir.ops import make, make_input
from testing.random_graphs import Chooser


def turned(x: Node) -> Node:
    """Elements of other places: two axes of one extent exchanged, or else the last axis reversed by halves."""
    shape = x.sizes
    for a in range(len(shape)):
        for b in range(a + 1, len(shape)):
            if shape[a] == shape[b] != 1:
                order = [*range(len(shape))]
                order[a], order[b] = b, a
                return build.permute(x, tuple(order))
    if not shape or shape[-1] < 2:
        return x
    start, end, middle = [0] * len(shape), [*shape], [*shape]
    start[-1] = middle[-1] = shape[-1] // 2
    return build.cat([build.slice_(x, start, end), build.slice_(x, [0] * len(shape), middle)], -1)


def least(x: Node) -> Node:
    """The least element of a row, for each of its elements."""
    if not x.shape or 0 in x.sizes:
        return x
    return build.broadcast_to(build.min_(x, -1, keepdims=True), x.sizes)


WAYS_TO_READ = {"own": lambda x: x, "turned": turned, "least": least}


def donated(graph: Graph, choose: Chooser) -> Graph:
    """The graph with an input for each output, whose memory this may take over: it is joined with the input's element,
    at times with elements of other places, at times with another output's donor as well."""
    inputs, outputs = list(graph.inputs), list[OutputSpec]()
    donors: list[Node] = []
    for output in graph.outputs:
        node = output.node
        inputs.append(InputSpec(node.shape, node.dtype, output.strides, 64))
        donors.append(make_input(len(inputs) - 1, inputs[-1]))
    for i, output in enumerate(graph.outputs):
        node, x = output.node, donors[i]
        ways = [["own"], ["own"], ["own", "own"], ["own", "turned"], ["turned"], ["own", "least"], []]
        for way in ways[choose.below(len(ways))]:
            node = joined(node, WAYS_TO_READ[way](x))
        other = donors[choose.below(len(donors))]
        if other.shape == x.shape and choose.below(3) == 0:
            node = joined(node, build.cast(other, x.dtype))
        outputs.append(OutputSpec(node, output.strides, len(graph.inputs) + i))
    return Graph(tuple(inputs), tuple(outputs))


def joined(a: Node, b: Node) -> Node:
    """A pointwise op of two tensors, whose result depends on each element of either."""
    return make("logical_xor", [a, b]) if a.dtype == bool_ else build.minimum(a, b)


Memory = np.ndarray[tuple[int], np.dtype[np.uint8]]


def memory_of(spec: Tensor, values: np.ndarray | None = None) -> tuple[Memory, int]:
    """Bytes from a tensor's first element to behind its last, and its address. values: of the dtype's carrier."""
    item = empty(Tensor((1,), spec.dtype, (1,), 64)).itemsize
    raw = np.full(max(spec.span, 1) * item + 64, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    found = raw[start : start + max(spec.span, 1) * item]
    if values is not None and spec.span:
        found.view(CARRIERS[spec.dtype])[: spec.span] = values
    return found, found.ctypes.data


def bits(spec: Tensor, memory: Memory) -> bytes:
    """The tensor's elements, without what lies between them."""
    if not spec.span:
        return b""
    array = memory.view(CARRIERS[spec.dtype])
    strides = tuple(s * array.itemsize for s in spec.strides)
    return np.lib.stride_tricks.as_strided(array, spec.shape, strides).tobytes()


def tensors_of(plan: Plan, *, in_place: bool) -> tuple[list[tuple[Memory, int]], list[tuple[Memory, int]]]:
    """Inputs at random and memory for outputs, which lie in place where the plan says that they may, or do not."""
    generator = np.random.default_rng(0)
    inputs = [memory_of(s, random_values(s, generator)) for s in plan.inputs]
    outputs = [memory_of(s) for s in plan.outputs]
    for i, j in plan.in_place if in_place else ():
        outputs[i] = inputs[j]
    return inputs, outputs


def results(plan: Plan, outputs: list[tuple[Memory, int]]) -> list[bytes]:
    """The elements of each output that some step writes."""
    aliased = {i for i, _ in plan.aliases}
    return [bits(s, m) for i, (s, (m, _)) in enumerate(zip(plan.outputs, outputs, strict=True)) if i not in aliased]


def adam_step() -> Graph:
    """Three outputs, each of its own tensor and of others of the same place."""
    spec = InputSpec(shape_of((64, 96)), f32, (96, 1), 64)
    p, m, v, g = (make_input(i, spec) for i in range(4))
    m2 = build.add(build.mul(m, 0.9), build.mul(g, 0.1))
    v2 = build.add(build.mul(v, 0.999), build.mul(build.mul(g, g), 0.001))
    p2 = build.sub(p, build.mul(build.truediv(m2, build.add(build.sqrt(v2), 1e-8)), 1e-3))
    outputs = tuple(OutputSpec(n, spec.strides, i) for i, n in enumerate((p2, m2, v2)))
    return Graph((spec,) * 4, outputs)
