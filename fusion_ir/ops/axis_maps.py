"""Axis maps of views: which element along each axis of an operand an index into the view stands for.

slice(x[8, 6], start (2, 0), step (3, 1))       x[2 + 3 i, j]     (0, 2, 3), (1, 0, 1)
broadcast_in_dim(x[1, 5] -> [4, 7, 5], (1, 2))  x[0, k]           (1, 0, 0), (2, 0, 1)
squeeze(x[3, 1, 5], (1,))                       x[i, 0, j]        (0, 0, 1), (None, 0, 0), (1, 0, 1)
reshape(x[4, 6] -> [4, 2, 3])                   x[i, 3 j + k]     (0, 0, 1), None
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

from fusion_ir.core.node import Node


class AxisSource(NamedTuple):
    """The index along one axis of a view's operand: start + step * (the index along `axis` of the view).

    step is 0 where the operand has one element along the axis, and the view repeats it or drops the axis; axis is None
    where no axis of the view stands for it."""

    axis: int | None
    start: int = 0
    step: int = 1


# Of one operand, for each of its axes; None for an axis whose index depends on several axes of the view, or on a part
# of one. Indices outside of the operand are elements that a pad fills, and that a cat takes from other operands.
AxisMap = tuple[AxisSource | None, ...]
AxisMaps = Callable[[Node], tuple[AxisMap, ...]]  # the map of each operand of a view

ONE_ELEMENT = AxisSource(None, 0, 0)


def reshape(node: Node) -> tuple[AxisMap, ...]:
    """An axis of a reshape's operand is the axis of the result that has its extent, and as many elements before it."""
    (x,) = node.args
    long, result = ([axis for axis, n in enumerate(sizes) if n != 1] for sizes in (x.sizes, node.sizes))
    if node.elements:
        there = {(node.sizes[axis], prod(node.sizes[:axis])): axis for axis in result}
        found = {axis: there.get((x.sizes[axis], prod(x.sizes[:axis]))) for axis in long}
    else:  # products say nothing about where an axis is
        is_same = [x.sizes[axis] for axis in long] == [node.sizes[axis] for axis in result]
        found = dict(zip(long, result, strict=True)) if is_same else {}
    return (tuple(_whole(found.get(axis)) if n != 1 else ONE_ELEMENT for axis, n in enumerate(x.sizes)),)


def permute(node: Node) -> tuple[AxisMap, ...]:
    dims = node.ints("dims")
    return (tuple(AxisSource(axis) for axis in sorted(range(len(dims)), key=dims.__getitem__)),)


def broadcast_in_dim(node: Node) -> tuple[AxisMap, ...]:
    return (_repeated(node.args[0], node.ints("dims")),)


def expand(node: Node) -> tuple[AxisMap, ...]:
    return (_repeated(node.args[0], range(node.rank)),)


def slice_(node: Node) -> tuple[AxisMap, ...]:
    given = zip(node.ints("start"), node.ints("step"), strict=True)
    return (tuple(AxisSource(axis, start, step) for axis, (start, step) in enumerate(given)),)


def pad(node: Node) -> tuple[AxisMap, ...]:
    return (tuple(AxisSource(axis, -low) for axis, low in enumerate(node.ints("low"))),)


def cat(node: Node) -> tuple[AxisMap, ...]:
    joined = node.attr("axis", int)
    firsts = accumulate((arg.sizes[joined] for arg in node.args), initial=0)
    return tuple(
        tuple(AxisSource(axis, -first if axis == joined else 0) for axis in range(node.rank))
        for first, _ in zip(firsts, node.args, strict=False)
    )


def squeeze(node: Node) -> tuple[AxisMap, ...]:
    dropped, left = node.ints("axes"), iter(range(node.rank))
    return (tuple(ONE_ELEMENT if a in dropped else AxisSource(next(left)) for a in range(node.args[0].rank)),)


def _whole(axis: int | None) -> AxisSource | None:
    return None if axis is None else AxisSource(axis)


def _repeated(x: Node, dims: Sequence[int]) -> AxisMap:
    return tuple(AxisSource(dim, 0, int(n != 1)) for dim, n in zip(dims, x.sizes, strict=True))
