"""Every rule that offers alternatives, before and after, as text; and what lies just outside of its conditions."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from fusion_ir import build
from fusion_ir.dtype import DType, f16, f32
from fusion_ir.extent import dense_strides, shape_of
from fusion_ir.graph import Graph, InputSpec, OutputSpec
from fusion_ir.node import Node
from fusion_ir.ops import make_input
from fusion_ir.ops.contract import products
from fusion_ir.records import NUMERICS
from fusion_ir.text import print_graph
from scheduler.rewrites import ALTERNATIVES
from scheduler.rewrites.neighbourhood import Neighbourhood
from tests.support.offers import offers_of

Compute = Callable[..., Node | tuple[Node, ...]]
Sizes = tuple[int, ...]


def weight(*sizes: int, dtype: DType = f32) -> InputSpec:
    """A constant."""
    return InputSpec(shape_of(sizes), dtype, dense_strides(sizes), 16, "v1")


def graph_of(inputs: Sequence[InputSpec | Sizes], compute: Compute, dtype: DType = f32) -> Graph:
    specs = tuple(s if isinstance(s, InputSpec) else InputSpec(shape_of(s), dtype, dense_strides(s)) for s in inputs)
    found = compute(*(make_input(i, s) for i, s in enumerate(specs)))
    nodes = found if isinstance(found, tuple) else (found,)
    return Graph(specs, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in nodes))


def heads(x: Node, count: int) -> Node:
    """[S, count * p] -> [count, S, p]"""
    return build.permute(build.reshape(x, [x.sizes[0], count, -1]), (1, 0, 2))


def joined(x: Node) -> Node:
    """[count, S, p] -> [S, count * p]"""
    return build.reshape(build.permute(x, (1, 0, 2)), [x.sizes[1], -1])


def tail(p: Node, y: Node, a: Node, b: Node, c: Node) -> Node:
    """The end of attention: weights [h, S, S] times the values of y, by heads, times c."""
    return build.matmul(joined(build.matmul(p, heads(build.linear(y, a, b), p.sizes[0]))), c)


mm = build.matmul
# By rule: the inputs of a graph and what it computes, whose alternatives are in golden/.
CASES: dict[str, dict[str, tuple[list[InputSpec | Sizes], Compute]]] = {
    "chain-order": {
        "three": ([(4, 60), (60, 5), (5, 70)], lambda x, y, z: mm(mm(x, y), z)),
        "heads": ([(2, 6, 6), (6, 8), (8, 8)], lambda p, v, c: mm(joined(mm(p, heads(v, 2))), c)),
        "four": ([(4, 9), (9, 5), (5, 7), (7, 3)], lambda x, y, z, w: mm(mm(mm(x, y), z), w)),
    },
    "fold-through-bias": {
        "bias": ([(4, 8), weight(8), weight(8, 3)], lambda x, b, a: mm(build.add(x, b), a)),
        "layers": ([(4, 8), weight(6, 8), weight(6), weight(6, 3)], lambda y, a, b, c: mm(build.linear(y, a, b), c)),
        "heads": ([(2, 5, 5), (5, 6), weight(8, 6), weight(8), weight(8, 7)], tail),
    },
    "horizontal-product": {
        "weights": ([(4, 8), weight(8, 3), weight(8, 5)], lambda x, y, z: (mm(x, y), mm(x, z))),
        "turned": ([(4, 8), weight(3, 8), (8, 5)], lambda x, y, z: (build.linear(x, y), mm(x, z))),
        "rows": ([(4, 8), (5, 8), weight(8, 3)], lambda x, y, z: (mm(x, z), mm(y, z))),
    },
    "factor-sum": {
        "left": ([(4, 8), weight(8, 3), weight(8, 3)], lambda x, a, b: build.add(mm(x, a), mm(x, b))),
        "right": ([(4, 8), (4, 8), (8, 3)], lambda a, b, x: build.sub(mm(a, x), mm(b, x))),
    },
    "concatenate-k": {
        "sum": ([(4, 8), (8, 3), (4, 2), (2, 3)], lambda x, y, z, w: build.add(mm(x, y), mm(z, w))),
        "turned": ([(4, 8), (8, 3), (2, 4), (3, 2)], lambda x, y, z, w: build.add(mm(x, y), build.transpose(mm(w, z)))),
        "difference": ([(4, 8), (8, 3), (4, 2), weight(2, 3)], lambda x, y, z, w: build.sub(mm(x, y), mm(z, w))),
    },
}
# Just outside: by what it lacks, the rule that must not match.
KEPT: dict[str, tuple[str, list[InputSpec | Sizes], Compute]] = {
    "an activation between": ("chain-order", [(4, 9), (9, 5), (5, 7)], lambda x, y, z: mm(build.relu(mm(x, y)), z)),
    "heads that mix": (
        "chain-order",
        [(2, 6, 6), (6, 8), (6, 8)],
        lambda p, v, c: mm(build.reshape(mm(p, heads(v, 2)), [8, 6]), c),
    ),
    "a product that is needed anyhow": (
        "chain-order",
        [(4, 9), (9, 5), (5, 7)],
        lambda x, y, z: ((xy := mm(x, y)), mm(xy, z)),
    ),
    "a bias that changes": ("fold-through-bias", [(4, 8), (8,), weight(8, 3)], lambda x, b, a: mm(build.add(x, b), a)),
    "a weight that changes": ("fold-through-bias", [(4, 8), weight(8), (8, 3)], lambda x, b, a: mm(build.add(x, b), a)),
    "all constant": (
        "fold-through-bias",
        [weight(4, 8), weight(8), weight(8, 3)],
        lambda x, b, a: mm(build.add(x, b), a),
    ),
    "one computed from the other": (
        "horizontal-product",
        [(4, 4), (4, 4)],
        lambda x, y: mm(x, build.relu(mm(x, y))),
    ),
    "sums over other axes": (
        "horizontal-product",
        [(4, 4), (4, 3), (4, 3)],
        lambda x, y, z: (mm(x, y), build.einsum(x, z, (0, 1), (0, 2), (1, 2))),
    ),
    "other dtypes": (
        "horizontal-product",
        [(4, 4), (4, 3), (4, 3)],
        lambda x, y, z: (mm(x, y), build.matmul(x, z, f16)),
    ),
    "no factor in common": (
        "factor-sum",
        [(4, 8), (8, 3), (4, 8), (8, 3)],
        lambda x, y, z, w: build.add(mm(x, y), mm(z, w)),
    ),
    "in common but turned": (
        "factor-sum",
        [(4, 4), (4, 4), (4, 4)],
        lambda x, y, z: build.add(mm(x, y), mm(build.transpose(x), z)),
    ),
    "a product and no product": ("concatenate-k", [(4, 8), (8, 3), (4, 3)], lambda x, y, z: build.add(mm(x, y), z)),
    "what would be negative changes": (
        "concatenate-k",
        [(4, 8), (8, 3), (4, 2), (2, 3)],
        lambda x, y, z, w: build.sub(mm(x, y), mm(z, w)),
    ),
}


def described(graph: Graph, rule: str) -> str:
    """The graph, and what the rule offers for each of its nodes."""
    parts = ["before:\n" + _body(print_graph(graph))]
    places = {node: k for k, node in enumerate(graph.nodes)}
    for _, node, new in offers_of(graph, [o for o in ALTERNATIVES if o.name == rule]):
        alone = Graph(graph.inputs, (OutputSpec(new, dense_strides(new.sizes)),))
        body = [line for line in _body(print_graph(alone)).splitlines() if not line.startswith("in")]
        parts.append(f"%{places[node]} =\n" + "\n".join(body) + "\n")
    return "\n".join(parts)


def _body(text: str) -> str:
    return text.partition("\n")[2]


@pytest.mark.parametrize("rule", CASES)
def test_before_and_after(rule: str, golden: Callable[[str, str], None]) -> None:
    parts: list[str] = []
    for name, (inputs, compute) in CASES[rule].items():
        graph = graph_of(inputs, compute)
        assert rule in {offer.name for offer, _, _ in offers_of(graph)}, name
        parts.append(f"# {name}\n\n{described(graph, rule)}")
    (offer,) = (o for o in ALTERNATIVES if o.name == rule)
    golden(f"offers.{rule}.txt", f"{rule} ({offer.numerics}): {offer.equation}\n\n" + "\n".join(parts))


def test_every_rule_has_a_case() -> None:
    names = [offer.name for offer in ALTERNATIVES]
    assert names == list(dict.fromkeys(names))
    assert set(names) == set(CASES)
    assert all(offer.numerics in NUMERICS for offer in ALTERNATIVES)


@pytest.mark.parametrize("name", KEPT)
def test_just_outside(name: str) -> None:
    rule, inputs, compute = KEPT[name]
    graph = graph_of(inputs, compute)
    assert rule not in {offer.name for offer, _, _ in offers_of(graph)}


def flops(graph: Graph) -> float:
    """In units of 1e9, of what does not depend on constants alone."""
    around = Neighbourhood(graph)
    live = [n for n in graph.nodes if n.op == "contract" and not around.is_constant(n)]
    return sum(2 * n.elements * products(n) for n in live) / 1e9


def test_flops_of_the_tail_of_attention() -> None:
    """The table of AMDMIGraphX issue #2818: S = 348, D = E = 768, 12 heads of 64 and one of 768."""
    s, d = 348, 768
    found: dict[int, list[float]] = {}
    for count in (12, 1):
        inputs = [(count, s, s), (s, d), weight(d, d, dtype=f16), weight(d, dtype=f16), weight(d, d, dtype=f16)]
        graph = graph_of(inputs, tail, f16)
        (out,) = graph.outputs
        forms = [Graph(graph.inputs, (replace(out, node=new),)) for _, n, new in offers_of(graph) if n is out.node]
        found[count] = [round(flops(g), 2) for g in (graph, *forms)]
    assert found[12][0] == found[1][0] == 1.01, "as given"
    assert {7.16, 3.05} <= set(found[12]), "a c folded for every head; values times c first"
    assert min(found[12]) == 1.01
    assert min(found[1]) == 0.60
