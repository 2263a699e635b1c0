"""Simplification: rules that lose nothing, applied until none matches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from scheduler.rewrites.rule import Rule
from scheduler.rewrites.rules import RULES


@dataclass(frozen=True)
class Simplified:
    """`image[n]`: what stands for node n of the graph given; `rules`: those that matched, in the table's order."""

    image: Mapping[Node, Node]
    rules: tuple[Rule, ...]


def simplify(graph: Graph, rules: Sequence[Rule] = RULES) -> Simplified:
    """Applies the rules at every node until none matches, operands first. Nodes that nothing matches stay the same
    object."""
    image: dict[Node, Node] = {}
    matched: set[str] = set()
    for node in graph.nodes:
        new = node.over(tuple([image[a] for a in node.args]))
        while True:
            for rule in rules:
                better = rule.apply(new)
                if better is not None:
                    break
            else:
                break
            if better.sizes != node.sizes or better.dtype != node.dtype:
                raise AssertionError(f"rewrite {rule.name} made {better} of {new}")
            matched.add(rule.name)
            new = better
        image[node] = new
    return Simplified(image, tuple(rule for rule in rules if rule.name in matched))
