"""How a contraction is turned into tiles: which operand gives the rows, and which axis steps fastest within each group.

Orientations differ in how wide memory can be accessed, not in their result. All of them are lowered, and the one that
moves the fewest bytes is taken, a short access counting as a whole one; among equals, the one that leaves the
contraction as it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from codegen.kernel import EmitError
from codegen.tiled.epilogue import check_epilogue, epilogue_cost
from codegen.tiled.operand import TileOperand, Tiles, check_operand, operand
from codegen.tiled.problem import Group, Problem, axes_of, groups_of, problem_of
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products


@dataclass(frozen=True)
class Orientation:
    """A problem with its operands as they come into tiles."""

    problem: Problem
    left: TileOperand
    right: TileOperand


@lru_cache(maxsize=256)
def arrange(segment: Graph, node: Node, tiles: Tiles) -> Orientation:
    """The orientation that moves the fewest bytes. Raises EmitError where there is none."""
    reason = ""
    best: tuple[float, Orientation] | None = None
    known: dict[tuple[object, ...], TileOperand] = {}
    for turned, orders in _ways(node):
        problem = problem_of(node, turned=turned, orders=orders)
        try:
            cost = epilogue_cost(segment, problem)
            sides = [_side(segment, problem, tiles, right, known) for right in (False, True)]
        except EmitError as error:
            reason = reason or str(error)
            continue
        cost += sum(side.cost for side in sides)
        if best is None or cost < best[0]:
            best = cost, Orientation(problem, sides[0], sides[1])
    if best is None:
        raise EmitError(reason or "the contraction cannot be arranged")
    return best[1]


def check_arranged(segment: Graph, node: Node) -> None:
    """Raises EmitError where `arrange` does, whatever the tiles: where no orientation can be lowered."""
    for arg in node.args:
        check_operand(segment, arg)
    reason = ""
    for turned, orders in _ways(node):
        try:
            check_epilogue(segment, problem_of(node, turned=turned, orders=orders))
        except EmitError as error:
            reason = reason or str(error)
            continue
        return
    raise EmitError(reason or "the contraction cannot be arranged")


def _side(
    segment: Graph, problem: Problem, tiles: Tiles, right: bool, known: dict[tuple[object, ...], TileOperand]
) -> TileOperand:
    """The left or right operand, copied where it can be, else with the fewest bytes to load. known: operands of other
    orientations, most of which recur."""
    found: list[TileOperand] = []
    for depth_last in (True, False) if tiles.across else (True,):
        key = (*problem.operand(right, depth_last=depth_last), depth_last)
        if key not in known:
            known[key] = operand(segment, problem, tiles, right=right, depth_last=depth_last)
        found.append(known[key])
    return min(found, key=lambda side: (side.copied == 0, side.cost))


def _ways(node: Node) -> Iterator[tuple[bool, dict[Group, list[int]]]]:
    """Orientations: which operand gives the rows, and an order of the axes of each group. Few products are summed in
    order: the summed axes then keep the node's order."""
    for turned in (False, True):
        groups = groups_of(node, turned=turned)
        is_ordered = products(node) <= ORDERED_PRODUCTS
        names: tuple[Group, ...] = ("row", "column") if is_ordered else ("row", "column", "depth")
        for orders in product(*(orders_of(groups, name) for name in names)):
            yield turned, dict(zip(names, orders, strict=True))


def orders_of(groups: Sequence[Group], group: Group) -> list[list[int]]:
    """Orders of the axes of a group: their own, and one with each of the other axes last."""
    axes = axes_of(groups, group)
    return [axes, *([b for b in axes if b != a] + [a] for a in reversed(axes[:-1]))]
