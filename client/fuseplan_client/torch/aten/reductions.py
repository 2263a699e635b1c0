"""Reductions and scans: sums, means, variances, extremes, norms, cumulative sums."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, axes_of, in_f32, prims, wide
from fuseplan_client.torch.wire import Refused, Tensor

Dims = int | Sequence[int] | None


def reduced(x: Tensor, op: str, dims: Dims, keepdim: bool, inner: torch.dtype, **attrs: Any) -> Tensor:
    """`op` over `dims` (all where None or empty) in the dtype `inner`; a tensor without axes counts as one element."""
    axes = axes_of(dims, x.rank)
    x = x.cast(inner)
    if not axes:
        return x.reshape((1,)).reduced(op, (0,), **attrs)
    return x.reduced(op, axes, bool(keepdim), **attrs)


def summed(op: str) -> Lowering:
    """A sum, product or mean: in f32 where the result has 16 bits, rounded once."""

    def lower(call: Call, x: Tensor, dims: Dims = None, keepdim: bool = False, dtype: Any = None, **_: Any) -> Tensor:
        if dtype is None and not x.dtype.is_floating_point and op == "mean":
            raise Refused("a mean of integers")
        return _accumulated(call, x, op, dims, keepdim)

    return lower


def _accumulated(call: Call, x: Tensor, op: str, dims: Dims, keepdim: bool) -> Tensor:
    inner = wide(call.dtype) if call.dtype.is_floating_point else torch.int64
    return reduced(x.cast(call.dtype), op, dims, keepdim, inner).cast(call.dtype)


def product(call: Call, x: Tensor, dim: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    """The product over one axis, or all."""
    return _accumulated(call, x, "prod", dim, keepdim)


def extreme(op: str) -> Lowering:
    """The largest or the smallest over axes."""

    def lower(call: Call, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
        if not x.elements:
            raise Refused("an extreme of nothing")
        return reduced(x, op, dims, keepdim, x.dtype)

    return lower


def extreme_with_index(op: str) -> Lowering:
    """(the largest or the smallest along an axis, the first of its indices)."""

    def lower(call: Call, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if not x.elements:
            raise Refused("an extreme of nothing")
        values = reduced(x, op, dim, keepdim, x.dtype)
        return values, arg(f"arg{op}", x, dim, keepdim, tuple(call.out[1].shape))

    return lower


def arg(op: str, x: Tensor, dim: int | None, keepdim: bool, shape: tuple[int, ...]) -> Tensor:
    """The first index of the largest or the smallest, i64; of the flattened tensor where dim is None."""
    if not x.elements:
        raise Refused("an extreme of nothing")
    if not x.rank:
        return x.writer.full((), 0, torch.int64)
    return x.writer.op(op, [x], shape, torch.int64, axis=None if dim is None else dim, keepdims=bool(keepdim))


def index_of_extreme(op: str) -> Lowering:
    """argmax or argmin."""

    def lower(call: Call, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        return arg(op, x, dim, keepdim, call.shape)

    return lower


def both_extremes(call: Call, x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(the smallest, the largest)."""
    if not x.elements:
        raise Refused("an extreme of nothing")
    return reduced(x, "min", dim, keepdim, x.dtype), reduced(x, "max", dim, keepdim, x.dtype)


def truth(op: str) -> Lowering:
    """Whether any, or all, are not 0; of u8 in u8, as in PyTorch."""

    def lower(call: Call, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
        return reduced(x, op, dims, keepdim, torch.bool).cast(call.dtype)

    return lower


def _whole(correction: Any) -> int:
    if correction is None:
        return 1
    if isinstance(correction, Tensor) or int(correction) != correction:
        raise Refused("a variance with a fractional correction")
    return int(correction)


def _variance(x: Tensor, dims: Dims, correction: int, keepdim: bool) -> Tensor:
    """The variance in f32 or f64; infinite or NaN where there are no more elements than the correction."""
    return reduced(x, "var", dims, keepdim, wide(x.dtype), correction=correction)


def variance(call: Call, x: Tensor, dims: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    """The sum of squared deviations over max(n - correction, 0)."""
    return _variance(x, dims, _whole(correction), keepdim).cast(call.dtype)


def deviation(call: Call, x: Tensor, dims: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    """The square root of the variance."""
    return _variance(x, dims, _whole(correction), keepdim).pointwise("sqrt").cast(call.dtype)


def _mean(x: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    return reduced(x, "mean", dims, keepdim, wide(x.dtype))


def variance_and_mean(
    call: Call, x: Tensor, dims: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """(variance, mean)."""
    var = _variance(x, dims, _whole(correction), keepdim)
    return var.cast(call.out[0].dtype), _mean(x, dims, keepdim).cast(call.out[1].dtype)


def deviation_and_mean(
    call: Call, x: Tensor, dims: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """(standard deviation, mean)."""
    std = _variance(x, dims, _whole(correction), keepdim).pointwise("sqrt")
    return std.cast(call.out[0].dtype), _mean(x, dims, keepdim).cast(call.out[1].dtype)


def norm(call: Call, x: Tensor, ord: Any = 2, dims: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """(sum of |x|^ord)^(1 / ord) over axes; the largest or the smallest |x| of infinite orders."""
    if isinstance(ord, Tensor | str):
        raise Refused("a norm of an order that is no number")
    if not x.dtype.is_floating_point:
        raise Refused("a norm of complex numbers or integers")
    x = x.cast(dtype or call.dtype)
    x = x.cast(wide(x.dtype))
    if ord in (float("inf"), float("-inf")):
        if not x.elements:
            raise Refused("an extreme of nothing")
        return reduced(x.pointwise("abs"), "max" if ord > 0 else "min", dims, keepdim, x.dtype).cast(call.dtype)
    if ord == 0:
        return reduced(x.compared("ne", 0).cast(x.dtype), "sum", dims, keepdim, x.dtype).cast(call.dtype)
    if ord == 2:
        total = reduced(x * x, "sum", dims, keepdim, x.dtype)
        return total.pointwise("sqrt").cast(call.dtype)
    powers = x.pointwise("abs")
    powers = powers if ord == 1 else powers.pointwise("pow", float(ord))
    total = reduced(powers, "sum", dims, keepdim, x.dtype)
    return (total if ord == 1 else total.pointwise("pow", 1.0 / float(ord))).cast(call.dtype)


def cumulative_sum(call: Call, x: Tensor, dim: int, **_: Any) -> Tensor:
    """Sums of x[0..i] along an axis; in f32 where the result has 16 bits, as PyTorch accumulates them."""
    inner = wide(call.dtype) if call.dtype.is_floating_point else torch.int64
    if not x.rank:
        return x.cast(call.dtype)
    x = x.cast(call.dtype).cast(inner)
    return call.writer.op("cumsum", [x], x.shape, inner, axis=dim % x.rank).cast(call.dtype)


@in_f32
def log_sum_exp(call: Call, x: Tensor, dims: Dims, keepdim: bool = False) -> Tensor:
    """log of the sum of exponentials."""
    if not x.dtype.is_floating_point:
        x = x.cast(call.dtype)
    axes = axes_of(dims, x.rank)
    if not axes:
        return x
    return x.writer.op("logsumexp", [x], call.shape, x.dtype, axes=list(axes), keepdims=bool(keepdim))


REDUCTIONS: Mapping[Any, Lowering] = {
    aten.sum.default: lambda call, x, **_: summed("sum")(call, x),
    aten.sum.dim_IntList: summed("sum"),
    aten.mean.default: lambda call, x, dtype=None: summed("mean")(call, x, dtype=dtype),
    aten.mean.dim: summed("mean"),
    aten.prod.default: product,
    aten.prod.dim_int: product,
    aten.amax.default: extreme("max"),
    aten.amin.default: extreme("min"),
    aten.max.default: extreme("max"),
    aten.min.default: extreme("min"),
    aten.max.dim: extreme_with_index("max"),
    aten.min.dim: extreme_with_index("min"),
    aten.aminmax.default: both_extremes,
    aten.argmax.default: index_of_extreme("argmax"),
    aten.argmin.default: index_of_extreme("argmin"),
    aten.any.default: truth("any"),
    aten.any.dim: truth("any"),
    aten.any.dims: truth("any"),
    aten.all.default: truth("all"),
    aten.all.dim: truth("all"),
    aten.all.dims: truth("all"),
    aten.var.correction: variance,
    aten.std.correction: deviation,
    aten.var_mean.correction: variance_and_mean,
    aten.std_mean.correction: deviation_and_mean,
    aten.linalg_vector_norm.default: norm,
    aten.cumsum.default: cumulative_sum,
    aten.logsumexp.default: log_sum_exp,
    prims.prod.default: lambda call, x, dims, **_: summed("prod")(call, x, dims),
    prims.sum.default: lambda call, x, dims, **_: summed("sum")(call, x, dims),
    prims.amax.default: lambda call, x, dims, **_: extreme("max")(call, x, dims),
    prims.amin.default: lambda call, x, dims, **_: extreme("min")(call, x, dims),
    prims.var.default: lambda call, x, dims, correction=1, **_: variance(call, x, dims, correction=correction),
}
