"""Forward error analysis: beside each value, how far from it another correct kernel's may be.

`Bounds` is a step of `fusion_ir.reference.evaluation`. The array that it makes for a node that may err has the fields
`value`, `error` and `spread`; a plain array is exact. Per element an op gets intervals value +- error, and gives one:

* a pointwise op is computed at the corners of its operands' intervals, and off by `ulps` of its row there: ops are
  monotone in each operand, so what lies between the corners has a value between theirs, roundings included. That holds
  through minima, clamps and masks; a comparison whose sides overlap may be either, and what it selects is as far off as
  its two sides are apart. Where an op is not monotone, `pointwise_bound.py` has what it may reach;
* extremes are computed at both ends; an argmax may be any index whose interval reaches the best;
* sums, products and contractions of n terms are off by `ORDER` times what their order makes, and what denormal
  products and quotients of them lose (`fusion_ir.accuracy.sum_error`);
  where operands err, also those in a given order, since each partial sum rounds elsewhere: n times half an ulp of the
  sum of magnitudes, in both. Errors of terms add up: all of them up to `FEW` terms; of more terms they come to
  `DEVIATIONS` of the standard deviations that independent errors have together, which is why each error has a `spread`
  beside it. (Errors with a sign in common are what perturbed runs are for: their patterns try these.)
* rounding to a narrower float is monotone: an error that does not reach a tie is gone, one that does is a whole ulp.

Perturbed runs cannot give such a bound, as they are samples: in all of a dozen runs the errors of a few terms may
cancel, a branch not be taken, a tie not be reached. Where their deviations are larger than this bound, they show the
effect of errors that are not independent.

Two operands that have most of their errors in common have rules of their own, as in every softmax: a row less its
maximum, where results do not depend on the number subtracted, and a row over its sum
(`fusion_ir.accuracy.common_errors`). Other errors in common count twice.

An error is infinite where anything may come out: a quotient whose divisor may be zero. An expected infinity or NaN that
no interval explains has error 0.
"""

from collections.abc import Container, Mapping, Sequence
from math import prod

import numpy as np

from fusion_ir.accuracy.common_errors import is_over_sum
from fusion_ir.accuracy.displaced_rounding import Rounding, most
from fusion_ir.accuracy.erring_value import (
    EVEN,
    Error,
    erring_dtype,
    error_dtype,
    error_of,
    farther,
    rounded,
    share,
    value_of,
    with_error,
)
from fusion_ir.accuracy.error_patterns import ulp_of_one
from fusion_ir.accuracy.partial_range import leaves_range
from fusion_ir.accuracy.perturb import summed, unperturbed
from fusion_ir.accuracy.pointwise_bound import ends_of, normalized_bound, pointwise_bound
from fusion_ir.accuracy.sum_cache import SumCache
from fusion_ir.accuracy.sum_error import added_as, of_denormal_products, sum_axes, sum_with_error
from fusion_ir.arithmetic.cache_blocks import blocks
from fusion_ir.arithmetic.conversions import accumulate, dtype_of, round_to, widen
from fusion_ir.arithmetic.threads import blockwise, side_by_side
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType, f32, f64
from fusion_ir.ops import OPS, OpKind, kind_of
from fusion_ir.ops.contract import contract_arrays, products
from fusion_ir.ops.reductions import rows
from fusion_ir.reference.node_value import evaluate_node

DEVIATIONS = 5.0  # standard deviations that a sum of many may be off by: more than one in a million is not
FEW = 8  # terms, up to which DEVIATIONS of a sum would be no less than all of their bounds
ORDER = 2.0  # times what the order of terms makes, which takes partial sums for as large as the sum of magnitudes

_SUMS = ("sum", "mean", "var", "prod", "cumsum", "scatter_sum")


class Bounds:
    """The step that computes values with errors. erring: nodes whose values have errors. own: nodes that err on their
    own. moved: nodes whose values a rewrite may round elsewhere (`fusion_ir.accuracy.displaced_rounding`). signless:
    nodes whose zeros may have either sign (`fusion_ir.accuracy.perturb`). cancelling: differences in which errors of
    the second operand do not matter (`fusion_ir.accuracy.common_errors`)."""

    def __init__(
        self,
        erring: Container[Node],
        own: Container[Node],
        moved: Mapping[Node, Rounding],
        sums: SumCache,
        signless: Container[Node] = (),
        cancelling: Container[Node] = (),
    ) -> None:
        self._erring, self._own, self._moved, self._sums = erring, own, moved, sums
        self._signless, self._cancelling = signless, cancelling

    def dtype(self, node: Node) -> np.dtype:
        """The dtype of the array that the step makes for a node: with errors where the node may err."""
        return erring_dtype(node.dtype) if node in self._erring else node.dtype.numpy

    def __call__(self, node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int) -> np.ndarray:
        if node not in self._erring:
            return unperturbed(node, as_large, operands, piece, self._sums)
        with np.errstate(all="ignore"):
            made = self._bound(node, as_large, operands, piece)
            rounding = self._moved.get(node)
            if rounding is not None:
                made = made.copy()
                off = most(as_large, tuple(map(value_of, operands)), made["value"], rounding.dtype)
                made["error"] += off
                made["spread"] += off * off.dtype.type(EVEN)
            return made

    def _bound(self, node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int) -> np.ndarray:
        """The node's value with errors, before the error of a moved rounding is added."""
        errs, kind = node in self._own, kind_of(node)
        if errs and kind is not OpKind.POINTWISE and not any(x.dtype.names for x in operands):
            found = summed(node, as_large, operands, piece, self._sums)
            if found is not None:
                return rounded(as_large, found[0], _of_any_order(as_large, operands, found[1]))
        match kind:
            case OpKind.POINTWISE if node in self._cancelling:
                return pointwise_bound(as_large, (operands[0], value_of(operands[1])), errs)
            case OpKind.POINTWISE if is_over_sum(node):
                return normalized_bound(as_large, operands[0], operands[1])
            case OpKind.POINTWISE:
                signless = [k for k in OPS[node.op].zero_signs if node.args[k] in self._signless]
                return pointwise_bound(as_large, operands, errs, signless)
            case OpKind.CONTRACT:
                return _contract(as_large, operands[0], operands[1], errs)
            case OpKind.GATHER:
                return _gather(as_large, operands[0], operands[1])
            case OpKind.REDUCTION | OpKind.SCAN:
                return _reduce(as_large, operands[0], errs)
            case OpKind.SCATTER:
                return _scatter(as_large, operands[0], operands[1], errs)
            case _:
                return _view(as_large, operands)


# Views and gathers


def _view(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    if len(operands) == 1 and node.op != "pad":  # which puts a value of its own between them
        return evaluate_node(node, operands)  # the same elements, errors and all
    value = evaluate_node(node, [value_of(x) for x in operands])
    twin = _of_errors(node)
    errors = [_errors(x, twin.dtype) for x in operands]
    parts = ([e.bound for e in errors], [e.spread for e in errors])
    return with_error(node, value, Error(*(evaluate_node(twin, part) for part in parts)))


def _of_errors(node: Node) -> Node:
    """The view or gather `node`, applied to the errors of its operands instead of their values; a pad fills in 0."""
    dtype = f64 if error_dtype(node.dtype) == np.float64 else f32
    attrs = tuple((name, Scalar.of(0, dtype) if name == "value" else held) for name, held in node.attrs)
    return Node(node.op, node.args, attrs, node.shape, dtype)


def _errors(x: np.ndarray, dtype: DType) -> Error:
    """The errors of `x`; zeros of `dtype` where it is exact."""
    zeros = np.broadcast_to(dtype.numpy.type(0), x.shape)
    return error_of(x) or Error(zeros, zeros)


def _gather(node: Node, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    value = evaluate_node(node, (value_of(x), value_of(index)))
    twin = _of_errors(node)
    error = _errors(x, twin.dtype).each(lambda e: np.array(evaluate_node(twin, (e, value_of(index)))))
    other = error_of(index)
    if other is not None and other.bound.any():  # anything of that line may be read
        axis = node.attr("axis", int)
        wide = accumulate(value_of(x))
        apart = wide.max(axis=axis, keepdims=True).astype(error.bound.dtype) - wide.min(axis=axis, keepdims=True)
        may = other.bound > 0
        if node.op == "index_select":
            may = may.reshape([-1 if a == axis else 1 for a in range(node.rank)])
        else:
            apart = apart[tuple(slice(1 if a == axis else n) for a, n in enumerate(node.sizes))]
        off = np.where(may, apart + error.bound.max(initial=0), 0)
        error = Error(np.maximum(error.bound, off), np.maximum(error.spread, EVEN * off))
    return with_error(node, value, error)


# Reductions


def _reduce(node: Node, operand: np.ndarray, errs: bool) -> np.ndarray:
    x, error = value_of(operand), error_of(operand)
    if node.op in _SUMS:
        return _sum(node, (x,), error, errs)
    value = evaluate_node(node, (x,))
    zeros = np.zeros(value.shape, error_dtype(node.dtype))
    if error is None:
        return with_error(node, value, Error(zeros, zeros))
    if node.op in ("argmax", "argmin"):
        bound = _arg_error(node, widen(x), error.bound, value)
        return with_error(node, value, Error(bound, EVEN * bound))
    ends = [evaluate_node(node, (end,)) for end in ends_of(widen(x), error.bound, None)]
    bound = farther(ends[0], ends[1], value, node.dtype)
    lines = error.each(lambda e: np.asarray(e.max(axis=node.ints("axes"), initial=0)))
    return with_error(node, value, Error(bound, bound * np.minimum(share(lines), EVEN)))


def _arg_error(node: Node, x: np.ndarray, bound: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The distance from the expected index to the farthest index that may hold the best value."""
    axis = node.attr("axis", int)
    low, high = ends_of(x if node.op == "argmax" else -x, bound, None)
    may = high >= low.max(axis=axis, keepdims=True)
    index = np.arange(x.shape[axis], dtype=np.int64).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    apart = np.abs(index - np.expand_dims(value, axis)).astype(np.float64)
    return np.where(may, apart, 0).max(axis=axis)


def _scatter(node: Node, operand: np.ndarray, places: np.ndarray, errs: bool) -> np.ndarray:
    """The sums of slices by their places. Where a place errs, any of the sums may be anything."""
    other = error_of(places)
    made = _sum(node, (value_of(operand), value_of(places)), error_of(operand), errs)
    if other is not None and other.bound.any():
        made = made.copy()
        made["error"], made["spread"] = np.inf, np.inf
    return made


def _sum(node: Node, operands: Sequence[np.ndarray], error: Error | None, errs: bool) -> np.ndarray:
    x, others = operands[0], operands[1:]
    if not node.dtype.is_float:
        value = evaluate_node(node, operands)
        zeros = np.zeros(x.shape)
        return with_error(node, value, _added(node, error or Error(zeros, zeros), others))
    found = sum_with_error(node, *operands) if errs else None
    wide = accumulate(x)
    if found is None:
        wide_node = Node(node.op, node.args, node.attrs, node.shape, dtype_of(wide))
        base, off = evaluate_node(wide_node, operands), np.zeros(node.sizes, wide.dtype)
    else:
        base, off = found
    own = _of_order(off) if found is None else _of_any_order(node, operands, off)
    return rounded(node, base, own if error is None else own + _inherited(node, wide, error, base, others))


def _of_order(error: np.ndarray) -> Error:
    """The error due to the order of terms: its bound is `ORDER` times `error`, its spread a `DEVIATIONS`-th of that."""
    by, least = error.dtype.type(ORDER / DEVIATIONS), np.finfo(error.dtype).smallest_subnormal

    def spread(block: np.ndarray) -> np.ndarray:
        return np.maximum(block * by, np.minimum(block, least))  # which does not underflow

    return Error(_times(error, ORDER), blockwise(spread, error.dtype, error))


def _of_any_order(node: Node, operands: Sequence[np.ndarray], error: np.ndarray) -> Error:
    """`_of_order` for a sum or product of these operands: infinite where partial results leave the range of floats in
    some order."""
    own = _of_order(error)
    leaving = leaves_range(node, operands, error.dtype)
    return own if leaving is None else own.each(lambda e: np.where(leaving, np.inf, e).astype(e.dtype))


def _inherited(node: Node, x: np.ndarray, error: Error, base: np.ndarray, others: Sequence[np.ndarray]) -> Error:
    """The error of a sum, mean, product or variance that comes from the errors of its terms `x`. base: its value.
    others: the values of its other operands."""
    if node.op in ("sum", "cumsum", "scatter_sum"):
        return _added(node, error, others)
    axes = sum_axes(node)
    count = x.dtype.type(prod(x.shape[a] for a in axes))
    match node.op:
        case "mean":
            return _added(node, error).each(lambda e: e / count)
        case "prod":
            size = np.abs(x)
            return error.each(lambda e: rows(size + e, axes).prod(axis=-1) - np.abs(base))
        case "var":
            divisor = x.dtype.type(max(count - node.attr("correction", int), 0))
            centred = np.abs(x - x.mean(axis=axes, keepdims=True))
            first = _added(node, error.each(lambda e: 2 * centred * e))
            second = error.each(lambda e: rows(np.square(e), axes).sum(axis=-1))
            return (first + second).each(lambda e: e / divisor)
        case _:
            raise AssertionError(f"{node.op} is no sum")


def _added(node: Node, error: Error, others: Sequence[np.ndarray] = ()) -> Error:
    """The error of a sum of terms with independent errors: all of their bounds, or `DEVIATIONS` standard deviations of
    the sum where that is less. others: the values of the sum's other operands."""
    most = error.spread.max(initial=0, where=np.isfinite(error.spread)) or error.spread.dtype.type(1)
    squares = np.square(error.spread / most)  # which do not underflow
    total, squares = (added_as(node, e, *others) for e in (error.bound, squares))
    return _many(total, np.sqrt(squares) * most)


def _many(total: np.ndarray, spread: np.ndarray) -> Error:
    """The sum of many independent errors. total: the sum of their bounds. spread: that of the sum."""
    return Error(np.minimum(total, spread * spread.dtype.type(DEVIATIONS)), spread)


def _contract(node: Node, a: np.ndarray, b: np.ndarray, errs: bool) -> np.ndarray:
    base = contract_arrays(node, value_of(a), value_of(b))
    dtype = f64 if error_dtype(node.dtype) == np.float64 else f32
    twin = Node(node.op, node.args, tuple((k, dtype if k == "acc" else v) for k, v in node.attrs), node.shape, dtype)
    inherited = _contracted(twin, a, b)
    if not node.dtype.is_float:
        return with_error(node, round_to(base, node.dtype), inherited)
    off = np.zeros(base.shape, base.dtype)
    if errs:
        found = sum_with_error(node, value_of(a), value_of(b))
        if found is not None:
            return rounded(node, base, _of_any_order(node, (value_of(a), value_of(b)), found[1]) + inherited)
    else:  # in a given order, but each partial sum rounds elsewhere
        wide_a, wide_b = accumulate(value_of(a)), accumulate(value_of(b))
        sizes = contract_arrays(node, np.abs(wide_a), np.abs(wide_b), in_order=False)
        most = sizes * base.dtype.type(products(node) * ulp_of_one(base.dtype) / ORDER)
        denormal = of_denormal_products(node, wide_a, wide_b, sizes)
        off = np.where(inherited.bound > 0, most if denormal is None else most + denormal, off)
    return rounded(node, base, _of_order(off) + inherited)


def _contracted(node: Node, a: np.ndarray, b: np.ndarray) -> Error:
    """The error of a contraction that comes from the errors of its operands; `node` sums in the dtype of errors."""
    few, dtype = products(node) <= FEW, node.dtype.numpy
    (x, e, scale_x), (y, f, scale_y) = (_scaled(z, dtype) for z in (a, b))
    total, squares = np.zeros(node.sizes, dtype), np.zeros(node.sizes, dtype)
    if e is not None:
        reach = y if f is None else y + f.bound
        squares += contract_arrays(node, np.square(e.spread), np.square(reach), in_order=False)
        total += contract_arrays(node, e.bound, reach, in_order=False) if few else 0
    if f is not None:
        squares += contract_arrays(node, np.square(x), np.square(f.spread), in_order=False)
        total += contract_arrays(node, x, f.bound, in_order=False) if few else 0
    one, other = scale_x * scale_y, dtype.type(1)
    if one < np.finfo(dtype).smallest_normal:  # a product that underflows, or loses digits
        one, other = scale_x, scale_y
    spread = np.sqrt(squares) * one * other
    return Error(total * one * other, spread) if few else _many(np.full_like(spread, np.inf), spread)


def _scaled(x: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, Error | None, np.floating]:
    """Magnitudes, errors (None: none) and the largest finite one of both, by which they were divided, so that their
    squares do not underflow."""

    def magnitude(block: np.ndarray) -> np.ndarray:
        return np.abs(block.astype(dtype))

    size, error = blockwise(magnitude, dtype, value_of(x)), error_of(x)
    largest = [0.0 if error is None else _largest_finite(error.bound), _largest_finite(size)]
    scale = dtype.type(max(largest) or 1.0)

    def ratio(block: np.ndarray) -> np.ndarray:
        return (block / scale).astype(dtype, copy=False)

    def divided(y: np.ndarray) -> np.ndarray:
        return blockwise(ratio, dtype, y)

    if error is None or not error.bound.any():
        return divided(size), None, scale
    return divided(size), error.each(divided), scale


def _largest_finite(x: np.ndarray) -> float:
    """The largest finite element; 0 where there is none."""

    def of(block: tuple[slice | int, ...]) -> float:
        return float(x[block].max(initial=0, where=np.isfinite(x[block])))

    return max(side_by_side(of, blocks(x.shape)), default=0.0)


def _times(x: np.ndarray, factor: float) -> np.ndarray:
    by = x.dtype.type(factor)

    def product(block: np.ndarray) -> np.ndarray:
        return block * by

    return blockwise(product, x.dtype, x)
