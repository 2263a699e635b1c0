"""Sums and products whose partial results leave the range of floats in some orders of their terms, not in others.

    2^100 * 2^100 * 2^-100  in f32:  inf in this order, 2^100 in another

Anything may come out of them then: a value, an infinity, or NaN.
"""

from collections.abc import Sequence
from math import log2

import numpy as np

from fusion_ir.accuracy.sum_error import added_as, most_terms, sum_axes
from fusion_ir.arithmetic.cache_blocks import blocks
from fusion_ir.arithmetic.conversions import accumulate
from fusion_ir.arithmetic.threads import side_by_side
from fusion_ir.core.node import Node
from fusion_ir.dtype import f64
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import contract_arrays, products
from fusion_ir.ops.reductions import rows

MARGIN = 1e-3  # of the range's end, that roundings may move a partial result by
SCALE = 2.0**-64  # of numbers that have no wider type: what is lost below counts for nothing beside what overflows


def leaves_range(node: Node, operands: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray | None:
    """Mask bool[sizes of the node] of the elements whose partial results leave the range of floats in some orders, not
    in others; None: there are none. dtype: of partial results, f32 or f64."""
    wide = [accumulate(x) for x in operands]
    most = float(np.finfo(dtype).max)
    if kind_of(node) is OpKind.CONTRACT:
        largest = [_largest(x) for x in wide]
        if _is_small(largest[0], largest[1] * products(node), most):
            return None
        return _contraction(node, wide[0], wide[1], dtype)
    if node.op == "prod":
        return _product(wide[0], sum_axes(node), dtype)
    count = most_terms(node, *operands)
    largest = _largest(wide[0])
    if _is_small(largest, max(largest, 1.0) * count if node.op == "var" else float(count), most):
        return None
    return _sum(node, wide, dtype)


def _largest(x: np.ndarray) -> float:
    """The largest magnitude; NaN where an element is."""

    def of(block: tuple[slice | int, ...]) -> float:
        return float(np.maximum(x[block].max(initial=0), -x[block].min(initial=0)))

    return float(np.max(side_by_side(of, blocks(x.shape)), initial=0))


def _is_small(one: float, other: float, most: float) -> bool:
    """Whether the product of two magnitudes is below half of `most`, so that no sum of that size leaves the range."""
    return np.isfinite(one) and np.isfinite(other) and (one == 0 or other < most / 2 / one)


def _widened(x: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, float]:
    """`x` in f64, scaled so that its sums do not overflow, and the largest number of `dtype` on that scale."""
    most = float(np.finfo(dtype).max)
    if dtype == np.float64:
        return x.astype(np.float64) * SCALE, most * SCALE
    return x.astype(np.float64), most


def _sum(node: Node, operands: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    wide, most = _widened(operands[0], dtype)

    def added(terms: np.ndarray) -> np.ndarray:
        return added_as(node, terms, *operands[1:])

    above, below = added(np.maximum(wide, 0)), added(np.maximum(-wide, 0))
    found = _of_signs(above, below, most)
    if node.op == "var":  # sums of squares, about the mean or not
        found |= added(np.square(wide)) >= most * (1 - MARGIN)
    return found


def _contraction(node: Node, a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    (wide_a, most), (wide_b, _) = _widened(a, dtype), (b.astype(np.float64), 0.0)
    twin = Node(node.op, node.args, tuple((k, f64 if k == "acc" else v) for k, v in node.attrs), node.shape, f64)
    size, total = contract_arrays(twin, np.abs(wide_a), np.abs(wide_b)), contract_arrays(twin, wide_a, wide_b)
    known = np.isfinite(size)  # an infinite term gives an infinity in every order, beside finite ones in range
    size, total = np.where(known, size, 0), np.where(known, total, 0)
    return _of_signs((size + total) / 2, (size - total) / 2, most)


def _of_signs(above: np.ndarray, below: np.ndarray, most: float) -> np.ndarray:
    """`leaves_range` by the sums of positive and of negative terms, `above` and `below`: both leave the range, or one
    of them while the whole sum does not. With an infinite term the sum leaves it in every order."""
    over, under = (part >= most * (1 - MARGIN) for part in (above, below))
    infinite = np.isinf(above), np.isinf(below)
    finite = ~(infinite[0] | infinite[1])
    whole = np.abs(np.where(finite, above, 0) - np.where(finite, below, 0))
    return (over & under & ~(infinite[0] & infinite[1])) | ((over ^ under) & finite & (whole <= most * (1 + MARGIN)))


def _product(x: np.ndarray, axes: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    """`leaves_range` of a product, by the logarithms of its factors above and below 1."""
    info = np.finfo(dtype)
    most, least, last = log2(info.max), log2(info.smallest_normal), log2(info.smallest_subnormal)
    terms = rows(np.abs(x).astype(np.float64), axes)
    zero, infinite = (terms == 0).any(axis=-1), np.isinf(terms).any(axis=-1)
    logs = np.log2(np.where((terms > 0) & np.isfinite(terms), terms, 1.0))
    up, down = np.maximum(logs, 0).sum(axis=-1), np.minimum(logs, 0).sum(axis=-1)
    over, under = up >= most - MARGIN, down <= least + MARGIN
    if not (over | under).any():
        return None
    always_infinite = ~zero & (down > last + 1) & (infinite | (up + down >= most + MARGIN))
    always_zero = zero & ~over & ~infinite
    always_nan = (zero & infinite) | np.isnan(terms).any(axis=-1)
    return (over | under) & ~(always_infinite | always_zero | always_nan)
