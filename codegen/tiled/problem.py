"""A contraction as batches of one matrix product: every axis is a digit of batch, row, column or depth.

contract(q[8, 512, 64], k[8, 512, 64]) : f32[8, 512, 512]   ->   batch 8, rows 512, columns 512, depth 64
contract(x[4, 32, 64], w[8, 48, 64]) : f32[4, 32, 8, 48]     ->   rows 4 * 32, columns 8 * 48, depth 64
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from codegen.kernel import Reject
from codegen.tiled.points import BATCH, COLUMN, ROW, Where
from fusion_ir.dtype import DType
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.ops import OPS, OpKind

Group = Literal["batch", "row", "column", "depth"]
COSTLY = (OpKind.CONTRACT, OpKind.REDUCTION, OpKind.SCAN)


@dataclass(frozen=True)
class Problem:
    """result[batch, row, column] = sum over depth of left[batch, row, depth] * right[batch, column, depth].

    node: the contraction. root: its axes in order, then the reduced ones, with their extents. groups: of every root
    axis. weights: what a step along a root axis moves in its group's number. turned: rows are the axes of b, not of a.
    """

    node: Node
    root: tuple[int, ...]
    groups: tuple[Group, ...]
    weights: tuple[int, ...]
    turned: bool

    def extent(self, group: Group) -> int:
        """How many batches, rows, columns or products there are."""
        return prod(n for n, g in zip(self.root, self.groups, strict=True) if g == group)

    @property
    def extents(self) -> tuple[int, int, int]:
        """Batches, rows and columns."""
        return self.extent("batch"), self.extent("row"), self.extent("column")

    @property
    def depth(self) -> int:
        """Products of a sum."""
        return self.extent("depth")

    @property
    def acc(self) -> DType:
        """What sums run in."""
        return self.node.attr("acc", DType)

    @property
    def result(self) -> tuple[Where, ...]:
        """Where each axis of the contraction's result lies in (batch, row, column)."""
        places = {"batch": BATCH, "row": ROW, "column": COLUMN}
        return tuple(
            Where(places[g], w) for g, w in zip(self.groups, self.weights, strict=True) if g != "depth"
        )  # reduced axes come last

    def operand(self, right: bool, *, depth_last: bool) -> tuple[Node, tuple[Where, ...]]:
        """The left or right operand, and where each of its axes lies in (batch, row, column) of a matrix: [row, depth]
        of the left, [column, depth] of the right one, or with the two the other way round."""
        which = right != self.turned
        axes = self.node.ints("b_axes" if which else "a_axes")
        inner, outer = (COLUMN, ROW) if depth_last else (ROW, COLUMN)
        places = {"batch": BATCH, "depth": inner, "row": outer, "column": outer}
        found = [
            (position, Where(places[self.groups[axis]], self.weights[axis]))
            for axis, position in enumerate(axes)
            if position >= 0
        ]
        return self.node.args[which], tuple(where for _, where in sorted(found, key=lambda pair: pair[0]))


def only_contraction(segment: Graph) -> Node | Reject:
    """The one contraction of a segment without other sums; those of a product or two in the cone are pulled."""
    found = [n for n in segment.nodes if n.op in OPS and OPS[n.op].kind in COSTLY]
    if len(found) != 1 or found[0].op != "contract":
        return Reject(f"holds {', '.join(n.op for n in found) or 'no contraction'}; takes one contraction alone")
    (node,) = found
    return node if node.elements else Reject("the product is empty")


def problem_of(node: Node, *, turned: bool = False, columns: Sequence[int] = (), depths: Sequence[int] = ()) -> Problem:
    """The contraction's problem.

    turned: rows are the axes of b alone. columns, depths: orders of the root axes of these groups, the last one's steps
    the smallest; by default that of the node.
    """
    a_axes, b_axes, reduced = node.ints("a_axes"), node.ints("b_axes"), node.attr("reduced", int)
    a, b = node.args
    root = [a.sizes[i] if i >= 0 else b.sizes[j] for i, j in zip(a_axes, b_axes, strict=True)]
    groups: list[Group] = []
    for axis, (i, j) in enumerate(zip(a_axes, b_axes, strict=True)):
        if axis >= len(root) - reduced:
            groups.append("depth")
        elif i >= 0 and j >= 0:
            groups.append("batch")
        else:
            groups.append("row" if (i >= 0) != turned else "column")
    weights = [1] * len(root)
    for group, order in (("batch", ()), ("row", ()), ("column", columns), ("depth", depths)):
        step = 1
        for axis in reversed(order or [r for r, g in enumerate(groups) if g == group]):
            weights[axis] = step
            step *= root[axis]
    return Problem(node, tuple(root), tuple(groups), tuple(weights), turned)
