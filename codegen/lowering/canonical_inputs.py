"""Graphs with inputs in order of first use: common parts of segments are equal, whatever positions they read.

in0: f32[8], in1: f32[4], in2: f32[4]; out0: add(%2, %1)   ->   in0: f32[4], in1: f32[4]; out0: add(%0, %1)
"""

from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops import make_input


def with_own_inputs(graph: Graph) -> tuple[Graph, dict[int, int]]:
    """The graph with its inputs in the order of their first use, and the position of each by the one that it had.
    Donations are dropped."""
    position: dict[int, int] = {}
    specs: list[InputSpec] = []
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op == "input":
            given = node.attr("position", int)
            position[given] = len(specs)
            specs.append(graph.inputs[given])
            new[node] = make_input(position[given], specs[-1])
        else:
            new[node] = node.over(tuple([new[a] for a in node.args]))
    return Graph(tuple(specs), tuple([OutputSpec(new[o.node], o.strides) for o in graph.outputs])), position
