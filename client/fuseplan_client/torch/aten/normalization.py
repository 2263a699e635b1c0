"""Softmax, layer norm and other norms, as composites of the wire where it has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, wide
from fuseplan_client.torch.aten.reductions import reduced
from fuseplan_client.torch.wire import Refused, Tensor


def softmax(op: str) -> Lowering:
    """exp(x - max) / sum along an axis, or its logarithm."""

    def lower(call: Call, x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
        if not x.rank:
            return call.full(1 if op == "softmax" else 0)
        return call.writer.op(op, [x.cast(call.dtype)], x.shape, call.dtype, axis=dim % x.rank) if x.elements else x

    return lower


def softmax_backward(call: Call, grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """(grad - sum of grad output) output along an axis."""
    inner = wide(output.dtype)
    grad, output = grad.cast(inner), output.cast(inner)
    if not output.rank:
        return call.full(0)
    product = grad * output
    return (product - output * reduced(product, "sum", dim, True, inner)).cast(call.dtype)


def log_softmax_backward(call: Call, grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """grad - exp(output) sum of grad along an axis."""
    inner = wide(output.dtype)
    grad, output = grad.cast(inner), output.cast(inner)
    if not output.rank:
        return call.full(0)
    return (grad - output.pointwise("exp") * reduced(grad, "sum", dim, True, inner)).cast(call.dtype)


def layer_norm(
    call: Call, x: Tensor, sizes: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """((x - mean) / sqrt(var + eps) weight + bias, mean, 1 / sqrt(var + eps)) over the last axes."""
    w, inner = call.writer, wide(x.dtype)
    axes = list(range(x.rank - len(sizes), x.rank))
    given = x.cast(inner)
    mean = reduced(given, "mean", axes, True, inner)
    rstd = (reduced(given, "var", axes, True, inner, correction=0) + eps).pointwise("rsqrt")
    if weight is not None or bias is None:
        operands = [x, *(v for v in (weight, bias) if v is not None)]
        out = w.op("layer_norm", operands, x.shape, x.dtype, axes=axes, eps=float(eps))
    else:
        out = (w.op("layer_norm", [given], x.shape, inner, axes=axes, eps=float(eps)) + bias).cast(x.dtype)
    return out, mean.cast(call.out[1].dtype), rstd.cast(call.out[2].dtype)


def layer_norm_backward(
    call: Call,
    grad: Tensor,
    x: Tensor,
    sizes: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, weight and bias, each where it is wanted.

    With y = (x - mean) rstd and g = grad weight: rstd (g - mean of g - y mean of g y), and sums of grad y and of grad.
    """
    inner = wide(x.dtype)
    outer, axes = range(x.rank - len(sizes)), range(x.rank - len(sizes), x.rank)
    if not x.elements:
        raise Refused("a norm of nothing")
    given, rstd = grad.cast(inner), rstd.cast(inner)
    scaled = (x.cast(inner) - mean.cast(inner)) * rstd
    found: list[Tensor | None] = [None, None, None]
    if wanted[0]:
        inside = given if weight is None else given * weight.cast(inner)
        first = reduced(inside, "mean", list(axes), True, inner)
        second = reduced(inside * scaled, "mean", list(axes), True, inner)
        found[0] = (rstd * (inside - first - scaled * second)).cast(x.dtype)
    if wanted[1] and weight is not None:
        product = given * scaled
        found[1] = (product.reduced("sum", outer) if outer else product).cast(weight.dtype)
    if wanted[2] and bias is not None:
        found[2] = (given.reduced("sum", outer) if outer else given).cast(bias.dtype)
    return found[0], found[1], found[2]


def group_norm(
    call: Call,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    positions: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """((x - mean) / sqrt(var + eps) weight + bias, mean, 1 / sqrt(var + eps)) over groups of channels.

    x [batch, channels, ...], weight and bias [channels], mean and the last [batch, groups].
    """
    inner = wide(x.dtype)
    if not x.elements:
        raise Refused("a norm of nothing")
    rows = x.cast(inner).reshape((batch, groups, channels // groups * positions))
    mean = reduced(rows, "mean", 2, True, inner)
    rstd = (reduced(rows, "var", 2, True, inner, correction=0) + eps).pointwise("rsqrt")
    out = ((rows - mean) * rstd).reshape((batch, channels, positions))
    out = out if weight is None else out * weight.cast(inner).reshape((channels, 1))
    out = out if bias is None else out + bias.cast(inner).reshape((channels, 1))
    mean, rstd = (v.reshape((batch, groups)).cast(o.dtype) for v, o in zip((mean, rstd), call.out[1:], strict=True))
    return out.reshape(x.shape).cast(x.dtype), mean, rstd


def batch_norm(
    call: Call,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """((x - mean) / sqrt(var + eps) weight + bias, mean, 1 / sqrt(var + eps)), and behind them new running statistics
    where the call gives such.

    x [batch, channels, ...], all others [channels]. In training mean and var are those of x for each channel, and a new
    running statistic is momentum of that and 1 - momentum of the old one, var by n - 1. Else they are the running ones,
    which stay, and the second and third result are empty.
    """
    inner = wide(x.dtype)
    if not x.elements:
        raise Refused("a norm of nothing")
    channels, axes = x.shape[1], [0, *range(2, x.rank)]
    row = (channels, *(1,) * (x.rank - 2))
    given = x.cast(inner)
    if training:
        mean = reduced(given, "mean", axes, False, inner)
        var = reduced(given, "var", axes, False, inner, correction=0)
    elif running_mean is not None and running_var is not None:
        mean, var = running_mean.cast(inner), running_var.cast(inner)
    else:
        raise Refused("a batch norm without statistics")
    rstd = (var + eps).pointwise("rsqrt")
    out = (given - mean.reshape(row)) * rstd.reshape(row)
    out = out if weight is None else out * weight.cast(inner).reshape(row)
    out = out if bias is None else out + bias.cast(inner).reshape(row)
    found = [out, mean, rstd] if training else [out, *(call.writer.full(o.shape, 0, inner) for o in call.out[1:3])]
    if len(call.out) > 3 and running_mean is not None and running_var is not None:
        count = x.elements // channels
        if training and count == 1:
            raise Refused("a variance of one element")
        of_x = (mean, var * (count / (count - 1))) if training else ()
        old = running_mean.cast(inner), running_var.cast(inner)
        new = [a * momentum + b * (1 - momentum) for a, b in zip(of_x, old, strict=True)] if training else old
        found += new
    return tuple(f.cast(o.dtype) for f, o in zip(found, call.out, strict=True))


def batch_norm_without_statistics(
    call: Call, x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    """`batch_norm` by the statistics of x."""
    return batch_norm(call, x, weight, bias, None, None, training, momentum, eps)


def batch_norm_by_running_statistics(
    call: Call,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """`batch_norm` that is not in training."""
    return batch_norm(call, x, weight, bias, running_mean, running_var, False, momentum, eps)


NORMALIZATION: Mapping[Any, Lowering] = {
    aten._softmax.default: softmax("softmax"),
    aten._log_softmax.default: softmax("log_softmax"),
    aten._softmax_backward_data.default: softmax_backward,
    aten._log_softmax_backward_data.default: log_softmax_backward,
    aten.native_layer_norm.default: layer_norm,
    aten.native_layer_norm_backward.default: layer_norm_backward,
    aten.native_group_norm.default: group_norm,
    aten._native_batch_norm_legit_functional.default: batch_norm,
    aten._native_batch_norm_legit.no_stats: batch_norm_without_statistics,
    aten._native_batch_norm_legit_no_training.default: batch_norm_by_running_statistics,
}
