"""Rules for nodes that need not be computed, or are computed already.

    x 1, x / 1, x - 0, x + -0, x^1  = x             not x + 0, which makes 0 of -0
    x 0                             = 0             of integers: floats may be infinite
    where(c, x, x), max(x, x)       = x
    slice([x | y])                  = slice(x)      where it is of x alone
    f(y, x)                         = f(x, y)       where that is computed already, f commutative

All are exact and leave less to do, so they replace the node. Constants count where they are part of the graph: no rule
looks at what an input holds.
"""

from math import copysign

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.ops import OPS, OpKind, kind_of
from fusion_ir.ops.views import SELECTIONS
from scheduler.rewrites.matching.strided_slices import of_slice
from scheduler.rewrites.rule import Rule

_SAME = ("maximum", "minimum", "logical_and", "logical_or", "bitwise_and", "bitwise_or")


def number(node: Node) -> float | None:
    """The number that all elements of a node are by the graph; None where there is none."""
    while node.op in SELECTIONS:
        node = node.args[0]
    return float(node.attr("value", Scalar).value) if node.op == "full" and node.dtype.kind != "bool" else None


def _neutral(node: Node) -> Node | None:
    match node.op, node.args:
        case "mul", (x, y):
            for one, other in ((x, y), (y, x)):
                if number(other) == 1:
                    return one
                if number(other) == 0 and not node.dtype.is_float:
                    return other
            return None
        case "add", (x, y):
            return x if _adds_nothing(y) else y if _adds_nothing(x) else None
        case "sub", (x, y):
            value = number(y)
            return x if value == 0 and (copysign(1, value) > 0 or not x.dtype.is_float) else None
        case (("div" | "pow"), (x, y)):
            return x if number(y) == 1 else None
        case "where", (_, x, y):
            return x if x is y else None
        case op, (x, y) if op in _SAME:
            return x if x is y else None
        case _:
            return None


def _adds_nothing(node: Node) -> bool:
    value = number(node)
    return value == 0 and (copysign(1, value) < 0 or not node.dtype.is_float)


def _slice_of_parts(node: Node) -> Node | None:
    if node.op != "slice" or node.args[0].op != "cat" or not node.elements:
        return None
    cat, window = node.args[0], of_slice(node)
    axis = cat.attr("axis", int)
    start, stop, step = window[axis]
    first = 0
    for part in cat.args:
        last = first + part.sizes[axis]
        if first <= start and start + (node.sizes[axis] - 1) * step < last:
            own = (start - first, min(stop, last) - first, step)
            given = [own if a == axis else w for a, w in enumerate(window)]
            low, high, by = zip(*given, strict=True)
            return build.slice_(part, low, high, by)
        first = last
    return None


IDENTITIES: tuple[Rule, ...] = (
    Rule(
        "neutral-element",
        "x 1 = x / 1 = x - 0 = x + -0 = x^1 = where(c, x, x) = x; x 0 = 0 of integers",
        "exact",
        _neutral,
    ),
    Rule("slice-of-parts", "slice([x | y]) = slice(x) where it is of x alone", "exact", _slice_of_parts),
)


def commuting() -> Rule:
    """The rule f(y, x) = f(x, y) for one pass over one graph: it remembers the nodes that it saw."""
    seen: dict[tuple[str, frozenset[Node]], Node] = {}

    def computed(node: Node) -> Node | None:
        if kind_of(node) is not OpKind.POINTWISE or not OPS[node.op].commutative:
            return None
        first = seen.setdefault((node.op, frozenset(node.args)), node)
        return None if first is node else first

    return Rule("commuting", "f(y, x) = f(x, y), computed already", "exact", computed)
