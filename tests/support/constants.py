"""Graphs whose inputs are constants: weights, named with a version."""

from collections.abc import Mapping
from dataclasses import replace

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import make_input


def with_constants(graph: Graph, versions: Mapping[int, str]) -> Graph:
    """The graph with these inputs constant, none of which an output takes over."""
    inputs = tuple(replace(spec, constant=versions.get(i)) for i, spec in enumerate(graph.inputs))
    moved: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op == "input":
            position = node.attr("position", int)
            moved[node] = make_input(position, inputs[position])
        else:
            moved[node] = node.over(tuple([moved[a] for a in node.args]))
    return Graph(inputs, tuple(replace(o, node=moved[o.node], donates=None) for o in graph.outputs))
