"""Parts that segments have in common are analysed once: families answer as after a fresh analysis, whichever inputs a
segment reads."""

from collections.abc import Callable
from itertools import permutations

import pytest

from codegen.attention import row_blocks as strips
from codegen.families import FAMILIES
from codegen.gemm import dims
from codegen.hardware.gpus import specified
from codegen.kernel import Reject
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from tests.support.attention import scores, tensor
from tests.support.products import dense_graph
from tests.support.whole import in_turn

Make = Callable[..., tuple[Node, ...]]

H200 = specified("h200", "")
SPECS = {"q": tensor(64, 32), "k": tensor(96, 32), "v": tensor(96, 64), "m": tensor(64, 96)}


def _softmax(q: Node, k: Node, v: Node, m: Node) -> tuple[Node, ...]:
    return (build.cast(build.softmax(build.add(scores(q, k), build.cast(m, f32))), bf16),)


def _attention(q: Node, k: Node, v: Node, m: Node) -> tuple[Node, ...]:
    return (build.matmul(_softmax(q, k, v, m)[0], v),)


def _turned(q: Node, k: Node, v: Node, m: Node) -> tuple[Node, ...]:
    """Softmax over columns of the scores, which are rows of the product only where its operands change places."""
    return (build.cast(build.softmax(build.permute(scores(q, k), [1, 0])), bf16),)


def _beside(q: Node, k: Node, v: Node, m: Node) -> tuple[Node, ...]:
    """`_softmax` with a second output that depends on no scores."""
    return (*_softmax(q, k, v, m), build.neg(m))


def _both_ways(q: Node, k: Node, v: Node, m: Node) -> tuple[Node, ...]:
    """Scores reduced over rows and over columns: a graph that is refused when it is lowered, not by its ops."""
    x = scores(q, k)
    return (build.softmax(build.sub(x, build.max_(x, [0], keepdims=True))),)


def _reordered(make: Make, names: tuple[str, ...]) -> Graph:
    given = [SPECS[n] for n in names]
    return dense_graph(given, lambda *nodes: make(**dict(zip(names, nodes, strict=True))))


def _forget() -> None:
    for known in (strips.strips_of, strips._places, strips._fault):  # type: ignore[reportPrivateUsage]
        known.cache_clear()


def _answer(graph: Graph) -> tuple[str, ...] | str:
    """Sources of kernels, or why there is none."""
    family = FAMILIES["attention"]
    refused = family.accepts(graph, H200)
    if isinstance(refused, Reject):
        return refused.reason
    return tuple(family.emit(graph, s, H200).source for s in family.space(graph, H200)[:2])


@pytest.mark.soak
@pytest.mark.parametrize("make", in_turn([_softmax, _attention, _turned, _beside, _both_ways], 1))
def test_attention_of_inputs_in_any_order(make: Make) -> None:
    graphs = [_reordered(make, names) for names in permutations(SPECS)]
    _forget()
    kept = [_answer(graph) for graph in graphs]
    for graph, known in zip(graphs, kept, strict=True):
        _forget()
        assert _answer(graph) == known
    assert len({isinstance(known, str) for known in kept}) == 1


def test_views_of_any_input() -> None:
    specs = [tensor(8, 4, dtype=f32), tensor(4, 8, dtype=f32), tensor(8, 4, dtype=f32, strides=(1, 8))]

    def seen(position: int) -> object:
        graph = dense_graph(specs, lambda *given: build.permute(given[position], [1, 0]))
        return dims.stored_operand(graph, graph.outputs[0].node)

    kept = [seen(i) for i in range(3)]
    for i, found in enumerate(kept):
        dims._seen_alone.cache_clear()  # type: ignore[reportPrivateUsage]
        assert seen(i) == found
    matrices, digits = zip(*[found for found in kept if isinstance(found, tuple)], strict=True)
    assert [m.tensor for m in matrices] == [0, 1, 2]
    assert [{(d.weight, d.stride) for d in own} for own in digits] == [
        {(8, 1), (1, 4)},
        {(4, 1), (1, 8)},
        {(8, 8), (1, 1)},
    ]
