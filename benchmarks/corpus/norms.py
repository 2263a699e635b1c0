"""Layer norm and RMS norm over the last axis, forward and backward."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import F, Tensor, Tensors, statistic, torch, wide
from benchmarks.corpus.sizes import FOUR, LONG, MATRICES
from fusion_ir.core.node import Node

LAYER_EPS, RMS_EPS = 1e-5, 1e-6


def layer_norm(inputs: Inputs, rows: int, columns: int) -> Node:
    x, weight, bias = inputs(rows, columns), inputs(columns), inputs(columns)
    return ir.layer_norm(x, -1, weight, bias, LAYER_EPS)


def torch_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, LAYER_EPS)


def layer_norm_backward(inputs: Inputs, rows: int, columns: int) -> tuple[Node, ...]:
    """Gradients of x, weight and bias, from the forward pass's mean and reciprocal deviation."""
    grad, x = (ir.cast(inputs(rows, columns), inputs.wide) for _ in range(2))
    mean = ir.cast(inputs(rows, 1, domain=(-0.25, 0.25)), inputs.wide)
    rstd = ir.cast(inputs(rows, 1, domain=(0.75, 1.25)), inputs.wide)
    weight = ir.cast(inputs(columns), inputs.wide)
    inputs(columns)  # the bias, whose value does not matter
    normal = ir.mul(ir.sub(x, mean), rstd)
    scaled = ir.mul(grad, weight)
    along = ir.mul(normal, ir.mean(ir.mul(scaled, normal), -1, keepdims=True))
    dx = ir.mul(rstd, ir.sub(ir.sub(scaled, ir.mean(scaled, -1, keepdims=True)), along))
    dweight, dbias = ir.sum_(ir.mul(grad, normal), 0), ir.sum_(grad, 0)
    return tuple(ir.cast(g, inputs.dtype) for g in (dx, dweight, dbias))


def torch_layer_norm_backward(
    grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor
) -> Tensors:
    """The op that autograd calls."""
    shape = list(x.shape[-1:])
    return torch.ops.aten.native_layer_norm_backward(
        grad, x, shape, statistic(mean), statistic(rstd), weight, bias, [True] * 3
    )


def rms_norm(inputs: Inputs, rows: int, columns: int) -> Node:
    x, weight = inputs(rows, columns), inputs(columns)
    return ir.rms_norm(x, -1, weight, RMS_EPS)


def torch_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, RMS_EPS)


def torch_rms_norm_module(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm as the modules of language models spell it."""
    inner = wide(x)
    inner = inner * torch.rsqrt(inner.pow(2).mean(-1, keepdim=True) + RMS_EPS)
    return (inner * weight).to(x.dtype)


def rms_norm_backward(inputs: Inputs, rows: int, columns: int) -> tuple[Node, ...]:
    """Gradients of x and weight, from the forward pass's reciprocal root, which is kept in f32."""
    grad, x = (ir.cast(inputs(rows, columns), inputs.wide) for _ in range(2))
    rstd = inputs(rows, 1, dtype=inputs.wide, domain=(0.75, 1.25))
    weight = ir.cast(inputs(columns), inputs.wide)
    normal, scaled = ir.mul(x, rstd), ir.mul(grad, weight)
    along = ir.mul(normal, ir.mean(ir.mul(scaled, normal), -1, keepdims=True))
    dx = ir.mul(rstd, ir.sub(scaled, along))
    return ir.cast(dx, inputs.dtype), ir.cast(ir.sum_(ir.mul(grad, normal), 0), inputs.dtype)


def torch_rms_norm_backward(grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor) -> Tensors:
    """PyTorch has no such function for CPUs."""
    inner, normal = wide(grad), wide(x) * rstd
    scaled = inner * weight
    dx = rstd * (scaled - normal * (scaled * normal).mean(-1, keepdim=True))
    return dx.to(x.dtype), (inner * normal).sum(0).to(x.dtype)


NORMS = (
    Case(
        name="layer_norm", kind="memory", build=layer_norm, torch=torch_layer_norm, sizes=LONG, small=MATRICES,
    ),
    Case(
        name="layer_norm_backward", kind="memory", build=layer_norm_backward, torch=torch_layer_norm_backward,
        sizes=FOUR, small=MATRICES,
    ),
    Case(
        name="rms_norm", kind="memory", build=rms_norm, torch=torch_rms_norm, also=(torch_rms_norm_module,),
        sizes=LONG, small=MATRICES,
    ),
    Case(
        name="rms_norm_backward", kind="memory", build=rms_norm_backward, torch=torch_rms_norm_backward, sizes=FOUR,
        small=MATRICES,
    ),
)  # fmt: skip
