"""Which half of a cut reduction or contraction a step computes, and what the temporaries between them hold."""

import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Attr, Node
from fusion_ir.dtype import f32
from fusion_ir.ops import make, make_input
from fusion_ir.records import Half, Written
from scheduler.rewrites.prepare import Prepared, prepare
from scheduler.rewrites.provenance import halves_of, other_ways_of, written_of
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.split_reduction import Tasks


def dense(*sizes: int) -> InputSpec:
    return InputSpec(shape_of(sizes), f32, dense_strides(sizes))


def graph_of(specs: list[InputSpec], node: Node) -> Graph:
    return Graph(tuple(specs), (OutputSpec(node, dense_strides(node.sizes)),))


def reduced(op: str) -> Graph:
    spec = dense(4, 65536)
    attrs: dict[str, Attr] = {"axes": (1,)}
    if op == "var":
        attrs["correction"] = 0
    return graph_of([spec], make(op, [make_input(0, spec)], attrs))


def split_nodes(prepared: Prepared) -> tuple[list[Node], list[Node]]:
    """The reductions of the first halves, and of the second."""
    ways = [way for found in prepared.halves.values() for way in found]
    return [n for way in ways for n in way.first], [n for way in ways for n in way.second]


@pytest.mark.parametrize("op", ["sum", "mean", "var", "max", "prod"])
def test_reductions(op: str) -> None:
    prepared = prepare(reduced(op), Tasks(16))
    first, second = split_nodes(prepared)
    parts = first[0].elements // 4
    cut = {"node": 1, "parts": parts, "terms": 65536 // parts}
    assert parts > 1 and 65536 % parts == 0
    assert halves_of(prepared, first) == (Half(half="first", **cut),)
    assert halves_of(prepared, second) == (Half(half="second", **cut),)
    assert halves_of(prepared, [*first, *second]) == (), "that is the reduction itself"
    assert written_of(prepared, first[0]) == Written(nodes=(1,), whole=False)
    assert written_of(prepared, prepared.graph.outputs[0].node) == Written(nodes=(1,))
    assert not other_ways_of(prepared, first)


def test_what_no_rewrite_cut() -> None:
    prepared = prepare(reduced("sum"))
    assert not prepared.halves
    assert halves_of(prepared, prepared.graph.nodes) == ()


@pytest.mark.parametrize("terms", [16384, 16390])
def test_a_contraction_that_an_alternative_cuts(terms: int) -> None:
    """16,384 terms split into equal parts; of 16,390 terms a rest is left."""
    a, b = dense(32, terms), dense(terms, 32)
    product = build.matmul(make_input(0, a), make_input(1, b))
    prepared = prepare(graph_of([a, b], product), Tasks(16), offers=ALTERNATIVES)
    position = next(i for i, n in enumerate(prepared.given.nodes) if n.op == "contract")
    [way] = prepared.halves[position]
    assert (way.parts * way.terms + way.rest, way.parts > 1) == (terms, True)
    assert (way.rest > 0) == (terms % way.parts > 0)
    [half] = halves_of(prepared, way.first)
    assert (half.node, half.half, half.parts, half.rest) == (position, "first", way.parts, way.rest)
    assert other_ways_of(prepared, way.first) == (), "it is a half, not another way"
    assert written_of(prepared, way.first[0]) == Written(nodes=(position,), whole=False)
