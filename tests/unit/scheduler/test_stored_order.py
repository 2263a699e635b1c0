"""Axes of stored products in the order in which they are read, and plans that compute the same by that."""

import numpy as np

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.ops.contract import products
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.segments.atoms import atoms_of
from scheduler.segments.segment import extract
from scheduler.segments.segment_mask import SegmentMask
from scheduler.segments.stored_order import stored_orders, strides_in
from tests.support.attention import tensor
from tests.support.products import dense_graph

HEADS, TOKENS, SIZE = 3, 20, 24


def merged(p: Node, v: Node, w: Node, dims: tuple[int, ...] = (1, 0, 2)) -> Node:
    """p v, its axes turned and joined, times w."""
    y = build.permute(build.matmul(p, v), dims)
    return build.matmul(build.reshape(y, [y.sizes[0], y.sizes[1] * y.sizes[2]]), w)


def graph_of(compute: object = merged, width: int = HEADS * SIZE) -> Graph:
    specs = [tensor(HEADS, TOKENS, 40, dtype=f32), tensor(HEADS, 40, SIZE, dtype=f32), tensor(width, 30, dtype=f32)]
    return dense_graph(specs, compute)  # type: ignore[arg-type]


def orders(graph: Graph) -> list[tuple[int, ...]]:
    return list(stored_orders(graph).values())


def test_heads_are_stored_as_the_next_product_joins_them() -> None:
    graph = graph_of()
    ((product, order),) = stored_orders(graph).items()
    assert (order, products(product)) == ((1, 0, 2), 40)
    assert strides_in(product.sizes, order) == (SIZE, HEADS * SIZE, 1)
    turned = graph_of(lambda p, v, w: merged(p, v, w, (2, 0, 1)), HEADS * TOKENS)
    assert orders(turned) == [(2, 0, 1)]


def test_axes_of_extent_1_change_nothing() -> None:
    def compute(p: Node, v: Node, w: Node) -> Node:
        y = build.permute(build.unsqueeze(build.matmul(p, v), 0), [0, 2, 1, 3])
        return build.matmul(build.reshape(y, [TOKENS, HEADS * SIZE]), w)

    assert orders(graph_of(compute)) == [(1, 0, 2)]


def test_what_others_read_stays() -> None:
    def also_read(p: Node, v: Node, w: Node) -> tuple[Node, ...]:
        y = build.matmul(p, v)
        return build.matmul(build.reshape(build.permute(y, [1, 0, 2]), [TOKENS, HEADS * SIZE]), w), build.exp(y)

    def an_output(p: Node, v: Node, w: Node) -> tuple[Node, ...]:
        y = build.matmul(p, v)
        return build.matmul(build.reshape(build.permute(y, [1, 0, 2]), [TOKENS, HEADS * SIZE]), w), y

    def not_multiplied(p: Node, v: Node, w: Node) -> Node:
        y = build.reshape(build.permute(build.matmul(p, v), [1, 0, 2]), [TOKENS, HEADS * SIZE])
        return build.add(build.exp(y), build.sum_(w, [1]))

    for compute in (also_read, an_output, not_multiplied):
        assert orders(graph_of(compute)) == [], compute.__name__


def test_segments_that_follow_each_other_compute_the_graph() -> None:
    graph = graph_of()
    atoms = atoms_of(graph)
    tensors = {("in", i): x for i, x in enumerate(sample_inputs(graph, seed=1))}
    nodes = {n: tensors["in", n.attr("position", int)] for n in graph.nodes if n.op == "input"}
    for a in range(len(atoms)):
        segment = extract(atoms, SegmentMask(1 << a, 1 << a))
        (found,) = interpret(segment.graph, [nodes[n] for n in segment.reads])
        nodes[segment.writes[0]] = found
    (expected,) = interpret(graph, [x for _, x in sorted(tensors.items())])
    assert np.array_equal(nodes[graph.outputs[0].node], expected)
    stored = [spec.strides for n, spec in zip(atoms.tensors, atoms.boundary.specs, strict=True) if n.op == "contract"]
    assert dense_strides((HEADS, TOKENS, SIZE)) not in stored
