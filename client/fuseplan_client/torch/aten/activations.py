"""Activations and their gradients, computed in f32 where tensors have 16 bits."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, in_f32, wide
from fuseplan_client.torch.wire import Tensor


def gelu(call: Call, x: Tensor, *, approximate: str = "none") -> Tensor:
    """x Phi(x)."""
    return call.writer.op("gelu", [x], x.shape, x.dtype, approximate=approximate)


def silu(call: Call, x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return call.writer.op("silu", [x.cast(call.dtype)], x.shape, call.dtype)


def sigmoid_backward(call: Call, grad: Tensor, output: Tensor) -> Tensor:
    """grad (1 - output) output; in f16 PyTorch's kernel rounds after each step, in bf16 at the end."""
    inner = torch.float16 if call.dtype == torch.float16 else wide(call.dtype)
    grad, output = grad.cast(inner), output.cast(inner)
    return (grad * (1 - output) * output).cast(call.dtype).broadcast(call.shape)


@in_f32
def tanh_backward(call: Call, grad: Tensor, output: Tensor) -> Tensor:
    """grad (1 - output^2)."""
    return (grad * (1 - output * output)).broadcast(call.shape)


def logit(call: Call, x: Tensor, eps: float | None = None) -> Tensor:
    """ln(x / (1 - x)), each step rounded; x within eps ... 1 - eps where eps is given."""
    x = x.cast(call.dtype)
    if eps is not None and eps >= 0:
        x = x.pointwise("clamp", float(eps), 1.0 - float(eps))
    return (x / (1 - x)).pointwise("log")


def logit_backward(call: Call, grad: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """grad / (x (1 - x)), each step rounded; beyond eps ... 1 - eps 0, beyond 0 ... 1 NaN where eps is not given."""
    low, beyond = (0.0, math.nan) if eps is None or eps < 0 else (float(eps), 0.0)
    inside = x.compared("ge", low).pointwise("logical_and", x.compared("le", 1.0 - low))
    return call.writer.where(inside, grad / (x * (1 - x)), beyond, call.dtype).broadcast(call.shape)


def glu_backward(call: Call, grad: Tensor, x: Tensor, dim: int) -> Tensor:
    """The gradients of a and b in a sigmoid(b), the sigmoid rounded; a and b are the halves of x along an axis."""
    inner, half = wide(x.dtype), x.shape[dim] // 2
    gate = x.sliced(dim, half, 2 * half).pointwise("sigmoid").cast(inner)
    first, grad = x.sliced(dim, 0, half).cast(inner), grad.cast(inner)
    both = (grad * gate).cast(x.dtype), ((1 - gate) * gate * first * grad).cast(x.dtype)
    return call.writer.cat(both, dim)


@in_f32
def silu_backward(call: Call, grad: Tensor, x: Tensor) -> Tensor:
    """grad sigmoid(x) (1 + x (1 - sigmoid(x)))."""
    gate = x.pointwise("sigmoid")
    return (grad * gate * (1 + x * (1 - gate))).broadcast(call.shape)


ACTIVATIONS: Mapping[Any, Lowering] = {
    aten.gelu.default: gelu,
    aten.silu.default: silu,
    aten.sigmoid_backward.default: sigmoid_backward,
    aten.tanh_backward.default: tanh_backward,
    aten.silu_backward.default: silu_backward,
    aten.logit.default: logit,
    aten.logit_backward.default: logit_backward,
    aten.glu_backward.default: glu_backward,
}
