"""Slices sink towards the inputs: what a graph takes only a part of is computed only there.

    slice(f(x, y))          = f(slice(x), slice(y))             f pointwise
    slice(permute(x))       = permute(slice(x))                 and other views of which the part is one
    slice(x y)              = slice(x) slice(y)                 x y a contraction, cut along axes that it keeps

Slices sink only where nothing else reads their operand: then there is less to compute, and nothing is computed twice. A
slice through a contraction is of class `reassociate`: the sums have the terms that they had, in the order of another
contraction. (AMDMIGraphX moves slices into dot in `simplify_algebra.cpp`.)
"""

from collections import Counter

from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import make
from scheduler.rewrites.matching.strided_slices import Window, composed, cut, of_slice, operand_windows, sizes_of, whole
from scheduler.rewrites.rule import Rule

RUN = 8  # elements: parts of a contraction begin at a multiple of it, so that runs stay aligned, or are half or less


class Sinking:
    """Slices of one graph. made: by node that stands for a part of another, that other node."""

    def __init__(self, graph: Graph) -> None:
        self.made: dict[Node, Node] = {}
        users = Counter(a for n in graph.nodes for a in set(n.args))
        users.update(o.node for o in graph.outputs)
        self._sole = {n for n, count in users.items() if count == 1}

    def rules(self) -> tuple[Rule, Rule]:
        """The two rules; the first leaves contractions alone."""
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
        found = self._part(node.args[0], of_slice(node), products)
        return None if found is node else found

    def _part(self, x: Node, window: Window, products: bool) -> Node:
        """The window of a node: a slice where nothing better is known."""
        if window == whole(x):
            return x
        if x.op == "slice":
            return self._part(x.args[0], composed(of_slice(x), window), products)
        sinks = x in self._sole or x.op == "full"
        if x.op == "contract":
            sinks = sinks and products and _is_aligned(x, window)
        given = operand_windows(x, window) if sinks else None
        if given is None:
            return cut(x, window)
        args = [self._part(a, w, products) for a, w in zip(x.args, given, strict=True)]
        attrs = dict(x.attrs)
        if "shape" in attrs:
            attrs["shape"] = shape_of(sizes_of(window))
        found = make(x.op, args, attrs)
        self.made[found] = self.made.get(x, x)
        return found


def _is_aligned(x: Node, window: Window) -> bool:
    """Whether a part of a contraction leaves its operands' runs aligned, or at least leaves half of them out."""
    return not any(start % RUN and 2 * (stop - start) > n for (start, stop, _), n in zip(window, x.sizes, strict=True))
