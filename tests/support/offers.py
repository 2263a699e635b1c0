"""Alternatives of a graph's nodes, put in their place, and how far off results may be."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fusion_ir.graph import Graph
from fusion_ir.interpreter import evaluate
from fusion_ir.node import Node
from fusion_ir.node_value import evaluate_node
from fusion_ir.numerics import accumulate
from fusion_ir.ops import OpKind, kind_of
from scheduler.rewrites import ALTERNATIVES
from scheduler.rewrites.neighbourhood import Neighbourhood
from scheduler.rewrites.rule import Offer

Found = tuple[Offer, Node, Node]  # the rule, the node, what equals it


def offers_of(graph: Graph, table: Sequence[Offer] = ALTERNATIVES) -> list[Found]:
    """Everything that rules of the table offer for nodes of a graph."""
    around = Neighbourhood(graph)
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
    """Of the outputs of a graph that multiplies and adds: sums of the magnitudes of all products in them, in the
    accumulator's dtype. What it does besides is taken to keep magnitudes (relu, tanh)."""

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
