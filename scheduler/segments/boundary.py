"""The tensors of a graph as segments of it read and write them. Thousands of segments share a few hundred of them."""

from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops import make_input
from scheduler.segments.stored_order import Order, stored_orders, strides_in

TEMPORARY_ALIGNMENT_BYTES = 64
# What kernels assume of the buffers that callers pass for outputs; plans demand it.
OUTPUT_ALIGNMENT_BYTES = 64


class Boundary:
    """specs: how each tensor lies in memory for whoever reads it. An input of the graph keeps its layout; any other
    tensor is as its writer stored it: in the layout of the output that it is, else dense, its axes in the order of
    `stored_orders`. donors: for each tensor that is an output, the tensor among these whose memory it may take over."""

    def __init__(self, graph: Graph, tensors: tuple[Node, ...]) -> None:
        wanted = {o.node: o.strides for o in graph.outputs}
        orders = stored_orders(graph)
        self.specs = tuple(
            graph.inputs[n.attr("position", int)]
            if n.op == "input"
            else InputSpec(n.shape, n.dtype, wanted[n], OUTPUT_ALIGNMENT_BYTES)
            if n in wanted
            else InputSpec(n.shape, n.dtype, _strides(n, orders.get(n)), TEMPORARY_ALIGNMENT_BYTES)
            for n in tensors
        )
        inputs = {n.attr("position", int): t for t, n in enumerate(tensors) if n.op == "input"}
        donated = {o.node: inputs.get(o.donates) for o in graph.outputs if o.donates is not None}
        self.donors = {t: donor for t, n in enumerate(tensors) if (donor := donated.get(n)) is not None}
        self._inputs: dict[tuple[int, int], Node] = {}
        self._over: dict[tuple[Node, tuple[Node, ...]], Node] = {}
        self._graphs: dict[Graph, Graph] = {}

    def input(self, position: int, tensor: int) -> Node:
        """The tensor as the input of a segment at `position`."""
        key = position, tensor
        if key not in self._inputs:
            self._inputs[key] = make_input(position, self.specs[tensor])
        return self._inputs[key]

    def over(self, node: Node, args: tuple[Node, ...]) -> Node:
        """`node.over(args)`, asked for once."""
        key = node, args
        if key not in self._over:
            self._over[key] = node.over(args)
        return self._over[key]

    def one(self, graph: Graph) -> Graph:
        """The first graph given that equals `graph`: equal segments, of different layers for example, share one object,
        by which what is known of it is found at once."""
        return self._graphs.setdefault(graph, graph)


def _strides(node: Node, order: Order | None) -> tuple[int, ...]:
    return strides_in(node.sizes, order) if order else dense_strides(node.sizes)
