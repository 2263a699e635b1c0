"""Cutting: pieces cover everything once, and a graph computed in pieces has the bits of the graph computed whole."""

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.accuracy.perturb import Exactness
from fusion_ir.arithmetic import threads
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from fusion_ir.ops import make
from fusion_ir.reference.chunking import Chunking, cut, operand_axes
from fusion_ir.reference.evaluation import Evaluation, EvaluationSchedule, plain
from fusion_ir.reference.interpreter import evaluate, interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from testing.random_graphs import Seeded, any_graph, pointwise_graph
from testing.tensors import graph_of, same_bits, spec


def finely(graph: Graph) -> Chunking:
    """Cut into the smallest pieces that there are, however small the graph."""
    return cut(graph, piece_elements=1, least_elements=1, least_run=1)


def pieces_of(read, *sizes: tuple[int, ...], dtype=f32) -> tuple[Graph, Chunking]:
    graph = graph_of([spec(s, dtype) for s in sizes], read)
    return graph, finely(graph)


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("draw", [any_graph, pointwise_graph])
def test_pieces_give_the_bits_of_the_whole(seed: int, draw) -> None:
    graph = draw(Seeded(seed))
    inputs = sample_inputs(graph, seed)
    schedule = EvaluationSchedule(finely(graph))
    for got, expected in zip(Evaluation(schedule, inputs).outputs(), evaluate(graph, inputs), strict=True):
        assert same_bits(got, expected)


def test_most_random_graphs_are_cut() -> None:
    assert sum(bool(finely(any_graph(Seeded(seed))).axes) for seed in range(100)) > 50


@pytest.mark.parametrize("extent", range(4, 40))
def test_pieces_cover_the_axis_and_none_is_of_one(extent: int) -> None:
    for elements in range(1, 20):
        graph = graph_of([spec((extent, 3), f32)], build.exp)
        bounds = cut(graph, elements, 1, 1).bounds
        assert not bounds or (bounds[0][0] == 0 and bounds[-1][1] == extent)
        assert all(low + 2 <= high for low, high in bounds)
        assert [high for _, high in bounds[:-1]] == [low for low, _ in bounds[1:]]


def test_rows_of_a_softmax_are_cut_and_columns_of_a_column_sum() -> None:
    graph, cutting = pieces_of(build.softmax, (64, 96))
    assert set(cutting.axes.values()) == {0}
    assert set(cutting.times.values()) == {0}
    graph, cutting = pieces_of(lambda x: build.sum_(build.exp(x), 0), (96, 64))
    assert cutting.axes == {graph.outputs[0].node: 0, graph.outputs[0].node.args[0]: 1}


def test_what_is_reduced_along_the_axis_waits_for_all_pieces() -> None:
    def read(x: Node) -> Node:
        rows = build.sum_(build.exp(x), 1)
        return build.div(rows, build.expand(build.sum_(rows, 0, keepdims=True), (64,)))

    graph, cutting = pieces_of(read, (64, 96))
    total = next(n for n in graph.nodes if n.op == "sum" and n.rank == 0)
    assert total not in cutting.axes
    assert cutting.times[total] == 1
    assert cutting.times[graph.outputs[0].node] == 1
    assert graph.outputs[0].node in cutting.axes
    inputs = sample_inputs(graph, 0)
    assert same_bits(Evaluation(EvaluationSchedule(cutting), inputs).outputs()[0], evaluate(graph, inputs)[0])


def test_what_repeats_along_the_axis_is_computed_once() -> None:
    _, cutting = pieces_of(lambda x, y: build.add(x, build.expand(build.exp(y), (64, 32))), (64, 32), (1, 32))
    assert {n.op for n in cutting.axes} == {"add"}


def test_small_graphs_and_library_products_are_whole() -> None:
    assert not cut(graph_of([spec((64, 64), f32)], build.exp)).axes
    _, cutting = pieces_of(build.matmul, (64, 100), (100, 64))
    assert not cutting.axes
    _, cutting = pieces_of(build.matmul, (64, 3), (3, 64))
    assert cutting.axes


def test_axes_through_reshapes() -> None:
    def axes(before: tuple[int, ...], after: tuple[int, ...]) -> list[int | None]:
        node = graph_of([spec(before, f32)], lambda x: build.reshape(x, after)).outputs[0].node
        sources = [operand_axes(node, a) for a in range(node.rank)]
        return [s[0] if s else None for s in sources]

    assert axes((3, 40, 96), (3, 40, 8, 12)) == [0, 1, None, None]
    assert axes((2, 8, 12, 40), (2, 96, 40)) == [0, None, 3]
    assert axes((6, 8), (8, 6)) == [None, None]
    assert axes((4, 4), (16,)) == [None]


def test_sums_have_the_same_bits_in_every_layout() -> None:
    x = np.random.default_rng(0).standard_normal((3000, 17)).astype(np.float32)
    for op in ("sum", "mean"):
        graph = graph_of([spec(x.shape, f32)], lambda n, o=op: make(o, [n], {"axes": (0,)}))
        (column,) = interpret(graph, [np.asfortranarray(x)])
        assert same_bits(interpret(graph, [x])[0], column)


def test_large_graphs_are_cut_by_themselves() -> None:
    graph = graph_of([spec((512, 700), bf16)], lambda x: [build.softmax(x), build.sum_(x, 1)])
    assert len(cut(graph).bounds) > 1
    inputs = sample_inputs(graph, 0)
    for got, expected in zip(interpret(graph, inputs), evaluate(graph, inputs), strict=True):
        assert got.flags.c_contiguous
        assert same_bits(got, np.array(expected, order="C"))


def test_levels_are_the_same_however_pieces_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one thread, in order; and in eight, in whatever order."""
    cut_graphs = data_dependent = 0
    for seed in range(60):
        graph = any_graph(Seeded(seed))
        cutting = finely(graph)
        cut_graphs += len(cutting.bounds) > 1
        found: list[dict[Node, int]] = []
        for integers in (False, True):
            inputs = sample_inputs(graph, seed, integers=integers)
            for count in (1, 8, 8):
                monkeypatch.setattr(threads, "THREADS", count)
                exactness = Exactness()
                Evaluation(EvaluationSchedule(cutting), inputs, exactness).outputs()
                found.append(exactness.levels(graph))
        assert found[0] == found[1] == found[2]
        assert found[3] == found[4] == found[5]
        data_dependent += found[0] != found[3]
    assert cut_graphs > 20
    assert data_dependent, "on whole numbers some sum is exact"


def test_what_fails_in_one_piece_fails() -> None:
    graph = graph_of([spec((64, 96), f32)], build.exp)

    def step(node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int) -> np.ndarray:
        if piece == 3:
            raise MemoryError("of this piece")
        return plain(node, as_large, operands, piece)

    with pytest.raises(MemoryError, match="of this piece"):
        Evaluation(EvaluationSchedule(finely(graph)), sample_inputs(graph, 0), step).outputs()
