"""In which order the tensors below a node lie in memory, as its own axes see it: from shapes alone, without lowering.

a + b.T          ->   a lies along axis 1, b along axis 0, and both vary with both: one of them lies across
x.swap(0, 1) + y ->   both lie along axis 2, x steps on along axis 0, y along axis 1: they step apart
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from codegen.lowering.sums import reduced_dims
from fusion_ir.extent import dense_strides
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.ops import OPS, OpKind


@dataclass(frozen=True)
class Order:
    """Of one tensor: the axes of some node that it varies with, by the size of their steps; consecutive elements lie
    along the first."""

    axes: tuple[int, ...]

    @property
    def along(self) -> int:
        return self.axes[0]


Orders = frozenset[Order]
NONE: Orders = frozenset()


def lies_across(segment: Graph) -> bool:
    """Whether two tensors that an output is made of, itself included, have innermost axes with which both vary."""
    return any(_differ(a, b, 0) for a, b in _pairs(segment))


def steps_apart(segment: Graph) -> bool:
    """Whether two of them lie along one axis, but step on along axes with which both vary."""
    return any(a.along == b.along and _differ(a, b, 1) for a, b in _pairs(segment))


def _differ(a: Order, b: Order, place: int) -> bool:
    if min(len(a.axes), len(b.axes)) <= place:
        return False
    x, y = a.axes[place], b.axes[place]
    return x != y and x in b.axes and y in a.axes


def _pairs(segment: Graph) -> Iterator[tuple[Order, Order]]:
    """Of the tensors that one output is made of, itself included."""
    found: dict[Node, Orders] = {}
    for node in segment.nodes:
        found[node] = _orders(segment, node, [found[a] for a in node.args])
    for output in segment.outputs:
        yield from combinations(found[output.node] | _of_layout(output.node.sizes, output.strides), 2)


def _of_layout(sizes: Sequence[int], strides: Sequence[int]) -> Orders:
    axes = sorted((d for d, n in enumerate(sizes) if n > 1 and strides[d]), key=lambda d: (strides[d], -d))
    return frozenset({Order(tuple(axes))} if axes and strides[axes[0]] == 1 else ())


def _orders(segment: Graph, node: Node, args: Sequence[Orders]) -> Orders:
    """Of the tensors below `node`, given those below its operands."""
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
        return frozenset(_reshaped(old, node.args[0].sizes, node.sizes) for old in args[0])
    if node.op == "slice":
        steps = node.ints("step")
        return frozenset(o for o in args[0] if steps[o.along] == 1)
    if node.op in ("permute", "broadcast_in_dim", "squeeze"):
        return _renamed(args[0], _moved(node))
    if OPS[node.op].kind is OpKind.REDUCTION:
        return _renamed(args[0], _left(node.args[0].rank, reduced_dims(node)))
    return NONE.union(*args) if OPS[node.op].kind in (OpKind.POINTWISE, OpKind.VIEW) else NONE


def _moved(node: Node) -> dict[int, int]:
    """Operand axis -> axis of the view."""
    if node.op == "permute":
        return {old: new for new, old in enumerate(node.ints("dims"))}
    if node.op == "broadcast_in_dim":
        return dict(enumerate(node.ints("dims")))
    return _left(node.args[0].rank, node.ints("axes"))


def _left(rank: int, dropped: Sequence[int]) -> dict[int, int]:
    """Axes of which some are dropped -> axes of the result."""
    return {old: new for new, old in enumerate(d for d in range(rank) if d not in dropped)}


def _kept(axes: Sequence[int], rank: int) -> dict[int, int]:
    """Operand axis -> axis of a contraction's result."""
    return {position: root for root, position in enumerate(axes[:rank]) if position >= 0}


def _renamed(orders: Orders, axes: Mapping[int, int]) -> Orders:
    return frozenset(Order(tuple(axes[d] for d in o.axes if d in axes)) for o in orders if o.along in axes)


def _reshaped(order: Order, old: Sequence[int], new: Sequence[int]) -> Order:
    """An axis becomes those that share its digits."""
    old_strides, new_strides = dense_strides(old), dense_strides(new)
    inner_first = [e for e in reversed(range(len(new))) if new[e] > 1]

    def sharing(d: int) -> list[int]:
        first, end = old_strides[d], old_strides[d] * old[d]
        return [e for e in inner_first if new_strides[e] < end and first < new_strides[e] * new[e]]

    return Order(tuple(dict.fromkeys(e for d in order.axes for e in sharing(d))))
