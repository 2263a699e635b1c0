"""Views through products: what is cut off is not computed, what repeats is computed once, and axes come in any order.

slice(x y)              = slice(x) slice(y)     along axes of the result, batch axes too
permute(x y)            = a product with its axes in that order: (x y)^T = y^T x^T
repeat(x) repeat(y)     = repeat(x y)           products that share batch axes along which both repeat
x [y | z]               = [x y | x z]
[x | z] y               = x y[:k] + z y[k:]     beside each other along what is summed over
"""

from collections.abc import Iterator

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import make
from scheduler.rewrites.matching.factors import Product, expand, heart, is_product
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.matching.labelled_contract import LabelledTensor, join, settle, shaped
from scheduler.rewrites.rule import Alternative

MOST_PARTS = 4  # of something that is beside each other


def _of_factors(node: Node, product: Product) -> Iterator[Node]:
    """A product of two factors as one contraction, rounded as it was."""
    if len(product.factors) == 2 and product.acc is not None and product.rounded is not None:
        settled = settle(product.labels, product.factors, [product.axes])
        flat = [label for axis in settled.outs[0] for label in axis]
        a, b = settled.operands
        whole = join(a, b, flat, product.acc, product.rounded, flat)
        whole = LabelledTensor(build.cast(whole.node, node.dtype), whole.labels)
        yield shaped(whole, settled.outs[0], node.sizes, settled.extents)


def _view_of_product(node: Node, around: GraphQueries) -> Iterator[Node]:
    if node.op in ("slice", "permute") and node.elements and is_product(heart(node)):
        yield from _of_factors(node, expand(node, most=2))


def _product_of_repeats(node: Node, around: GraphQueries) -> Iterator[Node]:
    if is_product(node) and any(a.op in ("broadcast_in_dim", "expand") for a in node.args):
        product = expand(node, most=2)
        smaller = [f.source.elements < a.elements for f, a in zip(product.factors, node.args, strict=True)]
        if any(smaller):
            yield from _of_factors(node, product)


def _product_of_parts(node: Node, around: GraphQueries) -> Iterator[Node]:
    for side in (0, 1) if is_product(node) and node.elements else ():
        operand = node.args[side]
        if operand.op == "cat" and len(operand.args) <= MOST_PARTS and all(p.elements for p in operand.args):
            place = operand.attr("axis", int)
            axes = (node.ints("a_axes"), node.ints("b_axes"))
            root = axes[side].index(place)
            yield _parted(node, side, root, axes[1 - side][root])


def _parted(node: Node, side: int, root: int, place: int) -> Node:
    """The products with each part of operand `side`, which are parts of root axis `root`, an axis of the result or one
    that is summed over. place: of that axis in the other operand; -1 if it has none."""
    parts, other = node.args[side].args, node.args[1 - side]
    cut_axis = node.args[side].attr("axis", int)
    is_summed = root >= node.rank
    attrs = dict(node.attrs)
    if is_summed:
        attrs["out_dtype"] = node.attr("acc", DType)
    found: list[Node] = []
    start = 0
    for part in parts:
        stop = start + part.sizes[cut_axis]
        its = other
        if place >= 0:
            low = [start if a == place else 0 for a in range(other.rank)]
            high = [stop if a == place else n for a, n in enumerate(other.sizes)]
            its = build.slice_(other, low, high)
        found.append(make("contract", [part, its] if side == 0 else [its, part], attrs))
        start = stop
    if not is_summed:
        return build.cat(found, root)
    total = found[0]
    for more in found[1:]:
        total = make("add", [total, more])
    return build.cast(total, node.dtype)


THROUGH = (
    Alternative(
        "view-of-product", "slice(x y) = slice(x) slice(y), (x y)^T = y^T x^T", "reassociate", _view_of_product
    ),
    Alternative("product-of-repeats", "repeat(x) repeat(y) = repeat(x y)", "reassociate", _product_of_repeats),
    Alternative(
        "product-of-parts",
        "x [y | z] = [x y | x z], [x | z] [y ; w] = x y + z w",
        "reassociate",
        _product_of_parts,
    ),
)
