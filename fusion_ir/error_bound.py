"""Forward error analysis: beside each value, how far from it another correct kernel's may be.

`Bounds` is a step of `fusion_ir.evaluation`. What it makes of a node that may err has two fields per element, `value`
and `error`; a plain array is exact. Per element an op sees intervals value +- error, and gives one:

* a pointwise op is computed at the corners of its operands' intervals, and off by `ulps` of its row there: ops are
  monotone in each operand, so what lies between the corners has a value between theirs, roundings included. That holds
  through minima, clamps and masks; a comparison whose sides overlap may be either, and what it selects is as far off as
  its two sides are apart. Where an op is not monotone, `_beyond_corners` has what it may reach;
* extremes are computed at both ends; an argmax may be any index whose interval reaches the best;
* sums, products and contractions of n terms are off by `ORDER` times what their order makes (`fusion_ir.sum_error`);
  where operands err, also those in a given order, since each partial sum rounds elsewhere: n times half an ulp of the
  sum of magnitudes, in both. Errors of terms add up: all of them up to `FEW` terms; of more terms they come to
  `DEVIATIONS` of the standard deviations that independent errors have together, which is why each error has a `spread`
  beside it. (Errors with a sign in common are what perturbed runs are for: their patterns try these.)
* rounding to a narrower float is monotone: an error that does not reach a tie is gone, one that does is a whole ulp.

This is what perturbed runs cannot say of an element, as they are samples: in all of a dozen runs the errors of a few
terms may cancel, a branch not taken, a tie not reached. Where they are larger than this bound, they show what errors do
that are not independent.

Two operands that have most of their errors in common have rules of their own, as in every softmax: a row less its
maximum, of which what follows depends on the row alone, and a row over its sum. Other errors in common count twice.

An error is infinite where anything may come out: a quotient whose divisor may be zero. An expected infinity or NaN that
no interval explains has error 0.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import pi, prod

import numpy as np

from fusion_ir.comparison import difference
from fusion_ir.dtype import DType, compute_dtype, f32, f64
from fusion_ir.moved import Rounding, most
from fusion_ir.node import Node
from fusion_ir.node_value import blocks, evaluate_node, pointwise
from fusion_ir.numerics import accumulate, dtype_of, round_to, ulp, widen
from fusion_ir.ops import OPS, OpKind, kind_of
from fusion_ir.ops.contract import contract_arrays, products
from fusion_ir.ops.reductions import rows
from fusion_ir.partial_range import leaves_range
from fusion_ir.perturb import summed, unperturbed
from fusion_ir.scalar import Scalar
from fusion_ir.shared_sums import SharedSums
from fusion_ir.signs import ulp_of_one
from fusion_ir.sum_error import sum_axes, sum_with_error

EVEN = 0.58  # standard deviations of what lies anywhere up to its bound, over the bound
DEVIATIONS = 5.0  # standard deviations that a sum of many may be off by: more than one in a million is not
FEW = 8  # terms, up to which DEVIATIONS of a sum would be no less than all of their bounds
ORDER = 2.0  # times what the order of terms makes, which takes partial sums for as large as the sum of magnitudes

# Where ops have values: intervals end there.
DOMAINS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10"), (0.0, np.inf)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-1.0, 1.0)),
    "log1p": (-1.0, np.inf),
    "acosh": (1.0, np.inf),
}

_SUMS = ("sum", "mean", "var", "prod", "cumsum")


def error_dtype(dtype: DType) -> np.dtype:
    """In which errors are held: f32, but f64 for f64 and for integers."""
    return compute_dtype(dtype).numpy if dtype.is_float else np.dtype(np.float64)


def erring_dtype(dtype: DType) -> np.dtype:
    """Of values with errors."""
    error = error_dtype(dtype)
    return np.dtype([("value", dtype.numpy), ("error", error), ("spread", error)])


def value_of(x: np.ndarray) -> np.ndarray:
    return x["value"] if x.dtype.names else x


@dataclass(frozen=True, slots=True)
class Error:
    """Of each element: what it may be off by, and about the standard deviation of that."""

    bound: np.ndarray
    spread: np.ndarray

    def __add__(self, other: "Error") -> "Error":
        return Error(self.bound + other.bound, self.spread + other.spread)

    def each(self, function: Callable[[np.ndarray], np.ndarray]) -> "Error":
        return Error(function(self.bound), function(self.spread))


def error_of(x: np.ndarray) -> Error | None:
    """None: exact."""
    return Error(x["error"], x["spread"]) if x.dtype.names else None


class Bounds:
    """The step. erring: nodes whose values have errors. own: those that err on their own. moved: whose values are
    rounded elsewhere (`fusion_ir.moved`)."""

    def __init__(
        self, erring: Container[Node], own: Container[Node], moved: Mapping[Node, Rounding], sums: SharedSums
    ) -> None:
        self._erring, self._own, self._moved, self._sums = erring, own, moved, sums

    def dtype(self, node: Node) -> np.dtype:
        """Of what the step makes of a node."""
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
        """Without what is moved."""
        errs, kind = node in self._own, kind_of(node)
        if errs and kind is not OpKind.POINTWISE and not any(x.dtype.names for x in operands):
            found = summed(node, as_large, operands, piece, self._sums)
            if found is not None:
                return _rounded(as_large, found[0], _of_any_order(as_large, operands, found[1]))
        match kind:
            case OpKind.POINTWISE if node.op == "sub" and _is_of_rows(node, "max"):
                return _pointwise(as_large, (operands[0], value_of(operands[1])), errs)
            case OpKind.POINTWISE if node.op == "div" and _is_of_rows(node, "sum"):
                return _normalized(as_large, operands[0], operands[1])
            case OpKind.POINTWISE:
                return _pointwise(as_large, operands, errs)
            case OpKind.CONTRACT:
                return _contract(as_large, operands[0], operands[1], errs)
            case OpKind.GATHER:
                return _gather(as_large, operands[0], operands[1])
            case OpKind.REDUCTION | OpKind.SCAN:
                return _reduce(as_large, operands[0], errs)
            case _:
                return _view(as_large, operands)


def _is_of_rows(node: Node, op: str) -> bool:
    """Whether the second operand is the maximum or the sum of rows of the first."""
    first, source = node.args
    while kind_of(source) is OpKind.VIEW and len(source.args) == 1:
        (source,) = source.args
    return first.dtype.is_float and source.op == op and source.args[0] is first


def _with_error(node: Node, value: np.ndarray, error: Error) -> np.ndarray:
    made = np.empty(value.shape, erring_dtype(node.dtype))
    made["value"] = value
    made["error"], made["spread"] = (np.where(np.isnan(e), np.inf, e) for e in (error.bound, error.spread))
    return made


def _rounded(node: Node, wide: np.ndarray, error: Error) -> np.ndarray:
    """A value +- error that is rounded to the node's dtype; infinities and NaN stay, but where anything may be."""
    wide = np.asarray(wide)
    value = round_to(wide, node.dtype)
    known = np.isfinite(wide) | np.isinf(error.bound)
    reach = np.where(known, error.bound, 0).astype(wide.dtype, copy=False)
    ends = (round_to(np.asarray(end), node.dtype) for end in (wide - reach, wide + reach))
    bound = np.maximum(*(difference(end, value) for end in ends))
    return _with_error(
        node, value, Error(bound, _tipped(node, value, bound, np.broadcast_to(error.spread, bound.shape)))
    )


def _tipped(node: Node, value: np.ndarray, bound: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The spread behind a rounding to the node's dtype: where an error reaches a tie, that of a jump."""
    if not node.dtype.is_float or compute_dtype(node.dtype) == node.dtype:
        return spread
    return np.where(bound > 0, np.maximum(spread, np.minimum(bound, ulp(value)) * bound.dtype.type(EVEN)), 0)


# Pointwise


def _pointwise(node: Node, operands: Sequence[np.ndarray], errs: bool) -> np.ndarray:
    """In blocks, and once along axes on which all operands repeat."""
    repeats = [n > 1 and all(x.strides[axis] == 0 for x in operands) for axis, n in enumerate(node.sizes)]
    once = tuple(slice(1) if r else slice(None) for r in repeats)
    small = [x[once] for x in operands]
    result = np.empty(small[0].shape, erring_dtype(node.dtype))
    for block in blocks(result.shape):
        result[block] = _pointwise_block(node, [np.asarray(x[block]) for x in small], errs)
    return np.broadcast_to(result, node.sizes)


def _pointwise_block(node: Node, operands: Sequence[np.ndarray], errs: bool) -> np.ndarray:
    wide = compute_dtype(node.dtype)
    reference = OPS[node.op].reference

    def compute(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return round_to(np.asarray(reference(node, *arrays)), wide)

    values = [widen(np.ascontiguousarray(value_of(x))) for x in operands]
    middle = compute(values)
    value = round_to(middle, node.dtype)
    inherited = np.zeros(value.shape, error_dtype(node.dtype))
    own = inherited.copy()
    erring = [None if e is None or not e.bound.any() else e for e in map(error_of, operands)]
    found = [e for e in erring if e is not None]
    ends = [(x,) if e is None else _ends(x, e.bound, DOMAINS.get(node.op)) for x, e in zip(values, erring, strict=True)]
    for corner in product(*ends):
        there = compute(corner) if found else middle
        if found:
            np.maximum(inherited, difference(round_to(there, node.dtype), value), out=inherited)
        for moved in _within_ulps(there, OPS[node.op].ulps) if errs else ():
            np.maximum(own, difference(round_to(moved, node.dtype), value), out=own)
    if found:
        _beyond_corners(node, values, [inherited.dtype.type(0) if e is None else e.bound for e in erring], inherited)
    share = inherited.dtype.type(0)
    for e in found:
        share = np.maximum(share, _share(e))
    if len(found) == 2:  # by what each of them does
        first = next(k for k, e in enumerate(erring) if e is not None)
        alone = np.zeros_like(inherited)
        for end in ends[first]:
            there = compute([end if k == first else x for k, x in enumerate(values)])
            np.maximum(alone, difference(round_to(there, node.dtype), value), out=alone)
        part = np.divide(alone, inherited, out=np.ones_like(alone), where=(inherited > alone) & np.isfinite(inherited))
        share = part * _share(found[0]) + (1 - part) * _share(found[1])
    bound = np.maximum(inherited, own)
    more = np.where(own > inherited, own - inherited, 0)
    spread = np.where(np.isfinite(bound), inherited * share + EVEN * more, bound)
    return _with_error(node, value, Error(bound, _tipped(node, value, bound, spread.astype(bound.dtype))))


def _share(error: Error) -> np.ndarray:
    """Of the bound that is spread."""
    known = (error.bound > 0) & np.isfinite(error.bound)
    return np.divide(error.spread, error.bound, out=np.full_like(error.bound, EVEN), where=known)


def _ends(x: np.ndarray, error: np.ndarray, domain: tuple[float, float] | None) -> tuple[np.ndarray, np.ndarray]:
    """The ends of x +- error, in x's dtype."""
    if x.dtype == np.bool_:
        return x & (error == 0), x | (error > 0)
    if x.dtype.kind != "f":
        info = np.iinfo(x.dtype)
        low, high = (np.clip(x + sign * error, float(info.min), float(info.max)) for sign in (-1, 1))
        return (*(np.where(error == 0, x, round_to(end, dtype_of(x))) for end in (low, high)),)  # type: ignore[return-value]
    off, infinity = error.astype(x.dtype), x.dtype.type(np.inf)
    low, high = (np.where(np.isinf(off), sign * infinity, x + sign * off) for sign in (-1, 1))
    if domain is not None:
        inside = (x >= domain[0]) & (x <= domain[1])
        low = np.where(inside, np.maximum(low, x.dtype.type(domain[0])), low)
        high = np.where(inside, np.minimum(high, x.dtype.type(domain[1])), high)
    return low, high


def _within_ulps(x: np.ndarray, ulps: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of what a kernel may make of a value that the reference rounded; 0 and infinities stay."""
    off = np.maximum(np.abs(x), np.finfo(x.dtype).smallest_normal) * x.dtype.type((ulps + 0.5) * ulp_of_one(x.dtype))
    off = np.asarray(np.where((x == 0) | ~np.isfinite(x), np.float32(0), off), x.dtype)
    return x - off, x + off


def _beyond_corners(node: Node, values: Sequence[np.ndarray], errors: Sequence[np.ndarray], error: np.ndarray) -> None:
    """Raises `error` where an op reaches more between the corners than at them.

    Even functions that grow with |x| reach their least at 0, which is no farther than what they do at the far end.
    """
    x, e = values[0], errors[0]
    match node.op:
        case "sin" | "cos":
            error[e > 1] = 2
        case "tan":
            error[np.floor((x - e) / pi + 0.5) != np.floor((x + e) / pi + 0.5)] = np.inf
        case "reciprocal":
            error[(e > 0) & (np.abs(x) <= e)] = np.inf
        case "div" | "floordiv" if x.dtype.kind == "f":
            error[(errors[1] > 0) & (np.abs(values[1]) <= errors[1])] = np.inf
        case "fmod" | "remainder" if x.dtype.kind == "f":
            turns = [np.floor(a / b) for a in (x - e, x + e) for b in (values[1] - errors[1], values[1] + errors[1])]
            turned = np.max(turns, axis=0) != np.min(turns, axis=0)
            np.maximum(error, np.where(turned, np.abs(values[1]) + errors[1], 0), out=error)
        case "eq" | "ne":
            reach = np.add(*errors)
            apart = np.abs(np.subtract(*(v.astype(reach.dtype) for v in values)))
            error[(reach > 0) & (apart <= reach)] = 1
        case "cast" if node.dtype.kind == "bool":
            error[(e > 0) & (np.abs(x.astype(e.dtype)) <= e)] = 1
        case _:
            pass


def _normalized(node: Node, x: np.ndarray, total: np.ndarray) -> np.ndarray:
    """x over the sum of its row: of p = x / S an error in x makes (1 - p) / S, and one in the rest of the row p / S."""
    error, whole = error_of(x), error_of(total)
    size = widen(value_of(total))
    p = pointwise(node, (value_of(x), value_of(total)), compute_dtype(node.dtype))
    zero = Error(*(np.zeros(p.shape, p.dtype),) * 2)
    error, whole = error or zero, whole or zero
    rest = np.sqrt(np.maximum(np.square(whole.bound) - np.square(error.bound), 0)) + ulp(size)
    left = np.abs(1 - p)
    bound = (left * error.bound + np.abs(p) * rest) / np.abs(size) + ulp(p)
    spread = (left * error.spread + np.abs(p) * rest * _share(whole)) / np.abs(size) + ulp(p) * p.dtype.type(EVEN)
    if (value_of(x) >= 0).all():  # shares of a whole, whatever it is
        bound = np.minimum(bound, np.maximum(p, left) + ulp(p))
    else:
        bound = np.where(rest >= np.abs(size), np.inf, bound)  # the sum may be 0
    known = error.bound + whole.bound > 0
    return _rounded(node, p, Error(np.where(known, bound, 0), np.where(known, np.minimum(spread, bound), 0)))


# Views and gathers


def _view(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    value = evaluate_node(node, [value_of(x) for x in operands])
    twin = _of_errors(node)
    errors = [_errors(x, twin.dtype) for x in operands]
    parts = ([e.bound for e in errors], [e.spread for e in errors])
    return _with_error(node, value, Error(*(evaluate_node(twin, part) for part in parts)))


def _of_errors(node: Node) -> Node:
    """A view or gather of the errors of what `node` reads."""
    dtype = f64 if error_dtype(node.dtype) == np.float64 else f32
    attrs = tuple((name, Scalar.of(0, dtype) if name == "value" else held) for name, held in node.attrs)
    return Node(node.op, node.args, attrs, node.shape, dtype)


def _errors(x: np.ndarray, dtype: DType) -> Error:
    """Zeros where it is exact."""
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
    return _with_error(node, value, error)


# Reductions


def _reduce(node: Node, operand: np.ndarray, errs: bool) -> np.ndarray:
    x, error = value_of(operand), error_of(operand)
    if node.op in _SUMS:
        return _sum(node, x, error, errs)
    value = evaluate_node(node, (x,))
    zeros = np.zeros(value.shape, error_dtype(node.dtype))
    if error is None:
        return _with_error(node, value, Error(zeros, zeros))
    if node.op in ("argmax", "argmin"):
        bound = _arg_error(node, widen(x), error.bound, value)
        return _with_error(node, value, Error(bound, EVEN * bound))
    ends = [evaluate_node(node, (end,)) for end in _ends(widen(x), error.bound, None)]
    bound = np.maximum(*(difference(round_to(end, node.dtype), value) for end in ends))
    lines = error.each(lambda e: np.asarray(e.max(axis=node.ints("axes"), initial=0)))
    return _with_error(node, value, Error(bound, bound * np.minimum(_share(lines), EVEN)))


def _arg_error(node: Node, x: np.ndarray, bound: np.ndarray, value: np.ndarray) -> np.ndarray:
    """How far the farthest index is that may hold the best value."""
    axis = node.attr("axis", int)
    low, high = _ends(x if node.op == "argmax" else -x, bound, None)
    may = high >= low.max(axis=axis, keepdims=True)
    index = np.arange(x.shape[axis], dtype=np.int64).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    apart = np.abs(index - np.expand_dims(value, axis)).astype(np.float64)
    return np.where(may, apart, 0).max(axis=axis)


def _sum(node: Node, x: np.ndarray, error: Error | None, errs: bool) -> np.ndarray:
    axes = sum_axes(node)
    if not node.dtype.is_float:
        value = evaluate_node(node, (x,))
        zeros = np.zeros(x.shape)
        return _with_error(node, value, _added(node, error or Error(zeros, zeros), axes))
    found = sum_with_error(node, x) if errs else None
    wide = accumulate(x)
    if found is None:
        wide_node = Node(node.op, node.args, node.attrs, node.shape, dtype_of(wide))
        base, off = evaluate_node(wide_node, (x,)), np.zeros(node.sizes, wide.dtype)
    else:
        base, off = found
    own = _of_order(off) if found is None else _of_any_order(node, (x,), off)
    return _rounded(node, base, own if error is None else own + _inherited(node, wide, error, base, axes))


def _of_order(error: np.ndarray) -> Error:
    """What the order of terms makes."""
    return Error(error * error.dtype.type(ORDER), error * error.dtype.type(ORDER / DEVIATIONS))


def _of_any_order(node: Node, operands: Sequence[np.ndarray], error: np.ndarray) -> Error:
    """The same, of a sum or product of these: anything where partial results leave the range in some order."""
    own = _of_order(error)
    leaving = leaves_range(node, operands, error.dtype)
    return own if leaving is None else own.each(lambda e: np.where(leaving, np.inf, e).astype(e.dtype))


def _inherited(node: Node, x: np.ndarray, error: Error, base: np.ndarray, axes: tuple[int, ...]) -> Error:
    """What the errors of its terms do to a sum."""
    count = x.dtype.type(prod(x.shape[a] for a in axes))
    match node.op:
        case "mean":
            return _added(node, error, axes).each(lambda e: e / count)
        case "prod":
            size = np.abs(x)
            return error.each(lambda e: rows(size + e, axes).prod(axis=-1) - np.abs(base))
        case "var":
            divisor = x.dtype.type(max(count - node.attr("correction", int), 0))
            centred = np.abs(x - x.mean(axis=axes, keepdims=True))
            first = _added(node, error.each(lambda e: 2 * centred * e), axes)
            second = error.each(lambda e: rows(np.square(e), axes).sum(axis=-1))
            return (first + second).each(lambda e: e / divisor)
        case _:
            return _added(node, error, axes)


def _added(node: Node, error: Error, axes: tuple[int, ...]) -> Error:
    """Errors of terms together: all of few, and so many standard deviations of many."""
    most = error.spread.max(initial=0, where=np.isfinite(error.spread)) or error.spread.dtype.type(1)
    squares = np.square(error.spread / most)  # which do not underflow
    if node.op == "cumsum":
        total, squares = (np.cumsum(e, axis=axes[0]) for e in (error.bound, squares))
    else:
        total, squares = (rows(e, axes).sum(axis=-1) for e in (error.bound, squares))
    return _many(total, np.sqrt(squares) * most)


def _many(total: np.ndarray, spread: np.ndarray) -> Error:
    """The sum of many independent errors. total: of their bounds."""
    return Error(np.minimum(total, spread * spread.dtype.type(DEVIATIONS)), spread)


def _contract(node: Node, a: np.ndarray, b: np.ndarray, errs: bool) -> np.ndarray:
    base = contract_arrays(node, value_of(a), value_of(b))
    dtype = f64 if error_dtype(node.dtype) == np.float64 else f32
    twin = Node(node.op, node.args, tuple((k, dtype if k == "acc" else v) for k, v in node.attrs), node.shape, dtype)
    inherited = _contracted(twin, a, b)
    if not node.dtype.is_float:
        return _with_error(node, round_to(base, node.dtype), inherited)
    off = np.zeros(base.shape, base.dtype)
    if errs:
        found = sum_with_error(node, value_of(a), value_of(b))
        if found is not None:
            return _rounded(node, base, _of_any_order(node, (value_of(a), value_of(b)), found[1]) + inherited)
    else:  # in a given order, but each partial sum rounds elsewhere
        sizes = contract_arrays(node, *(np.abs(accumulate(value_of(x))) for x in (a, b)))
        most = sizes * base.dtype.type(products(node) * ulp_of_one(base.dtype) / ORDER)
        off = np.where(inherited.bound > 0, most, off)
    return _rounded(node, base, _of_order(off) + inherited)


def _contracted(node: Node, a: np.ndarray, b: np.ndarray) -> Error:
    """What the errors of its terms do to a contraction; `node` sums in the dtype of errors."""
    few, dtype = products(node) <= FEW, node.dtype.numpy
    (x, e, scale_x), (y, f, scale_y) = (_scaled(z, dtype) for z in (a, b))
    total, squares = np.zeros(node.sizes, dtype), np.zeros(node.sizes, dtype)
    if e is not None:
        reach = y if f is None else y + f.bound
        squares += contract_arrays(node, np.square(e.spread), np.square(reach))
        total += contract_arrays(node, e.bound, reach) if few else 0
    if f is not None:
        squares += contract_arrays(node, np.square(x), np.square(f.spread))
        total += contract_arrays(node, x, f.bound) if few else 0
    spread = np.sqrt(squares) * (scale_x * scale_y)
    return Error(total * (scale_x * scale_y), spread) if few else _many(np.full_like(spread, np.inf), spread)


def _scaled(x: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, Error | None, np.floating]:
    """Magnitudes, errors (None: none) and the largest finite one of both, by which they were divided, so that their
    squares do not underflow."""
    size, error = np.abs(value_of(x).astype(dtype)), error_of(x)
    found = [size, *([] if error is None else [error.bound])]
    scale = dtype.type(max(float(y.max(initial=0, where=np.isfinite(y))) for y in found) or 1.0)
    off = None if error is None or not error.bound.any() else error.each(lambda e: (e / scale).astype(dtype))
    return size / scale, off, scale
