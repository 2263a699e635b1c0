"""Errors that the order of terms may make in sums, products, means, variances and contractions.

A sum of n terms in another order is off by u sqrt(n - 1) sum |x|, where u is half an ulp of one in the accumulate
dtype: rounding errors of the partial sums are independent, and each is at most u times the sum of magnitudes (Higham,
"Accuracy and stability of numerical algorithms", chapter 4); products, means, variances and contractions accordingly.
Where a value repeats, the partial sums of a running total round alike again and again, and nothing cancels: by
u r (n - 1) / 8 sum |x| more, for a share r of repeated terms, which `fusion_ir.accuracy.error_patterns.SAFETY` makes
the worst of a running total.

Results that are denormal are rounded to multiples of the least number, by up to half of it, whatever their size: each
product of a contraction, alone or as it is added (n halves in all: products that are alike round alike, so that these
are no independent errors, and a deviation would be too small); the quotient of a mean; the squares of a variance and
its quotient (about a whole least number, as the squares' halves are divided by n again). Sums are not: below the least
normal number they are exact. What is made of zeros alone is zero.

A sum of whole numbers whose magnitudes add up to less than 1/u is exact in any order; so is such a product.
"""

from collections.abc import Sequence
from math import prod, sqrt

import numpy as np

from fusion_ir.accuracy.error_patterns import ulp_of_one
from fusion_ir.arithmetic.cache_blocks import blocks
from fusion_ir.arithmetic.conversions import accumulate, dtype_of
from fusion_ir.arithmetic.threads import side_by_side
from fusion_ir.core.node import Node
from fusion_ir.dtype import accumulate_dtype
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import contract_arrays, products
from fusion_ir.ops.reductions import by_lines, rows
from fusion_ir.ops.scattering import added_at, places_of
from fusion_ir.reference.node_value import evaluate_node


def sum_with_error(node: Node, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The value of a sum or contraction, unrounded, and its error; None where it has none on these operands."""
    if kind_of(node) is OpKind.CONTRACT:
        if is_exact_contract(node, *operands):
            return None
        a, b = operands
        return contract_arrays(node, a, b), contraction_error(node, a, b)
    if is_exact_sum(node, *operands):
        return None
    wide, count = accumulate(operands[0]), most_terms(node, *operands)
    u = ulp_of_one(wide.dtype) / 2
    growth = u * (sqrt(max(count - 1, 0)) + max(count - 1, 0) / 8 * _repeated(wide))
    # The node evaluated in its accumulate dtype: the value before it is rounded.
    base = evaluate_node(Node(node.op, node.args, node.attrs, node.shape, accumulate_dtype(node.dtype)), operands)
    match node.op:
        case "prod":
            error = growth * np.abs(base)
        case "mean":
            total = _magnitudes(node, wide, operands)
            error = growth * total / count + u * np.abs(base) + _least_where(total > 0, wide.dtype)
        case "var":  # Welford and two passes: Chan, Golub and LeVeque, "Algorithms for computing the variance"
            mean_error = growth * _magnitudes(node, wide, operands) / count
            error = (growth + u) * np.abs(base) + mean_error * np.sqrt(np.abs(base)) + np.square(mean_error)
            error += _of_denormal_squares(node, wide, base)
        case _:
            error = growth * _magnitudes(node, wide, operands)
    return base, error


def contraction_error(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide_a, wide_b = accumulate(a), accumulate(b)
    n = products(node)
    repeated = min(_repeated(wide_a), _repeated(wide_b))
    growth = (sqrt(n) + n / 8 * repeated) * ulp_of_one(wide_a.dtype) / 2
    total = contract_arrays(node, np.abs(wide_a), np.abs(wide_b), in_order=False)
    off = of_denormal_products(node, wide_a, wide_b, total)
    total *= total.dtype.type(growth)
    if off is not None:
        total += off
    return total


def of_denormal_products(node: Node, a: np.ndarray, b: np.ndarray, total: np.ndarray) -> np.ndarray | None:
    """The error that denormal products make in a contraction; None where it counts nowhere. a, b: operands in the dtype
    of `total`. total: the contraction of their magnitudes."""
    info, n = np.finfo(total.dtype), products(node)
    limit = total.dtype.type(n * float(info.smallest_normal))  # from which on n halves are less than half an ulp

    def small(block: tuple[slice | int, ...]) -> bool:
        return bool((total[block] < limit).any())

    if not any(side_by_side(small, blocks(total.shape))):
        return None
    if _least(a) * _least(b) >= float(info.smallest_normal):  # of f64: rounded, and no less than that all the same
        return None
    count = contract_arrays(node, (a != 0).astype(a.dtype), (b != 0).astype(b.dtype), in_order=False)
    return np.where(total < limit, np.ceil(count / 2) * info.smallest_subnormal, 0).astype(total.dtype, copy=False)


def _least(x: np.ndarray) -> float:
    """The least magnitude that is not 0; infinity where all are 0."""

    def of(block: tuple[slice | int, ...]) -> float:
        size = np.abs(x[block])
        return float(size.min(initial=np.inf, where=size > 0))

    return min(side_by_side(of, blocks(x.shape)), default=np.inf)


def _of_denormal_squares(node: Node, wide: np.ndarray, base: np.ndarray) -> np.ndarray:
    """The error that denormal squares make in a variance `base`: one least number where the variance is denormal, else
    0; 0, too, where even the square of the whole range of terms is less than a quarter of the least number, so that all
    squares round to zero."""
    info = np.finfo(wide.dtype)
    denormal = base < info.smallest_normal
    if not denormal.any():
        return np.zeros_like(base)
    lines = rows(wide, sum_axes(node))
    within = lines.max(axis=-1) - lines.min(axis=-1)
    return _least_where(denormal & (within > sqrt(info.smallest_subnormal) / 2), wide.dtype)


def _least_where(some: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The least positive number of a float dtype where `some` holds, else 0."""
    return some.astype(dtype) * np.finfo(dtype).smallest_subnormal


def sum_axes(node: Node) -> tuple[int, ...]:
    """Axes that a sum runs over."""
    return (node.attr("axis", int),) if node.op == "cumsum" else node.ints("axes")


def most_terms(node: Node, *operands: np.ndarray) -> int:
    """The number of terms of the longest sum of a reduction, scan or scatter."""
    if node.op == "scatter_sum":
        extent = node.attr("extent", int)
        return int(places_of(operands[1], extent).counts(extent).max(initial=0))
    return prod(operands[0].shape[a] for a in sum_axes(node))


def added_as(node: Node, terms: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Sums of `terms`, in the shape of the first operand, as a sum, scan or scatter adds up that operand. others: the
    values of the other operands."""
    if node.op == "scatter_sum":
        return added_at(terms, others[0], node.attr("axis", int), node.attr("extent", int))
    axes = sum_axes(node)
    return np.cumsum(terms, axis=axes[0]) if node.op == "cumsum" else rows(terms, axes).sum(axis=-1)


def _magnitudes(node: Node, wide: np.ndarray, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Sums of the magnitudes of `wide`, the first operand, as the node sums."""
    if node.op in ("cumsum", "scatter_sum"):
        return added_as(node, np.abs(wide), *operands[1:])
    return by_lines(lambda lines: np.abs(lines).sum(axis=-1), wide, sum_axes(node), wide.dtype)


def is_exact_sum(node: Node, *operands: np.ndarray) -> bool:
    """Whether the sum (or product) of these numbers is exact in every order, at every step."""
    wide = accumulate(operands[0])
    if node.op not in ("sum", "cumsum", "prod", "scatter_sum") or not _all_whole(wide):
        return False
    if node.op == "prod":
        largest = rows(np.maximum(np.abs(wide), 1), sum_axes(node)).prod(axis=-1)
    else:
        largest = _magnitudes(node, wide, operands)
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
    """The share of terms that repeat, by a sample: 1 where it has few distinct values, else that of the commonest one.
    0 for few terms."""
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
