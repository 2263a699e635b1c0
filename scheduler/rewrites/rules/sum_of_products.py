"""Sums of products that are no contraction yet.

    sum over k of x[m, k] y[k, n], each repeated to [m, k, n]  =  x y

Where the products are exact in the dtype of the multiplication, readers of graphs make contractions of them. Elsewhere
a contraction rounds them less: each product is added as it is.
"""

from collections.abc import Iterator

from fusion_ir.core.node import Node
from fusion_ir.dtype import accumulate_dtype
from scheduler.rewrites.matching.axis_labels import Labels
from scheduler.rewrites.matching.factors import expand, is_product
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.matching.labelled_contract import join, settle, shaped
from scheduler.rewrites.rule import Alternative


def _find(node: Node, around: GraphQueries) -> Iterator[Node]:
    if node.op != "sum" or not node.dtype.is_float or not node.args[0].elements:
        return
    terms = node.args[0]
    if terms.op == "cast" and terms.args[0].dtype.is_float:
        terms = terms.args[0]
    acc = accumulate_dtype(node.dtype)
    if terms.op != "mul" or accumulate_dtype(terms.dtype) != acc or any(is_product(a) for a in terms.args):
        return
    labels = Labels()
    axes = tuple(labels.axis(n) for n in terms.sizes)
    summed = tuple(label for a in node.ints("axes") for label in axes[a])
    out = tuple(axis for a, axis in enumerate(axes) if a not in node.ints("axes"))
    factors = [expand(a, labels, axes, summed=summed, most=1).factors[0] for a in terms.args]
    settled = settle(labels, factors, [out])
    a, b = settled.operands
    flat = [label for axis in settled.outs[0] for label in axis]
    whole = {*a.labels, *b.labels} & set(flat)
    # Rows of one tensor times rows of another are no matrix product: some axis must be of one of them alone.
    if not summed or (whole <= set(a.labels) and whole <= set(b.labels)):
        return
    yield shaped(join(a, b, flat, acc, node.dtype, flat), settled.outs[0], node.sizes, settled.extents)


SUMS = (
    Alternative(
        "sum-of-products",
        "sum over k of x[m, k] y[k, n] = x y",
        "reassociate",
        _find,
        "each x y is not rounded any more",
    ),
)
