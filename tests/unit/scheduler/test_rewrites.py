"""Every rule before and after, and whole graphs rewritten give the same values."""

import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16, f32, i8, i32, i64, u8
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import interpret
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules import RULES
from scheduler.rewrites.rules.identities import commuting
from scheduler.rewrites.simplify import simplify
from testing.random_graphs import Seeded, any_graph
from tests.unit.scheduler.fakes import random_inputs, same_bits

X, Y = (make_input(i, InputSpec(shape_of((4, 6)), bf16, (6, 1))) for i in range(2))
INTEGERS = make_input(2, InputSpec(shape_of((4, 6)), i8, (6, 1)))
INPUTS = (*(InputSpec(shape_of((4, 6)), bf16, (6, 1)) for _ in range(2)), InputSpec(shape_of((4, 6)), i8, (6, 1)))

ROW, NO_ROWS = (build.slice_(X, [0, 0], [n, 6]) for n in (1, 0))
ONE, NONE, FOUR = build.full((1,), 2, i32), build.full((0,), 0, i64), build.iota([4])


def cast(x: Node, dtype: object) -> Node:
    return make("cast", [x], {"dtype": dtype})  # type: ignore[dict-item]


def reshape(x: Node, *sizes: int) -> Node:
    return make("reshape", [x], {"shape": shape_of(sizes)})


def permute(x: Node, *dims: int) -> Node:
    return make("permute", [x], {"dims": dims})


CASES = [
    ("idle-view", reshape(X, 4, 6), X),
    ("idle-view", permute(X, 0, 1), X),
    ("idle-view", make("slice", [X], {"start": (0, 0), "stop": (4, 6), "step": (1, 1)}), X),
    ("reshape-reshape", reshape(reshape(X, 24), 3, 8), reshape(X, 3, 8)),
    ("permute-permute", permute(permute(reshape(X, 2, 3, 4), 1, 2, 0), 2, 1, 0), permute(reshape(X, 2, 3, 4), 0, 2, 1)),
    ("cast-back", cast(cast(X, f32), bf16), X),
    ("cast-cast", cast(cast(X, f32), f16), cast(X, f16)),
    ("cast-cast", cast(cast(INTEGERS, i32), f16), cast(INTEGERS, f16)),
    ("cast-cast", cast(cast(INTEGERS, f32), i32), cast(INTEGERS, i32)),
    ("neutral-element", build.mul(1.0, X), X),
    ("neutral-element", build.truediv(X, 1.0), X),
    ("neutral-element", build.sub(X, 0.0), X),
    ("neutral-element", build.add(X, -0.0), X),
    ("neutral-element", build.add(INTEGERS, 0), INTEGERS),
    ("neutral-element", build.mul(INTEGERS, 0), build.full((4, 6), 0, i8)),
    ("neutral-element", make("pow", [X, build.full(X.sizes, 1.0, bf16)]), X),
    ("neutral-element", build.where(build.gt(X, 0.0), X, X), X),
    ("neutral-element", build.maximum(X, X), X),
    (
        "slice-of-parts",
        build.slice_(build.cat([X, Y], 1), [0, 7], [4, 11], [1, 2]),
        build.slice_(Y, [0, 1], [4, 5], [1, 2]),
    ),
    ("slice-of-parts", build.slice_(build.cat([X, Y], 1), [0, 0], [4, 6]), X),
    (
        "scatter-of-one-slice",
        build.scatter_sum(ROW, 0, ONE, 4),
        build.where(build.eq(reshape(cast(ONE, i64), 1, 1), build.iota([4, 1])), ROW, 0.0),
    ),
    ("scatter-of-one-slice", build.scatter_sum(NO_ROWS, 0, NONE, 4), build.full((4, 6), 0, bf16)),
]
KEPT = [
    cast(cast(cast(X, f32), f16), f32),  # loses bits on the way
    cast(cast(X, i32), bf16),
    make("slice", [X], {"start": (1, 0), "stop": (4, 6), "step": (1, 1)}),
    reshape(permute(X, 1, 0), 4, 6),
    build.add(X, 0.0),  # of -0
    build.sub(X, -0.0),
    build.mul(X, 0.0),  # of infinity
    build.sub(1.0, X),
    build.maximum(X, Y),
    cast(cast(INTEGERS, f32), u8),  # saturates, and would wrap
    build.slice_(build.cat([X, Y], 1), [0, 5], [4, 7]),
    build.scatter_sum(X, 0, FOUR, 1),
]


@pytest.mark.parametrize(("rule", "before", "after"), CASES)
def test_rule(rule: str, before: Node, after: Node) -> None:
    graph = Graph(INPUTS, (OutputSpec(before, dense_strides(before.sizes)),))
    simplified = simplify(graph, [r for r in RULES if r.name == rule])
    assert simplified.image[before] is after
    assert [r.name for r in simplified.rules] == [rule]


def test_every_rule_has_a_case() -> None:
    assert {r.name for r in RULES} == {rule for rule, _, _ in CASES}


@pytest.mark.parametrize("node", KEPT)
def test_what_would_change_values_stays(node: Node) -> None:
    graph = Graph(INPUTS, (OutputSpec(node, dense_strides(node.sizes)),))
    image = simplify(graph).image[node]
    assert image.op == node.op
    assert image is node or image.args[0].op == "cast"  # only bf16 -> f32 -> f16 of the first one shrinks


def test_random_graphs_keep_their_values() -> None:
    rewritten = 0
    for seed in range(150):
        graph = any_graph(Seeded(seed))
        simplified = simplify(graph)
        rewritten += bool(simplified.rules)
        outputs = tuple(OutputSpec(simplified.image[o.node], o.strides) for o in graph.outputs)
        inputs = random_inputs(graph, seed)
        for a, b in zip(interpret(graph, inputs), interpret(Graph(graph.inputs, outputs), inputs), strict=True):
            assert same_bits(a, b), seed
    assert rewritten > 10


def test_what_is_computed_with_its_operands_the_other_way_round() -> None:
    pair = (build.add(X, Y), build.add(Y, X), build.sub(X, Y), build.sub(Y, X))
    graph = Graph(INPUTS, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in pair))
    simplified = simplify(graph, [commuting()])
    assert [simplified.image[n] for n in pair] == [pair[0], pair[0], *pair[2:]]
    assert prepare(graph).aliases, "an output given twice"
