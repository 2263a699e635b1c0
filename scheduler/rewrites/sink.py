"""Slices sink towards the inputs: what a graph takes only a part of is computed only there.

    slice(f(x, y))          = f(slice(x), slice(y))             f pointwise
    slice(permute(x))       = permute(slice(x))                 and other views of which the part is one
    slice(x y)              = slice(x) slice(y)                 x y a contraction, cut along axes that it keeps

All of it only where nothing else reads what the slice is taken of: then there is less to compute, and nothing is
computed twice. A slice through a contraction is of class `reassociate`: the sums are the same, their order is that of
another contraction. (AMDMIGraphX moves slices into dot in `simplify_algebra.cpp`.)
"""

from collections import Counter
from collections.abc import Sequence
from math import prod

from fusion_ir.extent import shape_of
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.ops import OpKind, kind_of, make
from scheduler.rewrites.rule import Rule

Window = tuple[tuple[int, int, int], ...]  # start, stop and step of each axis
RUN = 8  # elements: parts of a contraction begin at a multiple of it, so that runs stay aligned, or are half or less


class Sinking:
    """Slices of one graph. made: what stands for a part of a node, with that node."""

    def __init__(self, graph: Graph) -> None:
        self.made: dict[Node, Node] = {}
        users = Counter(a for n in graph.nodes for a in set(n.args))
        users.update(o.node for o in graph.outputs)
        self._sole = {n for n, count in users.items() if count == 1}

    def rules(self) -> tuple[Rule, Rule]:
        """The first leaves contractions alone."""
        return (
            Rule("slice-sinks", "slice(f(x)) = f(slice(x)), f pointwise or a view", "exact", self._exact),
            Rule("slice-product", "slice(x y) = slice(x) slice(y)", "reassociate", self._any),
        )

    def _exact(self, node: Node) -> Node | None:
        return self._sunk(node, products=False)

    def _any(self, node: Node) -> Node | None:
        return self._sunk(node, products=True)

    def _sunk(self, node: Node, products: bool) -> Node | None:
        if node.op != "slice":
            return None
        found = self._part(node.args[0], _window(node), products)
        return None if found is node else found

    def _part(self, x: Node, window: Window, products: bool) -> Node:
        """The window of a node: a slice where nothing better is known."""
        if all(w == (0, n, 1) for w, n in zip(window, x.sizes, strict=True)):
            return x
        if x.op == "slice":
            return self._part(x.args[0], _composed(_window(x), window), products)
        given = self._operands(x, window, products) if x in self._sole or x.op == "full" else None
        if given is None:
            start, stop, step = zip(*window, strict=True)
            return make("slice", [x], {"start": start, "stop": stop, "step": step})
        args = [self._part(a, w, products) for a, w in zip(x.args, given, strict=True)]
        attrs = dict(x.attrs)
        if "shape" in attrs:
            attrs["shape"] = shape_of(_sizes(window))
        found = make(x.op, args, attrs)
        self.made[found] = self.made.get(x, x)
        return found

    def _operands(self, x: Node, window: Window, products: bool) -> list[Window] | None:
        """The windows of a node's operands that its window is computed from; None where that is no window of each."""
        if kind_of(x) is OpKind.POINTWISE:
            return [window] * len(x.args)
        whole = [tuple((0, n, 1) for n in a.sizes) for a in x.args]
        match x.op:
            case "full":
                return []
            case "permute":
                dims = x.ints("dims")
                return [tuple(window[dims.index(axis)] for axis in range(x.rank))]
            case "broadcast_in_dim":
                own = x.ints("dims")
            case "expand":
                own = tuple(range(x.rank))
            case "squeeze":
                kept = iter(window)
                return [tuple((0, 1, 1) if a in x.ints("axes") else next(kept) for a in range(x.args[0].rank))]
            case "reshape":
                found = _reshaped(x.args[0].sizes, x.sizes, window)
                return None if found is None else [found]
            case "contract":
                return _contracted(x, window) if products else None
            case _:
                return None
        return [tuple(w if w[1] == 1 else window[axis] for w, axis in zip(whole[0], own, strict=True))]


def _window(node: Node) -> Window:
    return tuple(zip(node.ints("start"), node.ints("stop"), node.ints("step"), strict=True))


def _sizes(window: Window) -> list[int]:
    return [-(-(stop - start) // step) for start, stop, step in window]


def _composed(inner: Window, outer: Window) -> Window:
    """The window of a window."""
    found: list[tuple[int, int, int]] = []
    for (first, _, by), (start, _, step), count in zip(inner, outer, _sizes(outer), strict=True):
        begin, last = first + start * by, first + (start + (count - 1) * step) * by
        found.append((begin, last + 1, by * step) if count else (0, 0, 1))  # an empty one may begin behind the end
    return tuple(found)


def _contracted(x: Node, window: Window) -> list[Window] | None:
    """Of both operands, whose axes are root axes; the first of these are the result's."""
    for (start, stop, _), extent in zip(window, x.sizes, strict=True):
        if start % RUN and 2 * (stop - start) > extent:
            return None
    found: list[Window] = []
    for operand, axes in zip(x.args, (x.ints("a_axes"), x.ints("b_axes")), strict=True):
        own = [(0, n, 1) for n in operand.sizes]
        for root, place in enumerate(window):
            if axes[root] >= 0:
                own[axes[root]] = place
        found.append(tuple(own))
    return found


def _reshaped(before: Sequence[int], after: Sequence[int], window: Window) -> Window | None:
    """The window of `before` that is the window of `after`, where it is one: of each run of axes that hold the same
    elements, all but the first axis that is not 1 must be whole."""
    if 0 in after or 0 in _sizes(window):
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
    cut = [k for k, (w, n) in enumerate(zip(window, after, strict=True)) if w != (0, n, 1)]
    if not cut:
        return tuple((0, n, 1) for n in before)
    if len(cut) > 1 or prod(after[: cut[0]]) != 1 or window[cut[0]][2] != 1:
        return None
    rest = prod(after[cut[0] + 1 :])
    start, stop = window[cut[0]][0] * rest, window[cut[0]][1] * rest  # of the run's elements in order
    axis = next(k for k, n in enumerate(before) if n > 1)
    unit = prod(before[axis + 1 :])
    if start % unit or stop % unit:
        return None
    return tuple((start // unit, stop // unit, 1) if k == axis else (0, n, 1) for k, n in enumerate(before))
