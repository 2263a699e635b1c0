"""Alternatives of a graph's nodes, put in their place, and how far off results may be.

In f64 1e-12 of the sum of the magnitudes of all products. In narrower dtypes each value that the graph rounds is off by
at most half an ulp of it, and an alternative rounds no more values than the graph did (`scheduler.rewrites.rule`): so
both are within one unit roundoff for each of them, relative to the same sum. What is exact has the same bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fusion_ir.arithmetic.conversions import accumulate
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32, f64
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.reference.interpreter import evaluate, interpret
from fusion_ir.reference.node_value import evaluate_node
from fusion_ir.text.printing import print_graph
from scheduler.rewrites.alternatives import find_alternatives
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.simplify import simplify
from testing.random_graphs import Seeded
from testing.rule_graphs import rule_graph
from tests.unit.scheduler.fakes import same_bits

Found = tuple[Alternative, Node, Node]  # the rule, the node, what equals it
ROUNDOFF = {bf16: 2.0**-8, f16: 2.0**-11, f32: 2.0**-24}
TOGETHER = 3  # ways of putting several alternatives into a graph at once


def offers_of(graph: Graph, table: Sequence[Alternative] = ALTERNATIVES) -> list[Found]:
    """Everything that rules of the table offer for nodes of a graph."""
    around = GraphQueries(graph)
    return [(offer, node, new) for node in graph.nodes for offer in table for new in offer.of(node, around)]


def with_alternatives(graph: Graph, chosen: Mapping[Node, Node]) -> Graph | None:
    """The graph with other nodes in the place of some; None where these need one another."""
    image: dict[Node, Node] = {}
    begun: set[Node] = set()

    def made(node: Node) -> Node | None:
        if node in image:
            return image[node]
        if node in begun:
            return None
        begun.add(node)
        source = chosen.get(node, node)
        args = [made(a) for a in source.args]
        if None in args:
            return None
        image[node] = source.over(tuple(a for a in args if a is not None))
        return image[node]

    nodes = [made(o.node) for o in graph.outputs]
    if any(n is None for n in nodes):
        return None
    outputs = tuple(replace(o, node=n) for o, n in zip(graph.outputs, nodes, strict=True) if n is not None)
    return Graph(graph.inputs, outputs)


def magnitudes(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Sums of the magnitudes of all products in each output of a graph that multiplies and adds, in the accumulator's
    dtype. Other ops are taken to keep magnitudes (relu, tanh)."""

    def size(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
        if kind_of(node) is OpKind.POINTWISE and node.dtype.is_float:
            a = [np.abs(accumulate(x)) for x in operands]
            match node.op:
                case "add" | "sub":
                    return a[0] + a[1]
                case "mul":
                    return a[0] * a[1]
                case _:
                    return a[0]
        value = evaluate_node(node, [np.abs(accumulate(x)) if x.dtype != np.bool_ else x for x in operands])
        return np.abs(accumulate(value))

    return [np.abs(accumulate(x)) for x in evaluate(graph, inputs, size)]


def inputs_of(graph: Graph, seed: int) -> list[np.ndarray]:
    """Values that all dtypes hold, so that they are the same in f64."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(spec.sizes).astype(bf16.numpy).astype(np.float64).astype(spec.dtype.numpy)
        for spec in graph.inputs
    ]


class Checked:
    """One random graph, compared with its alternatives. together: how many alternatives took their place beside others.
    wrong: faults in words."""

    def __init__(self, seed: int, dtype: DType, table: Sequence[Alternative] = ALTERNATIVES) -> None:
        self.seed, self.dtype = seed, dtype
        self.graph, same = rule_graph(Seeded(seed), dtype), rule_graph(Seeded(seed), f64)
        self.inputs, wide = inputs_of(self.graph, seed), inputs_of(same, seed)
        self._table, self.together = table, 0
        self.found = offers_of(self.graph, table)
        self.wrong: list[str] = []
        if not self.found:
            return
        self._exact = interpret(same, wide)
        self._allowed = [self._error * size for size in magnitudes(same, wide)]
        self._each()
        if seed % 2:  # of every other graph: finding what is offered for what is offered takes longer than all the rest
            self._together()

    @property
    def _error(self) -> float:
        """The error allowed to an alternative, relative to the sum of magnitudes."""
        if self.dtype == f64:
            return 1e-12
        rounded = sum(
            n.dtype == self.dtype and n.op in ("contract", "add", "sub", "mul", "cast", "sum") for n in self.graph.nodes
        )
        sums = 2.0**-24 * sum(n.op in ("contract", "sum", "add", "sub", "mul") for n in self.graph.nodes)
        return rounded * ROUNDOFF[self.dtype] + 8 * sums  # of sums of a dozen terms, in the accumulator's dtype

    def _each(self) -> None:
        for offer, node, new in self.found:
            graph = with_alternatives(self.graph, {node: new})
            if graph is None:
                self.wrong.append(f"seed {self.seed}: {offer.name} closes a cycle")
                continue
            self._compare(graph, [offer.name])
            if offer.numerics == "exact":
                # From the same values: a product of what lies otherwise in memory may be summed in another order.
                both = Graph(graph.inputs, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in (node, new)))
                if not same_bits(*interpret(both, self.inputs)):
                    self.wrong.append(f"seed {self.seed}, {offer.name}: other bits\n{print_graph(both)}")

    def _together(self) -> None:
        """Compares graphs with several alternatives at once: one random producer of every tensor, among those that a
        search finds, alternatives of alternatives included."""
        image = simplify(self.graph).image
        simple = Graph(self.graph.inputs, tuple(replace(o, node=image[o.node]) for o in self.graph.outputs))
        producers = find_alternatives(simple, self._table, "approximate").producers
        choose = Seeded(self.seed)
        for _ in range(TOGETHER):
            options = {tensor: (tensor, *found) for tensor, found in producers.items()}
            chosen = {tensor: found[choose.below(len(found))] for tensor, found in options.items()}
            self.together += sum(tensor is not producer for tensor, producer in chosen.items())
            graph = with_alternatives(simple, {t: p for t, p in chosen.items() if t is not p})
            if graph is None:
                self.wrong.append(f"seed {self.seed}: producers need one another\n{print_graph(simple)}")
            else:
                self._compare(graph, ["several"])

    def _compare(self, graph: Graph, names: Sequence[str]) -> None:
        for got, value, allowed in zip(interpret(graph, self.inputs), self._exact, self._allowed, strict=True):
            off = np.abs(accumulate(got).astype(np.float64) - value)
            if not (off <= allowed).all():
                texts = f"{print_graph(self.graph)}\n{print_graph(graph)}"
                self.wrong.append(f"seed {self.seed}, {self.dtype}, {', '.join(names)}: off by {off.max()}\n{texts}")
                return
