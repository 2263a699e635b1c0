"""Windows: the parts of nodes that slices take, and which parts of a node's operands such a part is computed from."""

from collections.abc import Sequence
from math import prod

from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, axis_maps_of, kind_of, make
from fusion_ir.ops.axis_maps import AxisSource

Window = tuple[tuple[int, int, int], ...]  # start, stop and step of each axis


def whole(node: Node) -> Window:
    """All of a node."""
    return tuple((0, n, 1) for n in node.sizes)


def of_slice(node: Node) -> Window:
    """The window that a slice takes of its operand."""
    return tuple(zip(node.ints("start"), node.ints("stop"), node.ints("step"), strict=True))


def cut(node: Node, window: Window) -> Node:
    """The slice of a node; the node itself where that is all of it."""
    if window == whole(node):
        return node
    start, stop, step = zip(*window, strict=True)
    return make("slice", [node], {"start": start, "stop": stop, "step": step})


def sizes_of(window: Window) -> list[int]:
    """Elements along each axis."""
    return [-(-(stop - start) // step) for start, stop, step in window]


def composed(inner: Window, outer: Window) -> Window:
    """The window `outer` of the window `inner` of a node, as a window of that node."""
    found: list[tuple[int, int, int]] = []
    for (first, _, by), (start, _, step), count in zip(inner, outer, sizes_of(outer), strict=True):
        begin, last = first + start * by, first + (start + (count - 1) * step) * by
        found.append((begin, last + 1, by * step) if count else (0, 0, 1))  # an empty one may begin behind the end
    return tuple(found)


def operand_windows(x: Node, window: Window) -> list[Window] | None:
    """The windows of a node's operands that its window is computed from; None where that is no window of each."""
    if kind_of(x) is OpKind.POINTWISE:
        return [window] * len(x.args)
    match x.op:
        case "full":
            return []
        case "slice":
            return [composed(of_slice(x), window)]
        case "permute" | "broadcast_in_dim" | "expand" | "squeeze":
            (axis_map,) = axis_maps_of(x)
            return [tuple(_along(window, source) for source in axis_map)]
        case "reshape":
            found = _reshaped(x.args[0].sizes, x.sizes, window)
            return None if found is None else [found]
        case "contract":
            return _contracted(x, window)
        case _:
            return None


def _along(window: Window, source: AxisSource | None) -> tuple[int, int, int]:
    """The part of an operand's axis that a window needs of a view that cuts no axes."""
    return window[source.axis] if source is not None and source.axis is not None and source.step else (0, 1, 1)


def _contracted(x: Node, window: Window) -> list[Window]:
    """Windows of both operands of a contraction. Their axes are root axes, the first of which are the result's."""
    found: list[Window] = []
    for operand, axes in zip(x.args, (x.ints("a_axes"), x.ints("b_axes")), strict=True):
        own = list(whole(operand))
        for root, place in enumerate(window):
            if axes[root] >= 0:
                own[axes[root]] = place
        found.append(tuple(own))
    return found


def _reshaped(before: Sequence[int], after: Sequence[int], window: Window) -> Window | None:
    """The window of shape `before` that holds the elements of `window`, one of shape `after`; None where there is none:
    in each run of axes that the reshape regroups, all but the first axis that is not 1 must be whole."""
    if 0 in after or 0 in sizes_of(window):
        return None
    found: list[tuple[int, int, int]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        first, other = i, j
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while prod(before[first:i]) != prod(after[other:j]):
            if prod(before[first:i]) < prod(after[other:j]):
                i += 1
            else:
                j += 1
        run = _run(before[first:i], after[other:j], window[other:j])
        if run is None:
            return None
        found += run
    return tuple(found)


def _run(before: Sequence[int], after: Sequence[int], window: Window) -> Window | None:
    if tuple(before) == tuple(after):
        return window
    cut_axes = [k for k, (w, n) in enumerate(zip(window, after, strict=True)) if w != (0, n, 1)]
    if not cut_axes:
        return tuple((0, n, 1) for n in before)
    first = cut_axes[0]
    if len(cut_axes) > 1 or prod(after[:first]) != 1 or window[first][2] != 1:
        return None
    rest = prod(after[first + 1 :])
    start, stop = window[first][0] * rest, window[first][1] * rest  # of the run's elements in order
    axis = next(k for k, n in enumerate(before) if n > 1)
    unit = prod(before[axis + 1 :])
    if start % unit or stop % unit:
        return None
    return tuple((start // unit, stop // unit, 1) if k == axis else (0, n, 1) for k, n in enumerate(before))
