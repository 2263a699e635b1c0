"""Values with errors: beside each value, how far from it the value of another correct kernel may be
(`fusion_ir.accuracy.error_bound`).

Arrays with errors have the fields `value`, `error` and `spread`; a plain array is exact. Most data are finite, and then
a few passes over an array replace conditions on each element: each function here first finds out, by one reduction.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusion_ir.accuracy.comparison import difference
from fusion_ir.arithmetic.cache_blocks import blocks
from fusion_ir.arithmetic.conversions import round_to, ulp
from fusion_ir.arithmetic.threads import blockwise, side_by_side
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, compute_dtype

EVEN = 0.58  # standard deviations of what lies anywhere up to its bound, over the bound


def error_dtype(dtype: DType) -> np.dtype:
    """The dtype in which errors are held: f32, but f64 for f64 and for integers."""
    return compute_dtype(dtype).numpy if dtype.is_float else np.dtype(np.float64)


def erring_dtype(dtype: DType) -> np.dtype:
    """The NumPy record dtype of values with errors: fields `value`, `error` and `spread`."""
    error = error_dtype(dtype)
    return np.dtype([("value", dtype.numpy), ("error", error), ("spread", error)])


def value_of(x: np.ndarray) -> np.ndarray:
    return x["value"] if x.dtype.names else x


@dataclass(frozen=True, slots=True)
class Error:
    """The errors of an array's elements: the largest possible error of each (`bound`), and about the standard deviation
    of its error (`spread`)."""

    bound: np.ndarray
    spread: np.ndarray

    def __add__(self, other: "Error") -> "Error":
        return Error(_plus(self.bound, other.bound), _plus(self.spread, other.spread))

    def each(self, function: Callable[[np.ndarray], np.ndarray]) -> "Error":
        return Error(function(self.bound), function(self.spread))


def _plus(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return blockwise(np.add, a.dtype, a, b) if (a.shape, a.dtype) == (b.shape, b.dtype) else a + b


def error_of(x: np.ndarray) -> Error | None:
    """The errors of an array, dense, so that results computed from them are dense, too; None: the array is exact."""
    if not x.dtype.names:
        return None
    return Error(*(np.asarray(x[name], order="C") for name in ("error", "spread")))


def share(error: Error) -> np.ndarray:
    """The ratio spread / bound of each element; `EVEN` where the bound is 0 or not finite."""
    if are_finite(error.bound, error.spread):
        found = error.spread / np.maximum(error.bound, np.finfo(error.bound.dtype).smallest_subnormal)
        found += (error.bound == 0) * found.dtype.type(EVEN)
        return found
    known = (error.bound > 0) & np.isfinite(error.bound)
    return np.divide(error.spread, error.bound, out=np.full_like(error.bound, EVEN), where=known)


def are_finite(*arrays: np.ndarray) -> bool:
    """Whether all elements of the float arrays are finite: by their extremes, which are NaN where an element is."""
    return all(bool(np.isfinite([x.max(initial=0), x.min(initial=0)]).all()) for x in arrays if x.dtype.kind == "f")


def with_error(node: Node, value: np.ndarray, error: Error, into: np.ndarray | None = None) -> np.ndarray:
    """An array of the node's dtype with errors; an error of NaN, which is unknown, becomes infinite. into: the array to
    fill."""
    made = np.empty(value.shape, erring_dtype(node.dtype)) if into is None else into
    made["value"] = value
    for name, off in (("error", error.bound), ("spread", error.spread)):
        made[name] = np.where(np.isnan(off), np.inf, off) if np.isnan(off.max(initial=0)) else off
    return made


def farther(low: np.ndarray, high: np.ndarray, value: np.ndarray, dtype: DType) -> np.ndarray:
    """The distance from `value` to the farther of `low` and `high`, both rounded to `dtype`, the dtype of `value`."""
    return np.maximum(difference(round_to(low, dtype), value), difference(round_to(high, dtype), value))


def rounded(node: Node, wide: np.ndarray, error: Error, into: np.ndarray | None = None) -> np.ndarray:
    """`wide` +- `error`, rounded to the node's dtype. Infinite and NaN values get error 0, unless their error is
    infinite. into: the array to fill."""
    wide = np.asarray(wide)
    made = np.empty(wide.shape, erring_dtype(node.dtype)) if into is None else into
    bound, spread = (np.broadcast_to(e, wide.shape) for e in (error.bound, error.spread))

    def part(block: tuple[slice | int, ...]) -> None:
        _rounded(node, wide[block], Error(bound[block], spread[block]), made[block])

    side_by_side(part, blocks(wide.shape))
    return made


def _rounded(node: Node, wide: np.ndarray, error: Error, into: np.ndarray) -> None:
    value, reach = round_to(wide, node.dtype), error.bound
    if not are_finite(wide, reach):
        reach = np.where(np.isfinite(wide) | np.isinf(reach), reach, 0)
    reach = reach.astype(wide.dtype, copy=False)
    bound = farther(wide - reach, wide + reach, value, node.dtype)
    with_error(node, value, Error(bound, tipped(node, value, bound, error.spread)), into)


def tipped(node: Node, value: np.ndarray, bound: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The spread after a rounding to the node's dtype: where an error reaches a tie, at least that of a jump of an
    ulp; 0 where the bound is 0."""
    if not node.dtype.is_float or compute_dtype(node.dtype) == node.dtype:
        return spread
    jump = np.minimum(bound, ulp(value))
    jump *= bound.dtype.type(EVEN)
    most = np.maximum(spread, jump)
    if not are_finite(most):
        return np.where(bound > 0, most, 0)
    most *= bound > 0
    return most
