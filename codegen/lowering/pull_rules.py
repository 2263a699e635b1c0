"""The rule by which each op is pulled: one visible table."""

from collections.abc import Mapping

from codegen.lowering import gathers, scans, scatters, sums, views
from codegen.lowering.index import flatten
from codegen.lowering.puller import Index, Puller, Rule
from codegen.lowering.reduction_axes import ReductionAxes
from codegen.lowering.value import Value, Values
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import compute_dtype
from fusion_ir.ops import OPS, OpKind


def _input(p: Puller, node: Node, index: Index) -> Value:
    position = node.attr("position", int)
    return p.load(position, flatten(index, p.graph.inputs[position].strides), node.dtype)


def _pointwise(p: Puller, node: Node, index: Index) -> Value:
    assert OPS[node.op].kind is OpKind.POINTWISE, node.op
    args: list[Value] = []
    for a in node.args:  # a comprehension would be one frame more of Python's stack for each node in a row
        args.append(p.arg(a, index))
    return p.values.cast(p.values.make(node.op, args, (), compute_dtype(node.dtype)), node.dtype)


def _cast(p: Puller, node: Node, index: Index) -> Value:
    return p.values.cast(p.pull(node.args[0], index), node.dtype)


RULES: dict[str, Rule] = {
    **{name: _pointwise for name, op in OPS.items() if op.kind is OpKind.POINTWISE},
    "input": _input,
    "cast": _cast,
    "reshape": views.reshape,
    **dict.fromkeys(("permute", "broadcast_in_dim", "expand", "squeeze", "slice"), views.axes),
    "cat": views.cat,
    "pad": views.pad,
    "full": views.full,
    "iota": views.iota,
    "uniform": views.uniform,
    "contract": sums.contract,
    **dict.fromkeys(sums.COMBINES, sums.reduction),
    "mean": sums.mean,
    "var": sums.variance,
    "argmax": sums.arg,
    "argmin": sums.arg,
    "cumsum": scans.cumsum,
    "gather": gathers.gather,
    "take_along_axis": gathers.gather,
    "index_select": gathers.index_select,
    "scatter_sum": scatters.listed,
}

COMPARING: dict[str, Rule] = {**RULES, "scatter_sum": scatters.compared}  # for who makes no lists of slices


def puller(
    graph: Graph, values: Values, bound: ReductionAxes, *, refine: bool = True, rules: Mapping[str, Rule] = RULES
) -> Puller:
    """A puller by these rules."""
    return Puller(graph, values, bound, rules, refine)
