"""How closely plans are held to their graphs: those that round other values to the accuracy of the graph's own
roundings, all others to its values."""

from collections.abc import Callable

import numpy as np
import pytest

from codegen.child.case import Case, judge, make_case
from fusion_ir import building as build
from fusion_ir.accuracy.tolerance import Order
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32
from fusion_ir.records import Numerics
from fusion_ir.reference.interpreter import interpret
from scheduler.rewrites.rules import ALTERNATIVES
from testing.random_graphs import Seeded
from testing.rule_graphs import rule_graph
from testing.tensors import graph_of, spec
from tests.support.offers import offers_of, with_alternatives
from tests.support.whole import WHOLE, some

NARROW = (f16, bf16)
ORDER: dict[tuple[bool, Numerics], Order] = {
    (True, "reassociate"): "elsewhere",
    (False, "reassociate"): "any",
    (False, "exact"): "own",
}
SHAPES = {"x": (24, 32), "y": (32, 32), "z": (32, 32), "bias": (32,), "scale": (24, 1)}
Compute = Callable[..., Node]


def graph(compute: Compute, dtype: DType) -> Graph:
    return graph_of([spec(shape, dtype) for shape in SHAPES.values()], compute)


def tail(x: Node, y: Node, z: Node, bias: Node, scale: Node) -> Node:
    """Two products, a bias between them, and a scale: what the rules are about. All of it is rounded to 16 bits."""
    return build.matmul(build.mul(build.add(build.matmul(x, y), bias), scale), z)


def right(x: Node, y: Node, z: Node, bias: Node, scale: Node) -> Node:
    """s (x (y z) + bias z)."""
    return build.mul(build.add(build.matmul(x, build.matmul(y, z)), build.matmul(bias, z)), scale)


FAULTS: dict[str, Compute] = {
    "drops a term": lambda x, y, z, bias, scale: build.mul(build.matmul(x, build.matmul(y, z)), scale),
    "adds what is to be subtracted": lambda x, y, z, bias, scale: build.mul(
        build.sub(build.matmul(x, build.matmul(y, z)), build.matmul(bias, z)), scale
    ),
    "scales twice": lambda x, y, z, bias, scale: build.mul(right(x, y, z, bias, scale), scale),
    "scales one term": lambda x, y, z, bias, scale: build.add(
        build.mul(build.matmul(x, build.matmul(y, z)), scale), build.matmul(bias, z)
    ),
    "transposes an operand": lambda x, y, z, bias, scale: right(x, build.permute(y, [1, 0]), z, bias, scale),
    "transposes what it folds": lambda x, y, z, bias, scale: build.mul(
        build.add(build.matmul(x, build.permute(build.matmul(y, z), [1, 0])), build.matmul(bias, z)), scale
    ),
    "multiplies in the wrong order": lambda x, y, z, bias, scale: right(x, z, y, bias, scale),
    "leaves out the last of the products that it sums": lambda x, y, z, bias, scale: build.mul(
        build.add(
            build.matmul(build.slice_(x, [0, 0], [24, 31]), build.slice_(build.matmul(y, z), [0, 0], [31, 32])),
            build.matmul(bias, z),
        ),
        scale,
    ),
}


def problem(case: Case, input_set: int, other: Graph, order: Order = "elsewhere") -> str:
    """The fault that `judge` finds in another graph's results for the case, in words; "" where they pass."""
    return judge(case, input_set, interpret(other, case.input_sets[input_set].inputs), order).problem


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_another_order_is_right_where_it_may_round_elsewhere(dtype: DType) -> None:
    case = make_case(graph(tail, dtype), 0)
    assert len(case.input_sets) == 2
    for input_set in (0, 1):
        assert not problem(case, input_set, graph(right, dtype))
        assert not problem(case, input_set, case.graph, order="own")
    assert problem(case, 0, graph(right, dtype), order="own"), "it rounds other values"


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_alternatives_are_found(fault: str, dtype: DType) -> None:
    case = make_case(graph(tail, dtype), 0)
    other = graph(FAULTS[fault], dtype)
    assert problem(case, 0, other)
    assert problem(case, 1, other)


def test_one_wrong_element_is_found() -> None:
    for dtype in NARROW:
        case = make_case(graph(tail, dtype), 0)
        (got,) = interpret(graph(right, dtype), case.input_sets[0].inputs)
        got = got.copy()
        got[5, 7] = got[5, 8]
        assert judge(case, 0, [got], order="elsewhere").problem


def test_what_no_sum_is_computed_into_stays_as_it_is() -> None:
    """The scaled operand is an output, too."""

    def both(x: Node, y: Node) -> tuple[Node, ...]:
        scaled = build.mul(x, 0.3)
        return build.matmul(scaled, y), scaled

    case = make_case(graph_of([spec((8, 16), f16), spec((16, 8), f16)], both), 0)
    product, scaled = interpret(case.graph, case.input_sets[0].inputs)
    assert not judge(case, 0, [product, scaled], order="elsewhere").problem
    assert judge(case, 0, [product, np.nextafter(scaled, np.float16(0))], order="elsewhere").problem


def test_wider_floats_are_held_to_their_values() -> None:
    """There is no rounding to 16 bits that could be elsewhere; but few products, which the language sums in order, may
    be summed in another one."""
    case = make_case(graph(tail, f32), 0)
    for input_set in (0, 1):
        assert case.expected(input_set, order="elsewhere") is case.expected(input_set)
    specs = [spec((5, 8), f32), spec((8, 5), f32)]
    few = make_case(graph_of(specs, build.matmul), 0)

    def halves(x: Node, y: Node) -> Node:
        left = build.cat([build.slice_(x, [0, 4], [5, 8]), build.slice_(x, [0, 0], [5, 4])], 1)
        return build.matmul(left, build.cat([build.slice_(y, [4, 0], [8, 5]), build.slice_(y, [0, 0], [4, 5])], 0))

    other = graph_of(specs, halves)
    assert problem(few, 0, other, order="own")
    assert not problem(few, 0, other, order="any")
    assert not problem(few, 0, other)
    (moved,) = few.expected(0, order="elsewhere").atol
    assert moved is not None and 0 < moved.max() < 1e-5


@pytest.mark.soak
def test_what_rules_offer_is_accepted() -> None:
    """Each offer is judged by its class: one that rounds other values as such, one that reassociates as sums in any
    order, an exact one as the graph itself."""
    judged = dict.fromkeys((offer.name for offer in ALTERNATIVES), 0)
    for seed in some(range(120), 30, "offers"):
        given = rule_graph(Seeded(seed), (*NARROW, f32)[seed % 3])
        case = make_case(given, seed)
        for offer, node, new in offers_of(given, [o for o in ALTERNATIVES if o.numerics != "approximate"]):
            other = with_alternatives(given, {node: new})
            assert other is not None
            for input_set in range(len(case.input_sets)):
                found = problem(case, input_set, other, order=ORDER[bool(offer.rounding), offer.numerics])
                assert not found, f"seed {seed}, {offer.name}, input_set {input_set}: {found}"
            judged[offer.name] += 1
    every = [o.name for o in ALTERNATIVES if o.rounding and o.numerics != "approximate"]
    assert all(judged[name] for name in every) or not WHOLE, judged
