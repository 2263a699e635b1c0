"""Views: reshapes, permutations, slices and what they are put together of; each as a tensor of its own."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, prims
from fuseplan_client.torch.wire import Refused, Tensor

_END = 2**63 - 1


def reshaped(call: Call, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """x in the shape of the result, elements in row-major order."""
    return x.reshape(call.shape)


def expand(call: Call, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """x repeated to the shape of the result."""
    return x.broadcast(call.shape)


def permute(call: Call, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Axis i of the result is axis dims[i] of x."""
    return x.permute(dims)


def transpose(call: Call, x: Tensor, first: int = 0, second: int = 1) -> Tensor:
    """x with two axes exchanged."""
    return x.transposed(first, second) if x.rank > 1 else x


def sliced(
    call: Call, x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """x[start:end:step] along one axis."""
    return x.sliced(dim, 0 if start is None else start, _END if end is None else end, step)


def select(call: Call, x: Tensor, dim: int, index: int) -> Tensor:
    """One slice of x, without its axis."""
    if isinstance(index, Tensor):
        raise Refused("an index that is known at run time alone")
    return x.select(dim, index)


def split(call: Call, x: Tensor, sizes: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """x in parts along one axis, each of these sizes, or all of one size but for the last."""
    if isinstance(sizes, int):
        n = x.shape[dim]
        sizes = [sizes] * max(1, -(-n // sizes)) if sizes else [0] * len(call.out)
    parts: list[Tensor] = []
    start = 0
    for size in sizes:
        parts.append(x.sliced(dim, start, start + size))
        start += size
    return tuple(parts)


def unbind(call: Call, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along one axis, without it."""
    return tuple(x.select(dim, i) for i in range(x.shape[dim]))


def diagonal(call: Call, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """x[..., i, i + offset] as the last axis: the two axes are flattened, and every (columns + 1)-th is taken."""
    rows, columns = x.shape[dim1], x.shape[dim2]
    first, second = dim1 % x.rank, dim2 % x.rank
    others = [a for a in range(x.rank) if a not in (first, second)]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    kept = [x.shape[a] for a in others]
    if not length or 0 in x.shape:
        return call.writer.full(call.shape, 0, x.dtype)
    flat = x.permute([*others, first, second]).reshape([*kept, rows * columns])
    start = offset if offset >= 0 else -offset * columns
    return flat.sliced(-1, start, start + (length - 1) * (columns + 1) + 1, columns + 1)


def cat(call: Call, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after the other along an axis; empty ones of one axis do not count, as in PyTorch."""
    rank = len(call.shape)
    given = [t.cast(call.dtype) for t in tensors if t.shape != (0,) or rank == 1]
    return call.writer.cat(given, dim) if given else call.full(0)


def stack(call: Call, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after the other along a new axis."""
    dim %= len(call.shape)
    return call.writer.cat([t.cast(call.dtype).unsqueeze(dim) for t in tensors], dim)


def repeat(call: Call, x: Tensor, repeats: Sequence[int]) -> Tensor:
    """x, repeats[i] times along axis i."""
    x = x.reshape([1] * (len(repeats) - x.rank) + list(x.shape))
    apart = [n for size in x.shape for n in (1, size)]
    wide = [n for times, size in zip(repeats, x.shape, strict=True) for n in (times, size)]
    if len(wide) > 12:
        parts = x
        for axis, times in enumerate(repeats):
            parts = call.writer.cat([parts] * times, axis) if times > 1 else parts
        return parts if 0 not in call.shape else call.full(0)
    return x.reshape(apart).broadcast(wide).reshape(call.shape)


def flip(call: Call, x: Tensor, dims: Sequence[int]) -> Tensor:
    """x backwards along these axes: a gather, as slices go forward."""
    for dim in dims if x.rank else ():
        n = x.shape[dim]
        if n > 1:
            index = call.writer.iota((n,), 0, n - 1, -1)
            x = call.writer.op("index_select", [x, index], x.shape, x.dtype, axis=dim % x.rank)
    return x


def roll(call: Call, x: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> Tensor:
    """x moved along these axes, from one end to the other; as it lies flat where no axis is named."""
    places = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    moved = x if axes else x.reshape((x.elements,))
    for shift, axis in zip(places, axes or [0], strict=True):
        n = moved.shape[axis] if moved.rank else 0
        if n and shift % n:
            start = n - shift % n
            moved = call.writer.cat([moved.sliced(axis, start, n), moved.sliced(axis, 0, start)], axis)
    return moved.reshape(x.shape)


def unfold(call: Call, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows of `size` elements along an axis, `step` apart, as a new last axis: a gather of windows."""
    if not x.rank:
        return x.reshape(call.shape)
    dim %= x.rank
    count = call.shape[dim]
    places = call.writer.iota((count, size), 0, 0, step) + call.writer.iota((count, size), 1)
    index = places.reshape((count * size,))
    shape = (*x.shape[:dim], count * size, *x.shape[dim + 1 :])
    if not index.elements or not x.elements:
        return call.full(0)
    picked = call.writer.op("index_select", [x, index], shape, x.dtype, axis=dim)
    apart = picked.reshape((*x.shape[:dim], count, size, *x.shape[dim + 1 :]))
    order = [a for a in range(apart.rank) if a != dim + 1]
    return apart.permute([*order, dim + 1])


def as_strided(
    call: Call, x: Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Tensor:
    """Elements of x's memory at these strides: a gather of x as it lies there. Raises Refused where it has gaps."""
    layout = call.operands[0]
    if tuple(layout.shape) != x.shape or not x.elements:
        raise Refused("strides over memory that is not known")
    order = sorted(range(x.rank), key=lambda a: (-layout.stride(a), layout.shape[a] == 1))
    flat = x.permute(order)
    expected = 1
    for axis in reversed(order):
        if x.shape[axis] != 1 and layout.stride(axis) != expected:
            raise Refused("strides over memory with gaps")
        expected *= x.shape[axis]
    start = 0 if offset is None else offset - int(layout.storage_offset())
    last = start + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if not call.out.numel():
        return call.full(0)
    if start < 0 or last >= x.elements:
        raise Refused("strides beyond a tensor's own memory")
    places = call.writer.full((1,) * len(sizes), start, torch.int64)
    for axis, (n, stride) in enumerate(zip(sizes, strides, strict=True)):
        places = places + call.writer.iota([n if a == axis else 1 for a in range(len(sizes))], axis, 0, stride)
    index = places.broadcast(sizes).reshape((math.prod(sizes),))
    flat = flat.reshape((x.elements,))
    return call.writer.op("index_select", [flat, index], index.shape, x.dtype, axis=0).reshape(sizes)


# Ops whose lowerings depend on how an operand lies in memory, with its place among the arguments: `as_strided` reads by
# that, and an index that repeats along an axis (stride 0) is one for whole slices.
LAYOUT_OPS: Mapping[Any, int] = {
    aten.as_strided.default: 0,
    aten.as_strided_copy.default: 0,
    aten.scatter_add.default: 2,
    aten.scatter_reduce.two: 2,
}
_RESHAPES = (
    aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.reshape.default,
    aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.view_copy.default,
    aten.unsqueeze_copy.default, aten.squeeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims,
)  # fmt: skip

VIEWS: Mapping[Any, Lowering] = {
    **dict.fromkeys(_RESHAPES, reshaped),
    aten.expand.default: expand,
    aten.expand_copy.default: expand,
    prims.broadcast_in_dim.default: lambda call, x, shape, dims: call.writer.op(
        "broadcast_in_dim", [x], call.shape, x.dtype, shape=list(call.shape), dims=list(dims)
    ),
    aten.permute.default: permute,
    aten.permute_copy.default: permute,
    prims.transpose.default: permute,
    aten.transpose.int: transpose,
    aten.transpose_copy.int: transpose,
    aten.t.default: transpose,
    aten.t_copy.default: transpose,
    aten.slice.Tensor: sliced,
    aten.slice_copy.Tensor: sliced,
    aten.select.int: select,
    aten.select_copy.int: select,
    aten.split.Tensor: split,
    aten.split_copy.Tensor: split,
    aten.split_with_sizes.default: split,
    aten.split_with_sizes_copy.default: split,
    aten.unsafe_split.Tensor: split,
    aten.unsafe_split_with_sizes.default: split,
    aten.unbind.int: unbind,
    aten.unbind_copy.int: unbind,
    aten.diagonal.default: diagonal,
    aten.diagonal_copy.default: diagonal,
    aten.as_strided.default: as_strided,
    aten.as_strided_copy.default: as_strided,
    aten.cat.default: cat,
    aten.stack.default: stack,
    aten.repeat.default: repeat,
    aten.flip.default: flip,
    aten.roll.default: roll,
    aten.unfold.default: unfold,
    aten.unfold_copy.default: unfold,
}
