"""Ops that choose between values: where, clamps, masks, thresholds; and casts and copies."""

from collections.abc import Mapping
from typing import Any

import torch

from fuseplan_client.torch.aten.call import KIND, Call, Lowering, aten, in_f32, prims, promoted, wide
from fuseplan_client.torch.wire import Number, Refused, Tensor


def where(call: Call, condition: Tensor, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y, both in the result's dtype."""
    return call.writer.where(condition.cast(torch.bool), x, y, call.dtype).broadcast(call.shape)


def masked_fill(call: Call, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value` where the mask holds, else x."""
    return call.writer.where(mask, value, x, x.dtype).broadcast(call.shape)


def clamp(call: Call, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """minimum(maximum(x, low), high); a bound that is None does not count."""
    given = x.cast(call.dtype)
    low = None if low is None else call.writer.value(low, call.dtype)
    high = None if high is None else call.writer.value(high, call.dtype)
    if low is not None and high is not None:
        return given.pointwise("clamp", low, high).broadcast(call.shape)
    if low is not None:
        given = given.pointwise("maximum", low)
    elif high is not None:
        given = given.pointwise("minimum", high)
    return given.broadcast(call.shape)


def clamp_min(call: Call, x: Tensor, low: Any) -> Tensor:
    """The larger of x and `low`."""
    return clamp(call, x, low)


def clamp_max(call: Call, x: Tensor, high: Any) -> Tensor:
    """The smaller of x and `high`."""
    return clamp(call, x, None, high)


def threshold_backward(call: Call, grad: Tensor, x: Tensor, threshold: Number) -> Tensor:
    """0 where x <= threshold, else the gradient."""
    dtype, _ = promoted([grad, x], KIND.DEFAULT)
    kept = x.cast(dtype).compared("le", threshold)
    return call.writer.where(kept, 0, grad, call.dtype).broadcast(call.shape)


def threshold(call: Call, x: Tensor, bound: Number, value: Number) -> Tensor:
    """`value` where x <= bound, else x."""
    return call.writer.where(x.compared("le", bound), value, x, x.dtype)


def heaviside(call: Call, x: Tensor, values: Tensor) -> Tensor:
    """0 below 0, 1 above it, `values` at it."""
    zero = x.compared("eq", 0)
    return call.writer.where(zero, values, x.compared("gt", 0).cast(x.dtype), call.dtype).broadcast(call.shape)


def to_copy(call: Call, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """x in the result's dtype. Raises Refused for f8e4m3: beyond its range PyTorch gives NaN, the wire the largest."""
    if call.dtype == torch.float8_e4m3fn != x.dtype:
        raise Refused("a cast to f8e4m3")
    if x.dtype.is_floating_point and not call.dtype.is_floating_point and call.dtype != torch.bool:
        return _to_integer(x, call.dtype)
    return x.cast(call.dtype)


def _to_integer(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Float to integer by way of i64, which wraps in narrow types as PyTorch's conversion does on a CPU."""
    return x.cast(torch.int64).cast(dtype) if dtype.itemsize < 4 else x.cast(dtype)


def same(call: Call, x: Tensor, **_: Any) -> Tensor:
    """x; layouts are none of the wire's business."""
    return x


def copy(call: Call, x: Tensor, source: Tensor, *_: Any) -> Tensor:
    """`source` in x's dtype and shape."""
    return source.cast(x.dtype).broadcast(x.shape)


def fill(call: Call, x: Tensor, value: Any) -> Tensor:
    """`value` everywhere."""
    return call.writer.value(value, call.dtype).broadcast(call.shape)


@in_f32
def lerp(call: Call, start: Tensor, end: Tensor, weight: Any) -> Tensor:
    """start + weight (end - start), from the nearer end."""
    return start.pointwise("lerp", end, weight).broadcast(call.shape)


@in_f32
def addcmul(call: Call, x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
    """x + value a b."""
    dtype = wide(call.dtype)
    x, a, b = x.cast(dtype), a.cast(dtype), b.cast(dtype)
    scaled = a if not isinstance(value, Tensor) and value == 1 else a * value
    return (x + scaled * b).broadcast(call.shape)


@in_f32
def addcdiv(call: Call, x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
    """x + value a / b."""
    dtype = wide(call.dtype)
    x, a, b = x.cast(dtype), a.cast(dtype), b.cast(dtype)
    scaled = a if not isinstance(value, Tensor) and value == 1 else a * value
    return (x + scaled / b).broadcast(call.shape)


def view_dtype(call: Call, x: Tensor, dtype: torch.dtype) -> Tensor:
    """x itself where the dtype is its own. Raises Refused for bits read as another dtype."""
    if x.dtype != dtype:
        raise Refused("bits of one dtype read as another")
    return x


SELECTION: Mapping[Any, Lowering] = {
    aten.where.self: where,
    aten.where.ScalarSelf: where,
    aten.where.ScalarOther: where,
    aten.where.Scalar: where,
    prims.where.default: where,
    aten.masked_fill.Scalar: masked_fill,
    aten.masked_fill.Tensor: masked_fill,
    aten.clamp.default: clamp,
    aten.clamp.Tensor: clamp,
    aten.clamp_min.default: clamp_min,
    aten.clamp_min.Tensor: clamp_min,
    aten.clamp_max.default: clamp_max,
    aten.clamp_max.Tensor: clamp_max,
    aten.hardtanh.default: lambda call, x, low=-1, high=1: clamp(call, x, low, high),
    aten.threshold.default: threshold,
    aten.threshold_backward.default: threshold_backward,
    aten.heaviside.default: heaviside,
    aten.lerp.Scalar: lerp,
    aten.lerp.Tensor: lerp,
    aten.addcmul.default: addcmul,
    aten.addcdiv.default: addcdiv,
    aten._to_copy.default: to_copy,
    prims.convert_element_type.default: to_copy,
    prims.device_put.default: same,
    aten.clone.default: same,
    aten.alias.default: same,
    aten.detach.default: same,
    aten.lift_fresh_copy.default: same,
    aten.lift_fresh.default: same,
    aten.detach_copy.default: same,
    aten.alias_copy.default: same,
    aten.view.dtype: view_dtype,
    aten.copy.default: copy,
    aten.fill.Scalar: fill,
    aten.fill.Tensor: fill,
}
