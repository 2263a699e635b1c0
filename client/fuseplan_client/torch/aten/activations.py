"""Activations and their gradients, computed in f32 where tensors have 16 bits."""

from collections.abc import Mapping
from typing import Any

from fuseplan_client.torch.aten.call import Call, Lowering, aten, in_f32
from fuseplan_client.torch.wire import Tensor


def gelu(call: Call, x: Tensor, *, approximate: str = "none") -> Tensor:
    """x Phi(x)."""
    return call.writer.op("gelu", [x], x.shape, x.dtype, approximate=approximate)


def silu(call: Call, x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return call.writer.op("silu", [x.cast(call.dtype)], x.shape, call.dtype)


@in_f32
def sigmoid_backward(call: Call, grad: Tensor, output: Tensor) -> Tensor:
    """grad output (1 - output)."""
    return (grad * (1 - output) * output).broadcast(call.shape)


@in_f32
def tanh_backward(call: Call, grad: Tensor, output: Tensor) -> Tensor:
    """grad (1 - output^2)."""
    return (grad * (1 - output * output)).broadcast(call.shape)


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
}
