"""Graphs at smaller extents: the same ops of the same types over fewer elements."""

import numpy as np
import pytest

from benchmarks.corpus import CASES
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from fusion_ir.reference.shrink import reduced
from testing.random_graphs import Seeded, any_graph, pointwise_graph
from tests.support.kernels import dense, graph_of
from tests.support.random_reductions import reduction_graph


def largest(graph: Graph) -> int:
    return max(n.elements for n in graph.nodes)


def same_ops(one: Graph, other: Graph) -> bool:
    return [(n.op, n.dtype, n.rank) for n in one.nodes] == [(n.op, n.dtype, n.rank) for n in other.nodes]


PADDED = {"padded_product"}  # every axis is padded, which says its extent: they all stay


@pytest.mark.parametrize("name", CASES)
def test_the_corpus_at_its_full_sizes(name: str) -> None:
    graph = CASES[name].instance("bf16").graph
    small = reduced(graph)
    assert same_ops(graph, small)
    assert (largest(small) < largest(graph)) is (name not in PADDED)
    if name in PADDED:
        assert small == graph
    elif largest(small) <= 1 << 17:  # group norms split channels and join them with space: those stay
        interpret(small, sample_inputs(small, 0))
    else:
        assert name.startswith("group_norm")


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    for graph in (pointwise_graph(Seeded(seed)), any_graph(Seeded(seed)), reduction_graph(Seeded(seed))):
        small = reduced(graph, 64)
        assert same_ops(graph, small)
        assert largest(small) <= largest(graph)
        interpret(small, sample_inputs(small, seed))


def test_rows_of_a_softmax_are_what_they_were() -> None:
    spec = dense(64, 16)
    graph = graph_of((spec,), build.softmax(make_input(0, spec)))
    small = reduced(graph, 4 * 16 * 4)
    assert small.inputs[0].sizes == (16, 16)
    (x,) = sample_inputs(graph, 1)
    (whole,), (part,) = interpret(graph, [x]), interpret(small, [x[:16]])
    np.testing.assert_array_equal(part, whole[:16])


def test_odd_extents_stay_odd_and_what_is_cut_stays() -> None:
    """Axis 0 is sliced, padded and joined: it keeps its extent. Axis 1 is halved while it is odd."""
    spec = dense(40, 1001)
    x = make_input(0, spec)
    half = make("slice", [x], {"start": (3, 0), "stop": (20, 1001), "step": (1, 1)})
    graph = graph_of((spec,), make("cat", [half, make("neg", [x])], {"axis": 0}))
    small = reduced(graph, 1000)
    assert small.outputs[0].node.sizes == (57, 15)
    assert small.inputs[0].sizes == (40, 15)
    assert reduced(small, 1000) == small


def test_strides_that_are_not_dense_are_kept() -> None:
    spec = dense(1024, 8, strides=(1, 4096))
    graph = graph_of((spec,), make("neg", [make_input(0, spec)]))
    small = reduced(graph, 256)
    assert (small.inputs[0].sizes, small.inputs[0].strides) == ((32, 8), (1, 4096))
    assert small.outputs[0].strides == (8, 1)
