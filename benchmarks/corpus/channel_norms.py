"""Batch norm in training mode and group norm over images [batch, channels, height, width], forward and backward."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import F, Tensor, Tensors, statistic, torch
from benchmarks.corpus.sizes import IMAGES, plain
from fusion_ir.core.node import Node

EPS = 1e-5
OTHERS = (0, 2, 3)  # the axes of an image that are not channels


def _per_channel(x: Node) -> Node:
    return ir.reshape(x, [1, -1, 1, 1])


def batch_norm(inputs: Inputs, batch: int, channels: int, height: int, width: int) -> tuple[Node, ...]:
    """The result, and the batch's mean and reciprocal deviation."""
    x = ir.cast(inputs(batch, channels, height, width), inputs.wide)
    weight, bias = (ir.cast(inputs(channels), inputs.wide) for _ in range(2))
    mean = ir.mean(x, OTHERS)
    rstd = ir.rsqrt(ir.add(ir.var(x, OTHERS, 0), EPS))
    normal = ir.mul(ir.sub(x, _per_channel(mean)), _per_channel(rstd))
    out = ir.add(ir.mul(normal, _per_channel(weight)), _per_channel(bias))
    return tuple(ir.cast(v, inputs.dtype) for v in (out, mean, rstd))


def torch_batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensors:
    """F.batch_norm in training mode without running statistics, with what it saves for the backward pass."""
    return torch.ops.aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, EPS)


def batch_norm_backward(inputs: Inputs, batch: int, channels: int, height: int, width: int) -> tuple[Node, ...]:
    """Gradients of x, weight and bias."""
    grad, x = (ir.cast(inputs(batch, channels, height, width), inputs.wide) for _ in range(2))
    weight = ir.cast(inputs(channels), inputs.wide)
    mean = ir.cast(inputs(channels, domain=(-0.25, 0.25)), inputs.wide)
    rstd = ir.cast(inputs(channels, domain=(0.75, 1.25)), inputs.wide)
    normal = ir.mul(ir.sub(x, _per_channel(mean)), _per_channel(rstd))
    dweight, dbias = ir.sum_(ir.mul(grad, normal), OTHERS), ir.sum_(grad, OTHERS)
    share = 1.0 / (batch * height * width)
    means = ir.add(ir.mul(normal, _per_channel(ir.mul(dweight, share))), _per_channel(ir.mul(dbias, share)))
    dx = ir.mul(ir.sub(grad, means), _per_channel(ir.mul(weight, rstd)))
    return tuple(ir.cast(g, inputs.dtype) for g in (dx, dweight, dbias))


def torch_batch_norm_backward(grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> Tensors:
    """The op that autograd calls."""
    return torch.ops.aten.native_batch_norm_backward(
        grad, x, weight, None, None, statistic(mean), statistic(rstd), True, EPS, [True] * 3
    )


def _grouped(x: Node, groups: int) -> Node:
    """[batch, groups, channels of a group, pixels]."""
    return ir.reshape(x, [x.sizes[0], groups, x.sizes[1] // groups, -1])


def group_norm(inputs: Inputs, batch: int, channels: int, groups: int, height: int, width: int) -> Node:
    x = inputs(batch, channels, height, width)
    weight, bias = inputs(channels), inputs(channels)
    grouped = _grouped(ir.cast(x, inputs.wide), groups)
    centred = ir.sub(grouped, ir.mean(grouped, (2, 3), keepdims=True))
    rstd = ir.rsqrt(ir.add(ir.var(grouped, (2, 3), 0, keepdims=True), EPS))
    normal = ir.reshape(ir.mul(centred, rstd), x.sizes)
    out = ir.add(ir.mul(normal, _per_channel(ir.cast(weight, inputs.wide))), _per_channel(ir.cast(bias, inputs.wide)))
    return ir.cast(out, inputs.dtype)


def torch_group_norm(x: Tensor, weight: Tensor, bias: Tensor, *, groups: int) -> Tensor:
    return F.group_norm(x, groups, weight, bias, EPS)


def group_norm_backward(
    inputs: Inputs, batch: int, channels: int, groups: int, height: int, width: int
) -> tuple[Node, ...]:
    """Gradients of x, weight and bias, from the forward pass's mean and reciprocal deviation of each group."""
    grad, x = (ir.cast(inputs(batch, channels, height, width), inputs.wide) for _ in range(2))
    mean = ir.cast(inputs(batch, groups, domain=(-0.25, 0.25)), inputs.wide)
    rstd = ir.cast(inputs(batch, groups, domain=(0.75, 1.25)), inputs.wide)
    weight = ir.cast(inputs(channels), inputs.wide)
    mean, rstd = (ir.reshape(v, [batch, groups, 1, 1]) for v in (mean, rstd))
    normal = ir.mul(ir.sub(_grouped(x, groups), mean), rstd)
    scaled = _grouped(ir.mul(grad, _per_channel(weight)), groups)
    along = ir.mul(normal, ir.mean(ir.mul(scaled, normal), (2, 3), keepdims=True))
    dx = ir.mul(rstd, ir.sub(ir.sub(scaled, ir.mean(scaled, (2, 3), keepdims=True)), along))
    dweight = ir.sum_(ir.mul(_grouped(grad, groups), normal), (0, 3))
    out = ir.reshape(dx, x.sizes), ir.reshape(dweight, [channels]), ir.sum_(grad, OTHERS)
    return tuple(ir.cast(g, inputs.dtype) for g in out)


def torch_group_norm_backward(
    grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, *, groups: int
) -> Tensors:
    """The op that autograd calls. Statistics are in the tensors' dtype, the one that CUDA's kernels take, too."""
    batch, channels, height, width = x.shape
    return torch.ops.aten.native_group_norm_backward(
        grad, x, mean, rstd, weight, batch, channels, height * width, groups, [True] * 3
    )


_FORWARD = {"batch": 32, "channels": 128, "height": 64, "width": 64}
_BACKWARD = {**_FORWARD, "batch": 16}

CHANNEL_NORMS = (
    Case(
        name="batch_norm", kind="memory", build=batch_norm, torch=torch_batch_norm, sizes=_FORWARD,
        small=plain(IMAGES),
    ),
    Case(
        name="batch_norm_backward", kind="memory", build=batch_norm_backward, torch=torch_batch_norm_backward,
        sizes=_BACKWARD, small=plain(IMAGES),
    ),
    Case(
        name="group_norm", kind="memory", build=group_norm, torch=torch_group_norm, sizes={**_FORWARD, "groups": 32},
        small=IMAGES,
    ),
    Case(
        name="group_norm_backward", kind="memory", build=group_norm_backward, torch=torch_group_norm_backward,
        sizes={**_BACKWARD, "groups": 32}, small=IMAGES,
    ),
)  # fmt: skip
