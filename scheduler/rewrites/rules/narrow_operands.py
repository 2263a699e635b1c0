"""Products of operands that were widened first are products of the narrow ones, where sums run as wide.

    contract(cast(x): f32, permute(cast(y))): f32    ->    contract(x, permute(y)): f32        x, y: bf16

A product of two values of 16 bits is one of f32, so the terms are equal. Sums of few products keep the order that is
promised for the wider type: such contractions stay as they are.
"""

from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, accumulate_dtype
from fusion_ir.ops import make
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from fusion_ir.ops.views import SELECTIONS
from scheduler.rewrites.rule import Rule


def _uncast(x: Node) -> Node | None:
    """The node's values in the dtype that they were widened from, seen through views; None where they were not."""
    if x.op == "cast" and x.args[0].dtype.is_float and x.dtype.holds(x.args[0].dtype):
        return x.args[0]
    below = _uncast(x.args[0]) if x.op in SELECTIONS else None
    return None if below is None else make(x.op, [below], dict(x.attrs))


def _narrowed(node: Node) -> Node | None:
    if node.op != "contract" or products(node) <= ORDERED_PRODUCTS:
        return None
    a, b = map(_uncast, node.args)
    if a is None or b is None or a.dtype != b.dtype or accumulate_dtype(a.dtype) != node.attr("acc", DType):
        return None
    return make("contract", [a, b], dict(node.attrs))


# Of class `reassociate`, since tensor cores, which take narrow operands, add several products at once.
NARROW = Rule("narrow-operands", "cast(x) cast(y) = x y, summed as wide", "reassociate", _narrowed)
