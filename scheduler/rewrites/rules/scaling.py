"""Scales on their way through products.

    (x s) y = (x y) s                   s is one number, or one for each row: of the result instead of the operand
    (x s) a = x (s a)                   a and s constant, s one number, or one for each axis that a has too
    (x a) s = x (a s)                   likewise; one number also where x or a, which needs be no constant, is smaller

Where a scale is in f32 and the operand that it would be moved to has 16 bits, there would be one rounding more: only
powers of two, which lose nothing, are moved. (MIGraphX folds scales into the constant operands of dot from either
side.)

A scale is there to carry a range: 1e-4 times weights of 1e-2 is a number of four bits in f16, and 1e4 times what is 10
is infinite. So an operand in f16, or in 8 bits, is scaled by numbers between 1/16 and 16 that stand in the graph; by
others, whose values no rule looks at, only where other values are allowed.
"""

from collections.abc import Iterator
from functools import partial
from math import frexp

from fusion_ir import building as build
from fusion_ir.building.operands import promote
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType, f8e4m3, f8e5m2, f16
from fusion_ir.ops import make
from scheduler.rewrites.matching.factors import Factor, Product, expand, heart, is_product
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.matching.labelled_contract import LabelledTensor, arranged, join, settle, shaped
from scheduler.rewrites.rule import Alternative

NARROW_RANGE = (f16, f8e4m3, f8e5m2)  # dtypes whose ends tensors of ordinary size come near
NEAR = 16.0  # by which a scale may move an operand in them


def _split_factor(factor: Factor, product: Product) -> Iterator[tuple[Factor, Factor]]:
    """Pairs whose product, element by element, the factor is: a tensor with all of its axes, and a scale that lacks
    some or is one number."""
    labels, scaled = product.labels, _multiplied(factor.source)
    for x, s in (scaled.args, scaled.args[::-1]) if scaled.op == "mul" else ():
        found = [expand(n, labels, factor.axes, factor.window, most=1).factors[0] for n in (x, s)]
        every, few = (labels.all_of(f.axes) for f in found)
        if few < every == labels.all_of(factor.axes):
            yield found[0], found[1]


def _multiplied(node: Node) -> Node:
    """The `mul` in a wider dtype that is rounded to the node, where it multiplies values of the node's dtype; else the
    node. A number multiplies 16 bits unrounded, so that x 0.3 is cast(cast(x) 0.3)."""
    wide = node.args[0] if node.op == "cast" and node.dtype.is_float else node
    narrow = (a.args[0].dtype for a in wide.args if a.op == "cast")
    return wide if wide.op == "mul" and wide.dtype.holds(node.dtype) and node.dtype in narrow else node


def _out_of_operand(node: Node, around: GraphQueries, far: bool = False) -> Iterator[Node]:
    """A scale of one operand moved to the result, or to the other operand. far: only forms that may leave the range of
    narrow floats; else only the others."""
    product = expand(node, most=2) if is_product(node) else None
    if product is None or len(product.factors) != 2 or product.acc is None:
        return
    for i, factor in enumerate(product.factors):
        other = product.factors[1 - i]
        for x, s in _split_factor(factor, product):
            settled = settle(product.labels, [x, s, other], [product.axes])
            a, scale, b = settled.operands
            flat = [label for axis in settled.outs[0] for label in axis]
            if set(scale.labels) <= set(flat) and not far:
                dtype = promote((product.acc, scale.node.dtype))
                whole = join(a, b, flat, product.acc, product.acc, flat)
                repeated = build.cast(arranged(scale, whole.labels, settled.extents), dtype)
                scaled = build.cast(make("mul", [build.cast(whole.node, dtype), repeated]), node.dtype)
                yield shaped(LabelledTensor(scaled, whole.labels), settled.outs[0], node.sizes, settled.extents)
            if around.is_constant(other.source) and around.is_constant(s.source):
                folded = _scaled(b, scale, factor.dtype, settled.extents, far)
                if folded is not None:
                    whole = join(a, folded, flat, product.acc, node.dtype, flat)
                    yield shaped(whole, settled.outs[0], node.sizes, settled.extents)


def _into_operand(node: Node, around: GraphQueries, far: bool = False) -> Iterator[Node]:
    """A scale of the result moved to an operand. far: see `_out_of_operand`."""
    multiplied = _multiplied(node)
    if multiplied.op != "mul" or not node.dtype.is_float or not any(is_product(heart(a)) for a in multiplied.args):
        return
    for term, s in (multiplied.args, multiplied.args[::-1]):
        if not is_product(heart(term)):
            continue
        product = expand(term, most=2)
        if len(product.factors) != 2 or product.acc is None or node.dtype.bytes > product.acc.bytes:
            continue
        (scale,) = expand(s, product.labels, product.axes, most=1).factors
        settled = settle(product.labels, [*product.factors, scale], [product.axes])
        *sides, by = settled.operands
        flat = [label for axis in settled.outs[0] for label in axis]
        for i, side in enumerate(sides):
            is_constant = around.is_constant(product.factors[i].source) and around.is_constant(scale.source)
            if not is_constant and (by.labels or side.node.elements >= node.elements):
                continue
            scaled = _scaled(side, by, node.dtype, settled.extents, far)
            if scaled is not None:
                pair = (scaled, sides[1]) if i == 0 else (sides[0], scaled)
                whole = join(*pair, flat, product.acc, node.dtype, flat)
                yield shaped(whole, settled.outs[0], node.sizes, settled.extents)


def _scaled(
    x: LabelledTensor, scale: LabelledTensor, given: DType, extents: dict[int, int], far: bool
) -> LabelledTensor | None:
    """An operand times a scale, in the operand's dtype. given: the dtype to which the graph rounds the scale's product.
    None where the scale has axes that the operand lacks, where there would be one rounding more, or where the result
    may leave the dtype's range; with `far`, where it may not."""
    dtype = x.node.dtype
    if not set(scale.labels) <= set(x.labels) or far != (dtype in NARROW_RANGE and not _is_near_one(scale.node)):
        return None
    if not dtype.holds(given) and not _is_power_of_two(scale.node):
        return None
    wide = promote((dtype, scale.node.dtype))
    repeated = build.cast(arranged(scale, x.labels, extents), wide)
    return LabelledTensor(build.cast(make("mul", [build.cast(x.node, wide), repeated]), dtype), x.labels)


def _is_power_of_two(node: Node) -> bool:
    value = _number(node)
    return value is not None and 2.0**-8 <= abs(value) <= 2.0**8 and abs(frexp(value)[0]) == 0.5


def _is_near_one(node: Node) -> bool:
    value = _number(node)
    return value is not None and 1 / NEAR <= abs(value) <= NEAR


def _number(node: Node) -> float | None:
    """The float that stands in the graph for all elements of a node."""
    full = heart(node)
    return full.attr("value", Scalar).value if full.op == "full" and full.dtype.is_float else None


SCALING = (
    Alternative(
        "scale-out",
        "(x s) y = (x y) s or x (s y)",
        "reassociate",
        _out_of_operand,
        "x s is not rounded any more, x y is scaled in f32; s y is rounded instead: in f16 for numbers s in [1/16, 16]",
    ),
    Alternative(
        "scale-in",
        "(x y) s = x (y s)",
        "reassociate",
        _into_operand,
        "y s is rounded instead of x y: in f16 for numbers s between 1/16 and 16",
    ),
    Alternative(
        "scale-out-far",
        "(x s) y = x (s y), s y in f16 or 8 bits",
        "approximate",
        partial(_out_of_operand, far=True),
        "s may take y out of the dtype's range, to infinity or to few bits",
    ),
    Alternative(
        "scale-in-far",
        "(x y) s = x (y s), y s in f16 or 8 bits",
        "approximate",
        partial(_into_operand, far=True),
        "s may take y out of the dtype's range, to infinity or to few bits",
    ),
)
