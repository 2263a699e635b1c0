"""What the order of its terms may do to a sum: errors of sums, products, means, variances and contractions.

A sum of n terms in another order is off by u sqrt(n - 1) sum |x|, where u is half an ulp of one in the accumulate
dtype: rounding errors of the partial sums are independent, and each is at most u times the sum of magnitudes (Higham,
"Accuracy and stability of numerical algorithms", chapter 4); products, means, variances and contractions accordingly.
Where a value repeats, the partial sums of a running total round alike again and again, and nothing cancels: by
u r (n - 1) / 8 sum |x| more, for a share r of repeated terms, which `fusion_ir.signs.SAFETY` makes the worst of a
running total.

A sum of whole numbers whose magnitudes add up to less than 1/u is exact in any order; so is such a product.
"""

from math import prod, sqrt

import numpy as np

from fusion_ir.blocks import blocks
from fusion_ir.dtype import accumulate_dtype
from fusion_ir.node import Node
from fusion_ir.node_value import evaluate_node
from fusion_ir.numerics import accumulate, dtype_of
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import contract_arrays, products
from fusion_ir.ops.reductions import by_lines, rows
from fusion_ir.signs import ulp_of_one
from fusion_ir.threads import side_by_side


def sum_with_error(node: Node, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The value of a sum or contraction, unrounded, and its error; None where it has none on these operands."""
    if kind_of(node) is OpKind.CONTRACT:
        if is_exact_contract(node, *operands):
            return None
        a, b = operands
        return contract_arrays(node, a, b), contraction_error(node, a, b)
    (x,) = operands
    wide, axes = accumulate(x), sum_axes(node)
    if is_exact_sum(node, wide):
        return None
    count = prod(x.shape[a] for a in axes)
    u = ulp_of_one(wide.dtype) / 2
    growth = u * (sqrt(count - 1) + (count - 1) / 8 * _repeated(wide))
    # The same node in its accumulate dtype: the value before it is rounded.
    base = evaluate_node(Node(node.op, node.args, node.attrs, node.shape, accumulate_dtype(node.dtype)), (x,))
    match node.op:
        case "prod":
            error = growth * np.abs(base)
        case "mean":
            error = growth * _magnitudes(node, wide) / count + u * np.abs(base)
        case "var":  # Welford and two passes: Chan, Golub and LeVeque, "Algorithms for computing the variance"
            mean_error = growth * _magnitudes(node, wide) / count
            error = (growth + u) * np.abs(base) + mean_error * np.sqrt(np.abs(base)) + np.square(mean_error)
        case _:
            error = growth * _magnitudes(node, wide)
    return base, error


def contraction_error(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide_a, wide_b = accumulate(a), accumulate(b)
    n = products(node)
    repeated = min(_repeated(wide_a), _repeated(wide_b))
    growth = (sqrt(n) + n / 8 * repeated) * ulp_of_one(wide_a.dtype) / 2
    total = contract_arrays(node, np.abs(wide_a), np.abs(wide_b), in_order=False)
    total *= total.dtype.type(growth)
    return total


def sum_axes(node: Node) -> tuple[int, ...]:
    """Axes that a sum runs over."""
    return (node.attr("axis", int),) if node.op == "cumsum" else node.ints("axes")


def _magnitudes(node: Node, wide: np.ndarray) -> np.ndarray:
    """Sums of magnitudes, as the node sums."""
    if node.op == "cumsum":
        return np.abs(wide).cumsum(axis=sum_axes(node)[0])
    return by_lines(lambda lines: np.abs(lines).sum(axis=-1), wide, sum_axes(node), wide.dtype)


def is_exact_sum(node: Node, wide: np.ndarray) -> bool:
    """Whether the sum (or product) of these numbers has the same value in every order, at every step."""
    if node.op not in ("sum", "cumsum", "prod") or not _all_whole(wide):
        return False
    if node.op == "prod":
        largest = rows(np.maximum(np.abs(wide), 1), sum_axes(node)).prod(axis=-1)
    else:
        largest = _magnitudes(node, wide)
    return bool((largest < 2 / ulp_of_one(wide.dtype)).all())


def is_exact_contract(node: Node, a: np.ndarray, b: np.ndarray) -> bool:
    most = 2 / ulp_of_one(accumulate_dtype(dtype_of(a)).numpy)
    largest = _largest_whole(a)
    if largest is None or (other := _largest_whole(b)) is None:
        return False
    if largest * other * products(node) < most:  # no sum of magnitudes is larger
        return True
    magnitudes = contract_arrays(node, np.abs(accumulate(a)), np.abs(accumulate(b)), in_order=False)
    return bool((magnitudes < most).all())


def _largest_whole(x: np.ndarray) -> float | None:
    """The largest magnitude; None where not all are whole numbers."""
    if not _all_whole(accumulate(x.flat[:64])):
        return None  # most data are found out at once

    def largest(block: tuple[slice | int, ...]) -> float | None:
        wide = accumulate(x[block])
        with np.errstate(all="ignore"):
            return float(np.abs(wide).max(initial=0)) if _all_whole(wide) else None

    found = [n for n in side_by_side(largest, blocks(x.shape)) if n is not None]
    return max(found, default=0.0) if len(found) == len(list(blocks(x.shape))) else None


def _repeated(x: np.ndarray) -> float:
    """The share of terms that repeat: by a sample, all where there are a few values only, else the commonest one's."""
    sample = x.flat[:4096]
    if sample.size <= 256:
        return 0.0
    values, counts = np.unique(sample, return_counts=True)
    if values.size <= 64:
        return 1.0
    most = counts[values != 0].max(initial=1)
    return float(most / sample.size) if most > 1 else 0.0


def _all_whole(x: np.ndarray) -> bool:
    few = x.flat[:64]  # most data are found out at once
    return bool((few == np.rint(few)).all()) and bool((x == np.rint(x)).all())
