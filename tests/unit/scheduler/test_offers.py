"""Every rule that offers alternatives, before and after, as text; and what lies just outside of its conditions."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.dtype import DType, f16, f32
from fusion_ir.formats import read
from fusion_ir.ops.contract import products
from fusion_ir.records import NUMERICS
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from fusion_ir.text.printing import print_graph
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.split_contract import split_long_contract
from scheduler.rewrites.rules.split_reduction import Tasks, split_offers
from tests.support.offers import offers_of, with_alternatives
from tests.unit.scheduler.offer_cases import CASES, KEPT, graph_of, mm, power, tail, tensor, weight

EXAMPLES = Path(__file__).parents[3] / "examples"


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
    around = GraphQueries(graph)
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


def test_the_tail_as_it_is_dumped() -> None:
    """From MIGraphX's text, with the slice of all values, keys and queries between the products."""
    name = "distilgpt2_attention_tail.migraphx.txt"
    graph = read((EXAMPLES / name).read_text(), filename=name).graph
    for given in (graph, prepare(graph).graph):
        (out,) = given.outputs
        offers = [(offer.name, new) for offer, node, new in offers_of(given) if node is out.node]
        found = {rule: round(flops(Graph(given.inputs, (replace(out, node=new),))), 2) for rule, new in offers}
        assert found["fold-through-bias"] == 7.16
    assert round(flops(given), 2) == 1.01
    assert found["chain-order"] == 3.05


@pytest.mark.parametrize("to", [2.0, -1.0])
@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
def test_powers_keep_their_values(to: float, dtype: DType) -> None:
    graph = graph_of([(64,)], lambda x: power(x, to), dtype)
    ((_, node, new),) = offers_of(graph)
    inputs = sample_inputs(graph, 1)
    inputs[0].flat[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0]
    result = interpret(with_alternatives(graph, {node: new}) or graph, inputs)
    assert compare(result, reference(graph, inputs)).ok


def test_splits_of_long_sums_are_alternatives_on_cpus() -> None:
    graph = graph_of([(64, 8192), (8192, 64)], lambda x, y: build.exp(mm(x, y)))
    (product,) = (n for n in graph.nodes if n.op == "contract")
    alternatives = prepare(graph, Tasks(16), offers=ALTERNATIVES).alternatives
    assert [by.name for by in alternatives.found_by.values()] == ["split-contraction"]
    assert alternatives.producers == {product: (split_long_contract(product, 16),)}
    assert not prepare(graph, Tasks(16)).alternatives.producers
    assert not split_offers(Tasks(264, 128))


def test_another_way_to_an_alternative_is_by_both_rules() -> None:
    """x y + z w, of which z w is rounded, as one product, which is x y + z w without that rounding again."""
    specs = [tensor(4, 24, dtype=f16), tensor(24, 3, dtype=f16), tensor(4, 24, dtype=f16), tensor(24, 3, dtype=f16)]
    graph = graph_of(specs, lambda x, y, z, w: build.add(build.matmul(x, y, f32), build.cast(build.matmul(z, w), f32)))
    prepared = prepare(graph, offers=ALTERNATIVES)
    (output,) = prepared.graph.outputs
    ways = [prepared.alternatives.rules_of(p) for p in prepared.alternatives.producers[output.node]]
    names = [[offer.name for offer in rules] for rules in ways]
    assert ["concatenate-k"] in names and ["concatenate-k", "product-of-parts"] in names
    assert all(rules[0].rounding for rules in ways)
    assert not prepared.alternatives.rules_of(output.node)
