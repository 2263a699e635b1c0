"""Alternatives on random graphs: what rules offer has the values of what it stands beside, alone and together, within
its class (`tests.support.offers`). FUSEPLAN_RANDOM_GRAPHS sets how many.
"""

import os
from collections import Counter
from collections.abc import Callable

import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.dtype import bf16, f16, f32, f64
from fusion_ir.reference.interpreter import interpret
from fusion_ir.text.printing import print_graph
from scheduler.rewrites.rules import ALTERNATIVES
from testing.random_graphs import Seeded, any_graph
from tests.support.offers import Checked, offers_of
from tests.support.products import dense_graph
from tests.support.random_products import product_graph
from tests.unit.scheduler.fakes import random_inputs, same_bits

GRAPHS = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "70"))
DTYPES = (f64, f32, bf16, f16)
# Powers take sums of magnitudes out of proportion: test_offers.py. The other two are for f16 alone.
ELSEWHERE = {"powers", "scale-out-far", "scale-in-far"}


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_random_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    matched: Counter[str] = Counter()
    wrong: list[str] = []
    together = 0
    for seed in range(GRAPHS):
        checked = Checked(seed, DTYPES[seed % len(DTYPES)])
        matched.update(offer.name for offer, _, _ in checked.found)
        wrong += checked.wrong
        together += checked.together
    with capsys.disabled():
        print(
            f"\n{GRAPHS} graphs, {together} together: "
            + ", ".join(f"{name} {count}" for name, count in sorted(matched.items()))
        )
    assert not wrong, "\n".join(wrong[:3])
    assert together > GRAPHS
    assert min(matched[offer.name] for offer in ALTERNATIVES if offer.name not in ELSEWHERE) >= min(GRAPHS // 10, 100)


@pytest.mark.soak
@pytest.mark.parametrize("make", [any_graph, product_graph], ids=["any", "products"])
def test_graphs_of_every_kind(make: Callable[[Seeded], Graph]) -> None:
    """Every op, extents of 0 and 1, gaps in memory: rules that are exact give the same bits, and none fails."""
    exact = 0
    for seed in range(GRAPHS):
        graph = make(Seeded(seed))
        for offer, node, new in offers_of(graph):
            both = Graph(graph.inputs, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in (node, new)))
            values = interpret(both, random_inputs(graph, seed))
            assert values[0].shape == values[1].shape and values[0].dtype == values[1].dtype
            if offer.numerics == "exact":
                exact += 1
                assert same_bits(*values), f"seed {seed}, {offer.name}\n{print_graph(both)}"
    assert exact > min(GRAPHS // 20, 10)


def test_nothing_is_offered_for_nothing() -> None:
    """Products over no elements, or of none."""
    graph = dense_graph([(4, 0), (0, 5), (5, 3)], lambda x, y, z: build.mul(build.matmul(build.matmul(x, y), z), 0.5))
    assert not offers_of(graph)
    graph = dense_graph([(0, 4), (4, 5), (5, 3)], lambda x, y, z: build.matmul(build.matmul(x, y), z))
    assert not offers_of(graph)
