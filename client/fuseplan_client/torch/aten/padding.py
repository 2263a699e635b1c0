"""Ops that put a tensor, or a part of one, into a larger one: pads, scattered slices, gradients of slices."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten
from fuseplan_client.torch.wire import Number, Refused, Tensor


def constant_pad(call: Call, x: Tensor, pad: Sequence[int], value: Number = 0) -> Tensor:
    """`value` around x; `pad` has (before, behind) of the last axis first."""
    low, high = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        low[-1 - i], high[-1 - i] = pad[2 * i], pad[2 * i + 1]
    if any(n + min(before, 0) + min(behind, 0) < 0 for n, before, behind in zip(x.shape, low, high, strict=True)):
        raise Refused("a pad that crops more than there is")
    return x.pad(low, high, value)


def placed(
    call: Call, x: Tensor, sizes: Sequence[int], dim: int, start: int, step: int
) -> tuple[Tensor, Tensor | None]:
    """x in a tensor of zeros of `sizes`, its elements along `dim` from `start` on, `step` apart; and where it is not
    the whole axis, a mask [sizes[dim]] of the places that it takes, along `dim`."""
    rank, n, count = len(sizes), sizes[dim], x.shape[dim]
    w = call.writer
    if not count:
        return w.full(sizes, 0, x.dtype), w.full([n if a == dim else 1 for a in range(rank)], False, torch.bool)
    if step > 1:
        # Each element in front of step - 1 zeros: a new axis behind the one that is spread.
        apart = x.reshape((*x.shape[: dim + 1], 1, *x.shape[dim + 1 :]))
        high = [0] * apart.rank
        high[dim + 1] = step - 1
        spread = apart.pad([0] * apart.rank, high)
        x = spread.reshape((*x.shape[:dim], count * step, *x.shape[dim + 1 :])).sliced(dim, 0, (count - 1) * step + 1)
    low, high = [0] * rank, [0] * rank
    low[dim], high[dim] = start, n - start - x.shape[dim]
    inside = x.pad(low, high)
    if count == n:
        return inside, None
    place = w.iota([n if a == dim else 1 for a in range(rank)], dim)
    mask = place.compared("ge", start).pointwise("logical_and", place.compared("lt", start + x.shape[dim]))
    if step > 1:
        mask = mask.pointwise("logical_and", (place - start).pointwise("remainder", step).compared("eq", 0))
    return inside, mask


def _start(size: int, start: int | None, end: int | None, step: int) -> int:
    return slice(start, end, step).indices(size)[0]


def slice_scatter(
    call: Call, x: Tensor, source: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """x with x[start:end:step] along an axis replaced by `source`."""
    dim %= x.rank
    inside, mask = placed(call, source.cast(x.dtype), x.shape, dim, _start(x.shape[dim], start, end, step), step)
    return inside if mask is None else call.writer.where(mask, inside, x, x.dtype)


def select_scatter(call: Call, x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    """x with one slice replaced by `source`."""
    dim %= x.rank
    return slice_scatter(call, x, source.unsqueeze(dim), dim, index % x.shape[dim], index % x.shape[dim] + 1)


def slice_backward(call: Call, grad: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Tensor:
    """The gradient of a slice: zeros around it, and between its elements."""
    dim %= len(sizes)
    return placed(call, grad, sizes, dim, _start(sizes[dim], start, end, step), step)[0]


def select_backward(call: Call, grad: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    """The gradient of a selected slice: zeros around it."""
    dim %= len(sizes)
    return placed(call, grad.unsqueeze(dim), sizes, dim, index % sizes[dim], 1)[0]


def _on_diagonal(call: Call, values: Tensor, x: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """x with its diagonal replaced by `values`, whose last axis goes along it."""
    first, second = dim1 % x.rank, dim2 % x.rank
    w = call.writer
    if not values.elements:
        return x
    length = values.shape[-1]
    # Along the axis of rows, at row max(0, -offset) and on; the same value for every column.
    others = [a for a in range(x.rank) if a not in (first, second)]
    rows = x.shape[first]
    low, high = [0] * values.rank, [0] * values.rank
    low[-1] = max(0, -offset)
    high[-1] = rows - length - low[-1]
    along = values.pad(low, high).unsqueeze(-1)
    order = [*others, first, second]
    back = along.permute([order.index(a) for a in range(x.rank)])
    grid = [x.shape[a] if a in (first, second) else 1 for a in range(x.rank)]
    on = (w.iota(grid, second) - w.iota(grid, first)).compared("eq", offset)
    return w.where(on, back, x, x.dtype)


def diagonal_scatter(call: Call, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """x with its diagonal replaced by `source`."""
    return _on_diagonal(call, source.cast(x.dtype), x, offset, dim1, dim2)


def diagonal_backward(call: Call, grad: Tensor, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    """The gradient of a diagonal: zeros beside it."""
    return _on_diagonal(call, grad, call.writer.full(sizes, 0, grad.dtype), offset, dim1, dim2)


def triangle(op: str) -> Lowering:
    """The elements on one side of a diagonal, the others 0."""

    def lower(call: Call, x: Tensor, diagonal: int = 0) -> Tensor:
        return call.writer.op(op, [x], x.shape, x.dtype, diagonal=diagonal)

    return lower


PADDING: Mapping[Any, Lowering] = {
    aten.constant_pad_nd.default: constant_pad,
    aten.slice_scatter.default: slice_scatter,
    aten.select_scatter.default: select_scatter,
    aten.slice_backward.default: slice_backward,
    aten.select_backward.default: select_backward,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.diagonal_backward.default: diagonal_backward,
    aten.tril.default: triangle("tril"),
    aten.triu.default: triangle("triu"),
}
