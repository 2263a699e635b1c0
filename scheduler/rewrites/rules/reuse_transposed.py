"""Products that are computed already with their axes in another order, and powers that are products.

x y         = permute(y x)      computed already
x^2, x^-1   = x x, 1 / x        within the error of the power
"""

from collections.abc import Iterator

from fusion_ir.building.shapes import permute
from fusion_ir.core.node import Node
from fusion_ir.ops import make
from scheduler.rewrites.matching.factors import is_product
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules.identities import number


def _same_product(node: Node, around: GraphQueries) -> Iterator[Node]:
    if not is_product(node) or node not in around.places:
        return
    kept, summed = _pairs(node, False)
    for other in around.readers(node.args[0]):
        if not is_product(other) or other.dtype != node.dtype or around.places[other] >= around.places[node]:
            continue
        for swapped in (False, True):
            operands = other.args[::-1] if swapped else other.args
            its_kept, its_summed = _pairs(other, swapped)
            if operands == node.args and set(kept) == set(its_kept) and set(summed) == set(its_summed):
                yield permute(other, [its_kept.index(pair) for pair in kept])


def _pairs(node: Node, swapped: bool) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Axes of both operands, by axes of the result and by those that are summed over."""
    sides = node.ints("a_axes"), node.ints("b_axes")
    pairs = list(zip(*(sides[::-1] if swapped else sides), strict=True))
    return pairs[: node.rank], pairs[node.rank :]


def _powers(node: Node, around: GraphQueries) -> Iterator[Node]:
    value = number(node.args[1]) if node.op == "pow" else None
    if value == 2:
        yield make("mul", [node.args[0], node.args[0]])
    elif value == -1:
        yield make("reciprocal", [node.args[0]])


TWICE = (
    Alternative("same-product", "x y = permute(y x), computed already", "reassociate", _same_product),
    Alternative("powers", "x^2 = x x, x^-1 = 1 / x", "reassociate", _powers),
)
