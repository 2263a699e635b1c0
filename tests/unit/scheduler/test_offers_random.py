"""Alternatives on random graphs: what rules offer has the values of what it stands beside, alone and together.

In f64 to 1e-12 of the sum of the magnitudes of all products. In narrower dtypes each value that the graph rounds is off
by at most half an ulp of it, and an alternative rounds no more values than the graph did (`scheduler.rewrites.rule`):
so both are within one unit roundoff for each of them, relative to the same sum. FUSEPLAN_RANDOM_GRAPHS sets how many.
"""

import os
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from fusion_ir.dtype import DType, bf16, f32, f64
from fusion_ir.graph import Graph
from fusion_ir.interpreter import interpret
from fusion_ir.numerics import accumulate
from fusion_ir.text import print_graph
from scheduler.rewrites import ALTERNATIVES
from scheduler.rewrites.rule import Offer
from tests.support.offers import Found, magnitudes, offers_of, with_alternatives
from tests.support.random_graphs import Seeded
from tests.support.rule_graphs import rule_graph
from tests.unit.scheduler.fakes import same_bits

GRAPHS = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "200"))
DTYPES = (f64, f32, bf16)
ROUNDOFF = {bf16: 2.0**-8, f32: 2.0**-24}
TOGETHER = 3  # ways of putting several alternatives into a graph at once


def inputs_of(graph: Graph, seed: int) -> list[np.ndarray]:
    """Values that all dtypes of the test hold, so that they are the same in f64."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(spec.sizes).astype(bf16.numpy).astype(np.float64).astype(spec.dtype.numpy)
        for spec in graph.inputs
    ]


class Checked:
    """One random graph, and how its alternatives did. wrong: what is wrong, in words."""

    def __init__(self, seed: int, dtype: DType, table: Sequence[Offer] = ALTERNATIVES) -> None:
        self.seed, self.dtype = seed, dtype
        self.graph, same = rule_graph(Seeded(seed), dtype), rule_graph(Seeded(seed), f64)
        self.inputs, wide = inputs_of(self.graph, seed), inputs_of(same, seed)
        self.found = offers_of(self.graph, table)
        self.wrong: list[str] = []
        if not self.found:
            return
        self._values, self._exact = interpret(self.graph, self.inputs), interpret(same, wide)
        self._allowed = [self._error * size for size in magnitudes(same, wide)]
        self._each()
        self._together()

    @property
    def _error(self) -> float:
        """Relative to the sum of magnitudes."""
        if self.dtype == f64:
            return 1e-12
        rounded = sum(
            n.dtype == self.dtype and n.op in ("contract", "add", "sub", "mul", "cast", "sum") for n in self.graph.nodes
        )
        sums = 2.0**-24 * sum(n.op in ("contract", "sum", "add", "sub", "mul") for n in self.graph.nodes)
        return rounded * ROUNDOFF[self.dtype] + 8 * sums  # of sums of a dozen terms, in the accumulator's dtype

    def _each(self) -> None:
        for found in self.found:
            graph = with_alternatives(self.graph, {found[1]: found[2]})
            if graph is None:
                self.wrong.append(f"seed {self.seed}: {found[0].name} closes a cycle")
            else:
                self._compare(graph, [found])

    def _together(self) -> None:
        """One alternative for each of many nodes, as far as they do not need one another."""
        choose = Seeded(self.seed)
        for _ in range(TOGETHER):
            chosen: dict[object, Found] = {}
            for _, node, _ in self.found:
                options = [f for f in self.found if f[1] is node]
                tried = {**chosen, node: options[choose.below(len(options))]}
                if with_alternatives(self.graph, {f[1]: f[2] for f in tried.values()}) is not None:
                    chosen = tried
            graph = with_alternatives(self.graph, {f[1]: f[2] for f in chosen.values()})
            assert graph is not None
            self._compare(graph, [*chosen.values()])

    def _compare(self, graph: Graph, found: Sequence[Found]) -> None:
        exact = all(offer.numerics == "exact" for offer, _, _ in found)
        for got, given, value, allowed in zip(
            interpret(graph, self.inputs), self._values, self._exact, self._allowed, strict=True
        ):
            off = np.abs(accumulate(got).astype(np.float64) - value)
            if (exact and not same_bits(got, given)) or not (off <= allowed).all():
                names = ", ".join(offer.name for offer, _, _ in found)
                texts = f"{print_graph(self.graph)}\n{print_graph(graph)}"
                self.wrong.append(f"seed {self.seed}, {self.dtype}, {names}: off by {off.max()}\n{texts}")
                return


def test_random_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    matched: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in range(GRAPHS):
        checked = Checked(seed, DTYPES[seed % len(DTYPES)])
        matched.update(offer.name for offer, _, _ in checked.found)
        wrong += checked.wrong
    with capsys.disabled():
        print(f"\n{GRAPHS} graphs: " + ", ".join(f"{name} {count}" for name, count in sorted(matched.items())))
    assert not wrong, "\n".join(wrong[:3])
    assert min(matched[offer.name] for offer in ALTERNATIVES) >= min(GRAPHS // 10, 50)
