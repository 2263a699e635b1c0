"""Reductions drop their axes; scans keep them. Sums run in the accumulate dtype, in any order."""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from fusion_ir.arithmetic.cache_blocks import BLOCK_ELEMENTS, blocks
from fusion_ir.arithmetic.conversions import accumulate, round_to, widen
from fusion_ir.arithmetic.threads import side_by_side
from fusion_ir.core.extent import Shape
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, i64
from fusion_ir.ops.row import Op, OpKind, RuleError
from fusion_ir.ops.rules import Args, Attrs, attr, booleans, check_axes, floats, ints, numbers, to_bool

LEAST_LINES = 16  # of a block: neighbours in memory, where they lie across the axis that is summed


def _sum_dtype(args: Args, attrs: Attrs) -> DType:
    """Floats keep their dtype; integers and bool give i64."""
    return args[0].dtype if args[0].dtype.is_float else i64


def _index_dtype(args: Args, attrs: Attrs) -> DType:
    numbers(args, attrs)
    return i64


def _axes(attrs: Attrs) -> tuple[int, ...]:
    return ints(attrs, "axes") if "axes" in attrs else (attr(attrs, "axis", int),)


def _reduced(args: Args, attrs: Attrs) -> Shape:
    axes = _axes(attrs)
    if not axes:
        raise RuleError("axes must name at least one axis")
    check_axes(axes, args[0].rank)
    return tuple(n for axis, n in enumerate(args[0].shape) if axis not in axes)


def _reduced_not_empty(args: Args, attrs: Attrs) -> Shape:
    shape = _reduced(args, attrs)
    for axis in _axes(attrs):
        if args[0].sizes[axis] == 0:
            raise RuleError(f"axis {axis} has extent 0, and this reduction has no value for nothing")
    return shape


def _scanned(args: Args, attrs: Attrs) -> Shape:
    check_axes(_axes(attrs), args[0].rank)
    return args[0].shape


def rows(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """`x` with the reduced axes merged into one, the last."""
    kept = [a for a in range(x.ndim) if a not in axes]
    moved = x.transpose((*kept, *axes))
    return moved.reshape(*moved.shape[: len(kept)], prod(x.shape[a] for a in axes))


def by_lines(
    function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, axes: Sequence[int], dtype: np.dtype
) -> np.ndarray:
    """`function` of `rows(x, axes)`, one number per row, as `dtype`. It gets contiguous rows in the accumulate dtype:
    NumPy then sums by pairs, with equal bits for any layout of `x`. Rows of large tensors are computed block by block,
    so that they stay in cache, and side by side."""

    def of(part: np.ndarray) -> np.ndarray:
        reduced = range(part.ndim - len(axes), part.ndim)
        return np.asarray(function(np.ascontiguousarray(rows(accumulate(part), reduced)))).astype(dtype, copy=False)

    kept = [a for a in range(x.ndim) if a not in axes]
    moved = x.transpose((*kept, *axes))
    if x.size <= BLOCK_ELEMENTS or not kept:
        return of(moved)
    result = np.empty(moved.shape[: len(kept)], dtype)

    def put(block: tuple[slice | int, ...]) -> None:
        result[block] = of(moved[block])

    side_by_side(put, blocks(result.shape, max(LEAST_LINES, BLOCK_ELEMENTS * result.size // x.size)))
    return result


def _sum(node: Node, x: np.ndarray) -> np.ndarray:
    return by_lines(lambda lines: round_to(lines.sum(axis=-1), node.dtype), x, node.ints("axes"), node.dtype.numpy)


def _prod(node: Node, x: np.ndarray) -> np.ndarray:
    return by_lines(lambda lines: round_to(lines.prod(axis=-1), node.dtype), x, node.ints("axes"), node.dtype.numpy)


def _mean(node: Node, x: np.ndarray) -> np.ndarray:
    def mean(lines: np.ndarray) -> np.ndarray:
        return round_to(np.asarray(lines.sum(axis=-1) / lines.dtype.type(lines.shape[-1])), node.dtype)

    return by_lines(mean, x, node.ints("axes"), node.dtype.numpy)


def _var(node: Node, x: np.ndarray) -> np.ndarray:
    """Two passes. The divisor is max(n - correction, 0)."""

    def var(lines: np.ndarray) -> np.ndarray:
        count = lines.dtype.type(lines.shape[-1])
        centred = lines - np.asarray(lines.sum(axis=-1) / count)[..., None]
        divisor = lines.dtype.type(max(lines.shape[-1] - node.attr("correction", int), 0))
        return round_to(np.asarray(np.square(centred).sum(axis=-1) / divisor), node.dtype)

    return by_lines(var, x, node.ints("axes"), node.dtype.numpy)


def _extreme(function: Callable[..., np.ndarray], preferred_sign: bool) -> Callable[[Node, np.ndarray], np.ndarray]:
    """max or min: NaN wins, and among zeros the one with sign bit `preferred_sign`."""

    def reference(node: Node, x: np.ndarray) -> np.ndarray:
        wide = rows(widen(x), node.ints("axes"))
        best = np.asarray(function(wide, axis=-1))
        if node.dtype.is_float and (best == 0).any():
            preferred = ((wide == 0) & (np.signbit(wide) == preferred_sign)).any(axis=-1)
            zero = np.where(preferred == preferred_sign, np.float32(-0.0), np.float32(0.0)).astype(wide.dtype)
            best = np.where(best == 0, zero, best)
        return round_to(best, node.dtype)

    return reference


def _arg(function: Callable[..., np.ndarray]) -> Callable[[Node, np.ndarray], np.ndarray]:
    """argmax or argmin: the first NaN, else the lowest index of the best value; zeros of either sign are equal."""

    def reference(node: Node, x: np.ndarray) -> np.ndarray:
        return np.asarray(function(widen(x), axis=node.attr("axis", int))).astype(np.int64)

    return reference


def _any(node: Node, x: np.ndarray) -> np.ndarray:
    return np.asarray(x.any(axis=node.ints("axes")))


def _all(node: Node, x: np.ndarray) -> np.ndarray:
    return np.asarray(x.all(axis=node.ints("axes")))


def _cumsum(node: Node, x: np.ndarray) -> np.ndarray:
    return round_to(np.add.accumulate(accumulate(x), axis=node.attr("axis", int)), node.dtype)


def _reduction(name: str, doc: str, dtype: Callable[[Args, Attrs], DType], reference: Callable[..., np.ndarray], *,
               cost: float = 1.0, empty: bool = True) -> Op:  # fmt: skip
    """A reduction over `axes`. `empty`: it has a value where a reduced axis has extent 0."""
    shape = _reduced if empty else _reduced_not_empty
    return Op(name, OpKind.REDUCTION, doc, 1, dtype, shape, reference, attrs={"axes": "axes"}, cost=cost)


REDUCTIONS: tuple[Op, ...] = (
    _reduction("sum", "sum; integers and bool give i64, wrapping; empty 0", _sum_dtype, _sum),
    _reduction("prod", "product; integers and bool give i64, wrapping; empty 1", _sum_dtype, _prod),
    _reduction("mean", "sum / n; empty NaN", floats, _mean),
    _reduction("max", "largest; NaN wins, +0 > -0", numbers, _extreme(np.max, False), empty=False),
    _reduction("min", "smallest; NaN wins, -0 < +0", numbers, _extreme(np.min, True), empty=False),
    _reduction("any", "true where one is; empty false", to_bool(booleans), _any),
    _reduction("all", "true where all are; empty true", to_bool(booleans), _all),
    Op("var", OpKind.REDUCTION, "sum of (x - mean)^2 / max(n - correction, 0); empty NaN", 1, floats, _reduced, _var,
       attrs={"axes": "axes", "correction": "int"}, cost=4),
    Op("argmax", OpKind.REDUCTION, "lowest index of the largest, or of the first NaN", 1, _index_dtype,
       _reduced_not_empty, _arg(np.argmax), attrs={"axis": "axis"}, cost=2),
    Op("argmin", OpKind.REDUCTION, "lowest index of the smallest, or of the first NaN", 1, _index_dtype,
       _reduced_not_empty, _arg(np.argmin), attrs={"axis": "axis"}, cost=2),
    Op("cumsum", OpKind.SCAN, "sums of x[0..i], left to right, each rounded; dtype as sum", 1, _sum_dtype, _scanned,
       _cumsum, attrs={"axis": "axis"}),
)  # fmt: skip
