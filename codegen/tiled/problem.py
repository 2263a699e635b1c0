"""A contraction as batches of one matrix product: every axis is a digit of batch, row, column or depth.

contract(q[8, 512, 64], k[8, 512, 64]) : f32[8, 512, 512]   ->   batch 8, rows 512, columns 512, depth 64
contract(x[4, 32, 64], w[8, 48, 64]) : f32[4, 32, 8, 48]     ->   rows 4 * 32, columns 8 * 48, depth 64
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

from codegen.kernel import Reject
from codegen.tiled.points import BATCH, COLUMN, ROW, Where
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import OPS, OpKind
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products

Group = Literal["batch", "row", "column", "depth"]
COSTLY = (OpKind.CONTRACT, OpKind.REDUCTION, OpKind.SCAN, OpKind.SCATTER)


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
        """Number of batches, rows, columns or products of a sum."""
        return prod([n for n, g in zip(self.root, self.groups, strict=True) if g == group])

    @cached_property
    def extents(self) -> tuple[int, int, int]:
        """Batches, rows and columns."""
        return self.extent("batch"), self.extent("row"), self.extent("column")

    @cached_property
    def depth(self) -> int:
        """Products of a sum."""
        return self.extent("depth")

    @property
    def acc(self) -> DType:
        """The dtype that sums run in."""
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


def main_contraction(segment: Graph) -> Node | Reject:
    """The one contraction of a segment that is worth tiles. Others may be of a few products, which are inlined; there
    are no other sums."""
    costly = [n for n in segment.nodes if n.op in OPS and OPS[n.op].kind in COSTLY]
    other = next((n.op for n in costly if n.op != "contract"), None)
    if other or not costly:
        return Reject(f"holds {other}: takes one contraction" if other else "holds no contraction")
    *rest, main = sorted(costly, key=lambda n: (products(n), n.elements))
    if any(products(n) > ORDERED_PRODUCTS for n in rest):
        return Reject(f"holds {len(costly)} contractions; takes one of more than {ORDERED_PRODUCTS} products")
    return main if main.elements else Reject("the product is empty")


def problem_of(node: Node, *, turned: bool = False, orders: Mapping[Group, Sequence[int]] | None = None) -> Problem:
    """The contraction's problem.

    turned: rows are the axes of b alone. orders: orders of the root axes within groups, the last axis with the smallest
    steps; by default the node's order.
    """
    a_axes, b_axes = node.ints("a_axes"), node.ints("b_axes")
    a, b = node.args
    root = [a.sizes[i] if i >= 0 else b.sizes[j] for i, j in zip(a_axes, b_axes, strict=True)]
    groups = groups_of(node, turned=turned)
    weights = [1] * len(root)
    for group in dict.fromkeys(groups):
        step = 1
        for axis in reversed((orders or {}).get(group) or axes_of(groups, group)):
            weights[axis] = step
            step *= root[axis]
    return Problem(node, tuple(root), groups, tuple(weights), turned)


def groups_of(node: Node, *, turned: bool = False) -> tuple[Group, ...]:
    """The group of every root axis of a contraction."""
    a_axes, b_axes, reduced = node.ints("a_axes"), node.ints("b_axes"), node.attr("reduced", int)

    def group(axis: int, i: int, j: int) -> Group:
        if axis >= len(a_axes) - reduced:
            return "depth"
        if i >= 0 and j >= 0:
            return "batch"
        return "row" if (i >= 0) != turned else "column"

    return tuple(group(axis, i, j) for axis, (i, j) in enumerate(zip(a_axes, b_axes, strict=True)))


def axes_of(groups: Sequence[Group], group: Group) -> list[int]:
    """The root axes of one group."""
    return [axis for axis, g in enumerate(groups) if g == group]
