"""Slices that sink: before and after, what stays as it is, and the same values."""

from collections.abc import Callable

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f64
from fusion_ir.ops import make
from fusion_ir.reference.interpreter import interpret
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules.slice_pushdown import RUN, Sinking
from scheduler.rewrites.simplify import simplify
from testing.random_graphs import Seeded, any_graph
from tests.support.products import dense_graph
from tests.unit.scheduler.fakes import random_inputs, same_bits

Compute = Callable[..., Node | tuple[Node, ...]]


def part(x: Node, *window: tuple[int, int] | tuple[int, int, int]) -> Node:
    start, stop = tuple(w[0] for w in window), tuple(w[1] for w in window)
    step = tuple(w[2] if len(w) > 2 else 1 for w in window)
    return make("slice", [x], {"start": start, "stop": stop, "step": step})


def broadcast(x: Node, *sizes: int) -> Node:
    return make("broadcast_in_dim", [x], {"shape": shape_of(sizes), "dims": (1,)})


ROWS, COLUMNS = (1, 7, 2), (2, 6)
# Of a graph: inputs' sizes, what is computed, and what it comes to.
EXACT: dict[str, tuple[list[list[int]], Compute, Compute]] = {
    "pointwise": (
        [[9, 8], [9, 8]],
        lambda x, y: part(build.mul(build.exp(x), y), ROWS, COLUMNS),
        lambda x, y: build.mul(build.exp(part(x, ROWS, COLUMNS)), part(y, ROWS, COLUMNS)),
    ),
    "slice of a slice": (
        [[20]],
        lambda x: part(build.exp(part(x, (1, 19, 3))), (1, 6, 2)),
        lambda x: build.exp(part(x, (4, 17, 6))),
    ),
    "permute": (
        [[8, 9]],
        lambda x: part(build.permute(build.exp(x), (1, 0)), ROWS, COLUMNS),
        lambda x: build.permute(build.exp(part(x, COLUMNS, ROWS)), (1, 0)),
    ),
    "broadcast": (
        [[8]],
        lambda x: part(broadcast(build.exp(x), 9, 8), ROWS, COLUMNS),
        lambda x: broadcast(build.exp(part(x, COLUMNS)), 3, 4),
    ),
    "heads of a row": (
        [[5, 24]],
        lambda x: part(build.reshape(build.exp(x), [5, 6, 4]), (0, 5), (2, 4), (0, 4)),
        lambda x: build.reshape(build.exp(part(x, (0, 5), (8, 16))), [5, 2, 4]),
    ),
    "rows of heads": (
        [[5, 6, 4]],
        lambda x: part(build.reshape(build.exp(x), [5, 24]), (1, 3), (8, 16)),
        lambda x: build.reshape(build.exp(part(x, (1, 3), (2, 4), (0, 4))), [2, 8]),
    ),
}
PRODUCTS: dict[str, tuple[list[list[int]], Compute, Compute]] = {
    "columns": (
        [[4, 40], [40, 32]],
        lambda a, b: part(build.matmul(a, b), (0, 4), (8, 24)),
        lambda a, b: build.matmul(a, part(b, (0, 40), (8, 24))),
    ),
    "half of the rows, from anywhere": (
        [[8, 40], [40, 32]],
        lambda a, b: part(build.matmul(a, b), (3, 7), (0, 32)),
        lambda a, b: build.matmul(part(a, (3, 7), (0, 40)), b),
    ),
    "values of heads": (
        [[6, 40], [40, 24], [24]],
        lambda x, w, b: part(
            build.permute(build.reshape(build.add(build.matmul(x, w), b), [6, 3, 8]), (1, 0, 2)), (2, 3), (0, 6), (0, 8)
        ),
        lambda x, w, b: build.permute(
            build.reshape(build.add(build.matmul(x, part(w, (0, 40), (16, 24))), part(b, (16, 24))), [6, 1, 8]),
            (1, 0, 2),
        ),
    ),
}
KEPT: dict[str, tuple[list[list[int]], Compute]] = {
    "read elsewhere": ([[9, 8]], lambda x: (part(y := build.exp(x), ROWS, COLUMNS), build.neg(y))),
    "an output itself": ([[9, 8]], lambda x: (part(y := build.exp(x), ROWS, COLUMNS), y)),
    "inside heads": ([[5, 24]], lambda x: part(build.reshape(build.exp(x), [5, 6, 4]), (0, 5), (0, 6), (1, 3))),
    "across heads": ([[5, 6, 4]], lambda x: part(build.reshape(build.exp(x), [5, 24]), (0, 5), (6, 15))),
    "most of a product, not aligned": ([[8, 40], [40, 32]], lambda a, b: part(build.matmul(a, b), (0, 8), (3, 31))),
    "a sum": ([[9, 8, 4]], lambda x: part(build.sum_(x, -1), ROWS, COLUMNS)),
}


def sunk(graph: Graph) -> Graph:
    image = simplify(graph, Sinking(graph).rules()).image
    return Graph(graph.inputs, tuple(OutputSpec(image[o.node], o.strides) for o in graph.outputs))


@pytest.mark.parametrize("name", EXACT)
def test_before_and_after(name: str) -> None:
    inputs, before, after = EXACT[name]
    graph, expected = dense_graph(inputs, before), dense_graph(inputs, after)
    assert sunk(graph).outputs[0].node is expected.outputs[0].node
    prepared = prepare(graph, None, "exact")
    assert prepared.rewrites == ("slice-sinks",)
    arrays = random_inputs(graph, 1)
    (a,), (b,) = interpret(graph, arrays), interpret(prepared.graph, arrays)
    assert same_bits(a, b)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_before_and_after(name: str) -> None:
    inputs, before, after = PRODUCTS[name]
    graph = dense_graph(inputs, before, f64)
    prepared = prepare(graph)
    if name != "values of heads":  # whose bias is broadcast before it is cut
        assert sunk(graph).outputs[0].node is dense_graph(inputs, after, f64).outputs[0].node
    assert "slice-product" in prepared.rewrites
    assert prepared.numerics == "reassociate"
    kept = next(n for n in prepared.graph.nodes if n.op == "contract")
    whole = next(n for n in graph.nodes if n.op == "contract")
    assert kept.elements < whole.elements
    assert graph.nodes.index(whole) in prepared.origin[kept], "it is known what it is a part of"
    arrays = random_inputs(graph, 1)
    (a,), (b,) = interpret(graph, arrays), interpret(prepared.graph, arrays)
    (c,) = interpret(dense_graph(inputs, after, f64), arrays)
    np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(c, a, rtol=1e-12, atol=1e-12)
    assert "slice-product" not in prepare(graph, None, "exact").rewrites


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(name: str) -> None:
    inputs, compute = KEPT[name]
    graph = dense_graph(inputs, compute)
    assert [o.node for o in sunk(graph).outputs] == [o.node for o in graph.outputs]


def test_empty_parts_stay() -> None:
    graph = dense_graph([[4, 6]], lambda x: part(build.reshape(build.exp(x), [24]), (5, 5)))
    assert sunk(graph).outputs[0].node is graph.outputs[0].node
    graph = dense_graph([[4, 6]], lambda x: part(build.exp(x), (1, 1), (0, 6)))
    (found,) = interpret(sunk(graph), random_inputs(graph, 0))
    assert found.shape == (0, 6)
    graph = dense_graph([[4, 6]], lambda x: part(part(x, (0, 4, 3), (1, 6)), (2, 2), (0, 5)))  # behind the end of x
    (found,) = interpret(sunk(graph), random_inputs(graph, 0))
    assert found.shape == (0, 5)


def test_runs_begin_where_they_are_aligned() -> None:
    assert RUN * bf16.bytes == 16, "of 16-bit floats, which tensor maps want so"


def test_random_graphs_keep_their_values() -> None:
    matched = 0
    for seed in range(250):
        graph = any_graph(Seeded(seed))
        (*_, last) = graph.outputs
        n = last.node
        cut = part(n, *((size // 3, size - size // 4) for size in n.sizes))
        graph = Graph(graph.inputs, (*graph.outputs[:-1], OutputSpec(cut, dense_strides(cut.sizes))))
        prepared = prepare(graph, None, "exact")
        matched += "slice-sinks" in prepared.rewrites
        if (prepared.slots, prepared.aliases) != (tuple(range(len(graph.outputs))), ()):
            continue
        inputs = random_inputs(graph, seed)
        for a, b in zip(interpret(graph, inputs), interpret(prepared.graph, inputs), strict=True):
            assert same_bits(a, b), seed
    assert matched > 50
