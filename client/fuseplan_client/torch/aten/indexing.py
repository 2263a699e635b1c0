"""Gathers. Indices out of range, which PyTorch refuses at run time, are clamped by the wire."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten
from fuseplan_client.torch.wire import Refused, Tensor, broadcast_shapes


def wrapped(index: Tensor, extent: int) -> Tensor:
    """The index in i64, negative values counted from the end."""
    index = index.cast(torch.int64)
    return index.writer.where(index.compared("lt", 0), index + extent, index, torch.int64)


def whole(index: Tensor) -> Tensor:
    """The index in a dtype that gathers take."""
    return index if index.dtype in (torch.int32, torch.int64) else index.cast(torch.int64)


def picked(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """Slices of x along `axis` at `index`, whose axes take the place of that one."""
    flat = whole(index).reshape((index.elements,))
    shape = (*x.shape[:axis], index.elements, *x.shape[axis + 1 :])
    if not math.prod(shape):
        found = x.writer.full(shape, 0, x.dtype)
    else:
        found = x.writer.op("index_select", [x, flat], shape, x.dtype, axis=axis)
    return found.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def embedding(call: Call, table: Tensor, index: Tensor, *_: Any, **__: Any) -> Tensor:
    """Rows of a table."""
    return picked(table, 0, index)


def index_select(call: Call, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices of x along an axis."""
    if not x.rank:
        return x.reshape((1,)).broadcast((index.elements,)).reshape(call.shape)
    return picked(x, dim % x.rank, index.reshape((index.elements,)))


def gather(call: Call, x: Tensor, dim: int, index: Tensor, **_: Any) -> Tensor:
    """x[..., index[i], ...]."""
    if not index.elements:
        return call.full(0)
    if not x.rank or not index.rank:
        column = gather_along(x.reshape((max(x.elements, 1),)), 0, index.reshape((1,)))
        return column.reshape(call.shape)
    return gather_along(x, dim % x.rank, index)


def gather_along(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """x[..., index[i], ...] for an index of x's rank."""
    return x.writer.op("gather", [x, whole(index)], index.shape, x.dtype, axis=axis)


def take(call: Call, x: Tensor, index: Tensor) -> Tensor:
    """Elements of x as it lies flat."""
    return picked(x.reshape((x.elements,)), 0, wrapped(index, x.elements))


def index(call: Call, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[..., i, j, ...]: index tensors as one index into their axes taken together, which come to the front where they
    are not adjacent."""
    places = [i for i, t in enumerate(indices) if t is not None]
    if not places:
        return x
    if any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in indices):
        raise Refused("a mask as an index: the result's shape depends on data")
    order = list(range(x.rank))
    if places != list(range(places[0], places[-1] + 1)):
        order = [*places, *(a for a in order if a not in places)]
        x = x.permute(order)
        first = 0
    else:
        first = places[0]
    tensors = [t for t in indices if t is not None]
    extents = x.shape[first : first + len(tensors)]
    shape = broadcast_shapes(*(t.shape for t in tensors))
    flat: Tensor | None = None
    for tensor, extent in zip(tensors, extents, strict=True):
        place = wrapped(tensor, extent)
        flat = place if flat is None else flat * extent + place
    assert flat is not None
    merged = x.reshape((*x.shape[:first], math.prod(extents), *x.shape[first + len(tensors) :]))
    return picked(merged, first, flat.broadcast(shape))


INDEXING: Mapping[Any, Lowering] = {
    aten.embedding.default: embedding,
    aten.index_select.default: index_select,
    aten.gather.default: gather,
    aten.take.default: take,
    aten.index.Tensor: index,
    aten._unsafe_index.Tensor: index,
}
