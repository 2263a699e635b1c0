"""Losses and their gradients, where PyTorch's decomposition is no word-for-word account of its kernel."""

from collections.abc import Mapping
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, in_f32, wide
from fuseplan_client.torch.aten.indexing import gather_along
from fuseplan_client.torch.wire import Tensor

_NONE, _MEAN = 0, 1


def _classes(x: Tensor) -> int:
    """The axis of classes: the only one, or the second."""
    return 1 if x.rank > 1 else 0


def nll_loss(
    call: Call, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """(-weight x at the targets, summed or their weighted mean; the sum of weights). Targets that are ignored count 0.

    x [N, C, ...] or [C]; target [N, ...] or []; weight [C].
    """
    w, axis = call.writer, _classes(x)
    given = x.cast(wide(x.dtype))
    counted = target.compared("ne", ignore_index)
    index = w.where(counted, target, 0, target.dtype).cast(torch.int64)
    picked = gather_along(given, axis, index.unsqueeze(axis)).reshape(target.shape)
    weights: Tensor | None = None
    if weight is not None:
        flat = index.reshape((index.elements,))
        shape = (flat.elements,)
        rows = weight.cast(given.dtype)
        weights = w.op("index_select", [rows, flat], shape, rows.dtype, axis=0).reshape(target.shape)
        picked = picked * weights
    losses = w.where(counted, -picked, 0, given.dtype)
    if reduction == _NONE and x.rank > 1:  # without a batch PyTorch's kernel sums weights whatever is asked
        return losses.cast(call.out[0].dtype), w.full(call.out[1].shape, 0, call.out[1].dtype)
    total = _summed(losses)
    ones = w.full((), 1, given.dtype) if weights is None else weights
    count = _summed(w.where(counted, ones, 0, given.dtype))
    loss = total / count if reduction == _MEAN else total
    return loss.cast(call.out[0].dtype), count.cast(call.out[1].dtype)


def _summed(x: Tensor) -> Tensor:
    x = x if x.rank else x.reshape((1,))
    return x.reduced("sum", range(x.rank))


def nll_loss_backward(
    call: Call,
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """-weight grad at each target, else 0; divided by the sum of weights where the loss is their mean."""
    w, axis, inner = call.writer, _classes(x), wide(x.dtype)
    grad = grad.cast(inner)
    if reduction == _MEAN:
        grad = grad / total_weight.cast(inner)
    rank = x.rank
    if reduction == _NONE and grad.rank:
        grad = grad.unsqueeze(axis)
    places = w.iota([n if a == axis else 1 for a, n in enumerate(x.shape)], axis)
    index = target.cast(torch.int64).unsqueeze(axis)
    hit = places.compared("eq", index)
    hit = hit.pointwise("logical_and", index.compared("ne", ignore_index))
    if weight is not None:
        column = [x.shape[axis] if a == axis else 1 for a in range(rank)]
        grad = grad * weight.cast(inner).reshape(column)
    return w.where(hit, -grad, 0, inner).broadcast(x.shape).cast(call.dtype)


def soft_margin_loss_backward(call: Call, grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """-target z / (1 + z) grad for z = e^(-target x), over the number of elements where the loss is a mean."""
    z = (-target * x).pointwise("exp")
    norm = -1.0 / x.elements if reduction == _MEAN and x.elements else -1.0
    return (target * z * norm / (z + 1) * grad).broadcast(call.shape)


def binary_cross_entropy(
    call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """-(target ln x + (1 - target) ln(1 - x)), logarithms no less than -100."""
    inner = wide(x.dtype)
    x, target = x.cast(inner), target.cast(inner)
    near = x.pointwise("log").pointwise("maximum", -100.0)
    far = (-x).pointwise("log1p").pointwise("maximum", -100.0)
    losses = (target - 1.0) * far - target * near
    losses = losses if weight is None else losses * weight.cast(inner)
    if reduction != _NONE:
        losses = losses if losses.rank else losses.reshape((1,))
        losses = losses.reduced("mean" if reduction == _MEAN else "sum", range(losses.rank))
    return losses.cast(call.dtype)


@in_f32
def binary_cross_entropy_backward(
    call: Call, grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """grad (x - target) / max((1 - x) x, 1e-12), over the number of elements where the loss is a mean."""
    found = grad * (x - target) / ((1.0 - x) * x).pointwise("maximum", 1e-12)
    found = found if weight is None else found * weight
    return (found / float(x.elements) if reduction == _MEAN and x.elements else found).broadcast(call.shape)


@in_f32
def hardsigmoid_backward(call: Call, grad: Tensor, x: Tensor) -> Tensor:
    """grad / 6 where -3 < x < 3; PyTorch's kernel has 1 / 6 in f32 for every dtype."""
    w = call.writer
    sixth = w.full((), 1.0 / 6.0, torch.float32).cast(grad.dtype)
    inside = x.compared("gt", -3.0).pointwise("logical_and", x.compared("lt", 3.0))
    return w.where(inside, grad * sixth, 0, grad.dtype).broadcast(call.shape)


LOSSES: Mapping[Any, Lowering] = {
    aten.nll_loss_forward.default: nll_loss,
    aten.nll_loss2d_forward.default: nll_loss,
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
    aten.soft_margin_loss_backward.default: soft_margin_loss_backward,
    aten.binary_cross_entropy.default: binary_cross_entropy,
    aten.binary_cross_entropy_backward.default: binary_cross_entropy_backward,
    aten.hardsigmoid_backward.default: hardsigmoid_backward,
}
