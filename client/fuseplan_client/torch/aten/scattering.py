"""Scatters. Where one index holds for whole slices, sums of slices are the wire's `scatter_sum`; PyTorch refuses
indices out of range at run time, there they add nothing.

Others the wire has no word for: those of few places are selections, one for each place.

    scatter(x, dim, index, source)[..., m, ...] = where(m == index[..., j, ...], source[..., j, ...], x[..., m, ...])

for j = 0, 1, ...: a pass over x for each j, so these are few. Where one index holds for whole slices, it is turned
around first: the last j with index[j] == m, for each m. That is a table of comparisons, whose size is limited.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, wide
from fuseplan_client.torch.aten.indexing import picked, wrapped
from fuseplan_client.torch.wire import Refused, Tensor, broadcast_shapes

MOST_PLACES = 4  # along the axis of a scatter whose index differs from slice to slice
MOST_COMPARISONS = 1 << 20  # of an index that is turned around: about a tenth of a millisecond
MOST_COMPARED = 1 << 26  # places of slices that all elements of a sum look at on a GPU, where each looks at all


def scatter(call: Call, x: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:
    """x with x[..., index[i], ...] = source[i]; of several for one place the last counts."""
    return _scattered(call, x, dim, index, source, lambda old, new: new)


def scatter_add(call: Call, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """x with source[i] added at x[..., index[i], ...]."""
    if not index.elements:
        return x
    axis = dim % x.rank if x.rank else 0
    if not x.rank or index.shape[axis] <= MOST_PLACES or not _is_one_for_slices(call, index, axis):
        return _scattered(call, x, dim, index, source, lambda old, new: old + new)
    place = index
    for a, n in enumerate(index.shape):  # PyTorch reads as much of the source as the index has
        source = source.sliced(a, 0, n)
        place = place if a == axis else place.sliced(a, 0, 1)
    place = place.cast(torch.int64).reshape((index.shape[axis],))
    missing = [0 if a == axis else n - m for a, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))]
    total = _sums(call, source, axis, place, x.shape[axis]).pad([0] * x.rank, missing)
    return (x.cast(total.dtype) + total).cast(x.dtype)


def scatter_reduce(
    call: Call, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """The sums of `scatter_add`, or means; without x where something is added and `include_self` is False."""
    if reduce not in ("sum", "mean") or (reduce == "mean" and not x.dtype.is_floating_point):
        raise Refused(f"a scatter by {reduce} of {x.dtype}")
    if not index.elements or (reduce == "sum" and include_self):
        return scatter_add(call, x, dim, index, source)
    w = call.writer
    count = scatter_add(
        call,
        w.full(x.shape, 0, torch.float32),
        dim,
        index,
        w.full(source.shape, 1, torch.float32),
    )
    if not include_self:
        x = w.where(count.compared("gt", 0), 0, x, x.dtype)
    total = scatter_add(call, x, dim, index, source)
    if reduce == "sum":
        return total
    inner = wide(x.dtype)
    several = count + 1 if include_self else count.pointwise("maximum", 1)
    return (total.cast(inner) / several.cast(inner)).cast(x.dtype)


def _is_one_for_slices(call: Call, index: Tensor, axis: int) -> bool:
    """Whether an index has one place for each whole slice: it repeats along all other axes, as an expanded one does."""
    others = [a for a, n in enumerate(index.shape) if a != axis and n > 1]
    if not others:
        return True
    return bool(call.operands) and all(call.operands[2].stride(a) == 0 for a in others)


def _scattered(call: Call, x: Tensor, dim: int, index: Tensor, source: Any, combine: Any) -> Tensor:
    w, shape = call.writer, x.shape
    if not index.elements:
        return x
    x = x if x.rank else x.reshape((1,))
    index = index.cast(torch.int64) if index.rank else index.cast(torch.int64).reshape((1,))
    dim %= x.rank
    if index.shape[dim] > MOST_PLACES:
        raise Refused("a scatter of more than a few places")
    if isinstance(source, Tensor):
        source = source if source.rank else source.reshape((1,))
        for axis, n in enumerate(index.shape):  # PyTorch reads as much of it as the index has
            source = source.sliced(axis, 0, n)
    missing = [0 if a == dim else n - m for a, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))]
    low = [0] * x.rank
    places = w.iota([n if a == dim else 1 for a, n in enumerate(x.shape)], dim)
    for j in range(index.shape[dim]):
        here = places.compared("eq", index.sliced(dim, j, j + 1).pad(low, missing, -1))
        new = source.sliced(dim, j, j + 1).pad(low, missing) if isinstance(source, Tensor) else source
        x = w.where(here, combine(x, new), x, x.dtype)
    return x.reshape(shape)


def _turned_around(index: Tensor, extent: int) -> Tensor:
    """For each place m of `extent` the last j with index[j] == m, else -1: [extent] from [places]."""
    w, count = index.writer, index.elements
    if extent * count > MOST_COMPARISONS:
        raise Refused("a scatter of many places")
    hit = w.iota((extent, 1)).compared("eq", index.reshape((1, count)))
    order = w.where(hit, w.iota((1, count), 1), -1, torch.int64)
    return order.reduced("max", (1,))


def _replaced(call: Call, x: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """x with the slices at `index` along an axis replaced by those of `source`."""
    w = x.writer
    order = _turned_around(index, x.shape[axis])
    column = [n if a == axis else 1 for a, n in enumerate(x.shape)]
    kept = order.compared("ge", 0).reshape(column)
    return w.where(kept, picked(source, axis, order.pointwise("maximum", 0)), x, x.dtype)


def _summed(call: Call, x: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """x with the slices of `source` added to those at `index` along an axis."""
    slices = (*x.shape[:axis], index.elements, *x.shape[axis + 1 :])
    total = _sums(call, source.broadcast(slices), axis, index.reshape((index.elements,)), x.shape[axis])
    return (x.cast(total.dtype) + total).cast(x.dtype)


def _sums(call: Call, source: Tensor, axis: int, index: Tensor, extent: int) -> Tensor:
    """For each place along an axis the sum of the slices of `source` with that index [slices]: in the dtype in which
    PyTorch computes, integers and bool in i64. Raises Refused on a GPU, whose kernels compare each place with all."""
    shape = (*source.shape[:axis], extent, *source.shape[axis + 1 :])
    if call.out.device.type != "cpu" and math.prod(shape) * index.elements > MOST_COMPARED:
        raise Refused("a scatter with sums of many places on a GPU")
    inner = wide(source.dtype) if source.dtype.is_floating_point else torch.int64
    return source.writer.op("scatter_sum", [source.cast(inner), index], shape, inner, axis=axis, extent=extent)


def index_copy(call: Call, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """x with x[..., index, ...] = source."""
    return _by_slices(call, x, dim, index, source, _replaced)


def index_add(call: Call, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """x with alpha source added to x[..., index, ...]."""
    return _by_slices(call, x, dim, index, source if alpha == 1 else source * alpha, _summed)


def _by_slices(call: Call, x: Tensor, dim: int, index: Tensor, source: Tensor, change: Any) -> Tensor:
    if not index.elements or not x.elements:
        return x
    if not x.rank:
        return change(call, x.reshape((1,)), 0, index.cast(torch.int64), source.reshape((1,))).reshape(())
    return change(call, x, dim % x.rank, index.cast(torch.int64), source)


def index_fill(call: Call, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """x with x[..., index, ...] = value."""
    if not index.elements or not x.elements:
        return x
    axis = dim % x.rank if x.rank else 0
    given = x if x.rank else x.reshape((1,))
    order = _turned_around(wrapped(index, given.shape[axis]), given.shape[axis])
    column = [n if a == axis else 1 for a, n in enumerate(given.shape)]
    return call.writer.where(order.compared("ge", 0).reshape(column), value, given, x.dtype).reshape(x.shape)


def index_put(
    call: Call, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *_: Any
) -> Tensor:
    """x with x[indices] = values, or values added there. A mask with one value is a selection."""
    if any(t is not None and t.dtype == torch.uint8 for t in indices):
        raise Refused("a mask of uint8 as an index")
    masks = [t for t in indices if t is not None and t.dtype == torch.bool]
    if masks:
        return _put_by_mask(x, indices, values, accumulate)
    places = [i for i, t in enumerate(indices) if t is not None]
    if not places or not x.elements:
        return x
    tensors = [t for t in indices if t is not None]
    shape = broadcast_shapes(*(t.shape for t in tensors))
    if not math.prod(shape):
        return x
    adjacent = places == list(range(places[0], places[-1] + 1))
    others = [a for a in range(x.rank) if a not in places]
    first = places[0] if adjacent else 0
    order = list(range(x.rank)) if adjacent else [*places, *others]
    moved = x.permute(order)
    extents = moved.shape[first : first + len(places)]
    before, behind = moved.shape[:first], moved.shape[first + len(places) :]
    flat = _flat(tensors, extents)
    count = math.prod(shape)
    source = values.cast(x.dtype).broadcast((*before, *shape, *behind)).reshape((*before, count, *behind))
    merged = moved.reshape((*before, math.prod(extents), *behind))
    change = _summed if accumulate else _replaced
    found = change(call, merged, first, flat.broadcast(shape).reshape((count,)), source).reshape(moved.shape)
    return found.permute([order.index(a) for a in range(x.rank)])


def _flat(indices: Sequence[Tensor], extents: Sequence[int]) -> Tensor:
    """Row-major places by one index for each axis; -1, which is none, where one of several is out of range."""
    places = [wrapped(tensor, extent) for tensor, extent in zip(indices, extents, strict=True)]
    flat, outside = places[0], list[Tensor]()
    for place, extent in zip(places, extents, strict=True):
        flat = place if place is places[0] else flat * extent + place
        outside += [place.compared("lt", 0), place.compared("ge", extent)]
    for off in outside if len(places) > 1 else ():
        flat = flat.writer.where(off, -1, flat, torch.int64)
    return flat


def _put_by_mask(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    (first, *others) = indices
    if first is None or others or values.elements != 1:
        raise Refused("a mask as an index: the result's shape depends on data")
    mask = first.reshape((*first.shape, *[1] * (x.rank - first.rank)))
    value = values.cast(x.dtype).reshape(())
    return x.writer.where(mask, x + value if accumulate else value, x, x.dtype).broadcast(x.shape)


def embedding_backward(
    call: Call, grad: Tensor, index: Tensor, rows: int, padding_index: int, scale_grad_by_freq: bool
) -> Tensor:
    """The gradient of a table: the sum of the gradients of its rows, of which `padding_index` gets none."""
    if scale_grad_by_freq:
        raise Refused("an embedding whose gradients are divided by frequency")
    w, width = call.writer, grad.shape[-1]
    if not index.elements:
        return w.full((rows, width), 0, grad.dtype)
    index = index.cast(torch.int64).reshape((index.elements,))
    if padding_index >= 0:
        index = w.where(index.compared("eq", padding_index), -1, index, torch.int64)
    return _sums(call, grad.reshape((index.elements, width)), 0, index, rows).cast(grad.dtype)


SCATTERING: Mapping[Any, Lowering] = {
    aten.scatter.src: scatter,
    aten.scatter.value: scatter,
    aten.scatter_add.default: scatter_add,
    aten.scatter_reduce.two: scatter_reduce,
    aten.index_copy.default: index_copy,
    aten.index_add.default: index_add,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten.embedding_dense_backward.default: embedding_backward,
}
