"""Memory order of the tensors below a node, in the node's own axes: from shapes alone, without lowering.

a + b.T   ->   a lies along axis 1, b along axis 0, and both vary with both: one of them lies across
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OPS, OpKind, axis_maps_of
from fusion_ir.ops.axis_maps import AxisMap


class Order(NamedTuple):
    """Memory order of one tensor, in axes of some node. along: axis of its consecutive elements. over: axes it varies
    with."""

    along: int
    over: frozenset[int]


Orders = frozenset[Order]
NONE: Orders = frozenset()


def lies_across(segment: Graph) -> bool:
    """Whether two tensors that an output is made of, itself included, have different innermost axes, and both vary
    with both axes."""
    found: dict[Node, Orders] = {}
    for node in segment.nodes:
        found[node] = _orders(segment, node, [found[a] for a in node.args])
    for output in segment.outputs:
        orders = found[output.node] | _of_layout(output.node.sizes, output.strides)
        if any(a.along != b.along and a.along in b.over and b.along in a.over for a, b in combinations(orders, 2)):
            return True
    return False


def _of_layout(sizes: Sequence[int], strides: Sequence[int]) -> Orders:
    over = frozenset(d for d, n in enumerate(sizes) if n > 1 and strides[d])
    return frozenset({Order(d, over) for d in over if strides[d] == 1})


def _orders(segment: Graph, node: Node, args: Sequence[Orders]) -> Orders:
    """Orders of the tensors below `node`, from the orders of the tensors below its operands (`args`)."""
    if node.op == "input":
        spec = segment.inputs[node.attr("position", int)]
        return _of_layout(spec.sizes, spec.strides)
    if node.op == "contract":
        axes = (node.ints("a_axes"), node.ints("b_axes"))
        return NONE.union(*(_renamed(x, _kept(a, len(node.sizes))) for x, a in zip(args, axes, strict=True)))
    if OPS[node.op].kind is OpKind.GATHER:  # what is read where an index says has no order
        axis = node.attr("axis", int)
        return _renamed(args[1], {0: axis}) if node.op == "index_select" else args[1]
    if node.op == "reshape":
        return frozenset(o for old in args[0] for o in _reshaped(old, node.args[0].sizes, node.sizes))
    if OPS[node.op].kind is OpKind.VIEW:
        return NONE.union(*(_viewed(x, axis_map) for x, axis_map in zip(args, axis_maps_of(node), strict=True)))
    return NONE.union(*args) if OPS[node.op].kind is OpKind.POINTWISE else NONE


def _viewed(orders: Orders, axis_map: AxisMap) -> Orders:
    """Orders behind a view, from those below it: elements that a slice steps over are not consecutive any more."""
    moved = {axis: (s.axis, s.step) for axis, s in enumerate(axis_map) if s is not None and s.axis is not None}
    strided = {axis for axis, (_, step) in moved.items() if step > 1}
    return _renamed((o for o in orders if o.along not in strided), {axis: to for axis, (to, _) in moved.items()})


def _kept(axes: Sequence[int], rank: int) -> dict[int, int]:
    """Operand axis -> axis of a contraction's result."""
    return {position: root for root, position in enumerate(axes[:rank]) if position >= 0}


def _renamed(orders: Iterable[Order], axes: Mapping[int, int]) -> Orders:
    return frozenset(
        Order(axes[o.along], frozenset(axes[d] for d in o.over if d in axes)) for o in orders if o.along in axes
    )


@lru_cache(maxsize=4096)
def _reshaped(order: Order, old: tuple[int, ...], new: tuple[int, ...]) -> tuple[Order, ...]:
    """The order behind a reshape. An axis becomes the axes that share its digits; the first elements of `along` step
    through one of them."""
    old_strides, new_strides = dense_strides(old), dense_strides(new)

    def shares(d: int, e: int) -> bool:
        return old_strides[d] < new_strides[e] * new[e] and new_strides[e] < old_strides[d] * old[d]

    step = old_strides[order.along]
    over = frozenset(e for e in range(len(new)) if new[e] > 1 and any(shares(d, e) for d in order.over))
    return tuple(Order(e, over) for e in over if new_strides[e] <= step < new_strides[e] * new[e])
