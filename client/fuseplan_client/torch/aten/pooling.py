"""Pools: windows as strided slices, one for each place in a window, which are few.

pooled[..., i] = padded[..., s i] + padded[..., s i + d] + ... + padded[..., s i + (k - 1) d]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, wide
from fuseplan_client.torch.aten.padding import placed
from fuseplan_client.torch.wire import Number, Refused, Tensor

MOST_PLACES = 32  # in a window: each is an op on a tensor of the result's size


@dataclass(frozen=True)
class Windows:
    """Windows over the last axes: their extents, the steps between them, the zeros before, the gaps inside, and how
    many there are."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    before: tuple[int, ...]
    gaps: tuple[int, ...]
    counts: tuple[int, ...]

    def padded(self, x: Tensor, value: Number) -> Tensor:
        """x with `value` around it, so that every window lies inside."""
        low, high = [0] * x.rank, [0] * x.rank
        for i, (k, s, p, d, n) in enumerate(self._axes()):
            axis = x.rank - len(self.sizes) + i
            low[axis] = p
            high[axis] = max(0, (n - 1) * s + (k - 1) * d + 1 - p - x.shape[axis])
        return x.pad(low, high, value)

    def places(self) -> list[tuple[int, ...]]:
        """The places in a window, in row-major order, by their distance from its first. Raises Refused for many."""
        if prod(self.sizes) > MOST_PLACES:
            raise Refused("a pool of large windows")
        return list(product(*(range(0, k * d, d) for k, d in zip(self.sizes, self.gaps, strict=True))))

    def at(self, padded: Tensor, place: Sequence[int]) -> Tensor:
        """The element at one place of each window."""
        for i, (start, (_, s, _, _, n)) in enumerate(zip(place, self._axes(), strict=True)):
            axis = padded.rank - len(self.sizes) + i
            padded = padded.sliced(axis, start, start + (n - 1) * s + 1, s)
        return padded

    def back(self, call: Call, values: Tensor, place: Sequence[int], extents: Sequence[int]) -> Tensor:
        """The inverse of `at`: a value for each window at one of its places in a tensor of `extents`, else 0."""
        for i, (start, (k, s, p, d, n)) in enumerate(zip(place, self._axes(), strict=True)):
            axis = values.rank - len(self.sizes) + i
            whole = max((n - 1) * s + (k - 1) * d + 1, p + extents[i])
            sizes = [whole if a == axis else m for a, m in enumerate(values.shape)]
            values = placed(call, values, sizes, axis, start, s)[0].sliced(axis, p, p + extents[i])
        return values

    def _axes(self) -> list[tuple[int, int, int, int, int]]:
        return list(zip(self.sizes, self.steps, self.before, self.gaps, self.counts, strict=True))


def _windows(
    rank: int, shape: Sequence[int], kernel: Sequence[int], step: Sequence[int], before: Any, gaps: Any = (1,)
) -> Windows:
    def of_each(value: Sequence[int] | int) -> tuple[int, ...]:
        given = [value] if isinstance(value, int) else list(value)
        return tuple(given * rank if len(given) == 1 else given)

    sizes = of_each(kernel)
    return Windows(sizes, of_each(step) if step else sizes, of_each(before), of_each(gaps), tuple(shape[-rank:]))


def _divisors(call: Call, x: Tensor, windows: Windows, count_padding: bool, override: int | None) -> Tensor | float:
    """The numbers of elements that windows are divided by: one for all, or [..., windows] along the last axes."""
    if override is not None:
        return float(override)
    w, inner = call.writer, wide(x.dtype)
    counts = w.full((), 1, inner)
    rank = len(windows.sizes)
    for i, (k, s, p, _, n) in enumerate(windows._axes()):
        extent = x.shape[x.rank - rank + i]
        shape = [n if a == i else 1 for a in range(rank)]
        start = w.iota(shape, i, -p, s)
        stop = (start + k).pointwise("minimum", extent + p)
        if not count_padding:
            start, stop = start.pointwise("maximum", 0), stop.pointwise("minimum", extent)
        counts = counts * (stop - start).cast(inner)
    return counts


def average(rank: int) -> Lowering:
    """The mean of windows over the last `rank` axes."""

    def lower(
        call: Call,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        if not x.dtype.is_floating_point or not x.elements:
            raise Refused("a mean of integers, or of nothing")
        windows = _windows(rank, call.shape, kernel, stride, padding)
        padded = windows.padded(x.cast(wide(x.dtype)), 0)
        first, *others = (windows.at(padded, place) for place in windows.places())
        for other in others:
            first = first + other
        return (first / _divisors(call, x, windows, count_include_pad, divisor_override)).cast(call.dtype)

    return lower


def average_backward(rank: int) -> Lowering:
    """The gradient of a mean of windows: to each element, those of the windows that it is in."""

    def lower(
        call: Call,
        grad: Tensor,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        windows = _windows(rank, grad.shape, kernel, stride, padding)
        share = grad.cast(wide(grad.dtype))
        share = share / _divisors(call, x, windows, count_include_pad, divisor_override)
        parts = [windows.back(call, share, place, x.shape[-rank:]) for place in windows.places()]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total.cast(call.dtype)

    return lower


def largest(rank: int) -> Lowering:
    """(the largest of windows over the last axes, its index in these as they lie flat). NaN is the largest."""

    def lower(
        call: Call,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        if not x.dtype.is_floating_point or not x.elements:
            raise Refused("a largest integer of windows, or of nothing")
        w = call.writer
        windows = _windows(rank, call.out[0].shape, kernel, stride, padding, dilation)
        padded = windows.padded(x, -inf)
        best: Tensor | None = None
        where = _index(call, x, windows, windows.places()[0])
        for place in windows.places():
            value = windows.at(padded, place)
            if best is None:
                # The first place of a window that is inside, which counts even where it is -inf.
                best = value
                continue
            index = _index(call, x, windows, place)
            larger = value.compared("gt", best).pointwise("logical_or", value.pointwise("isnan", dtype=torch.bool))
            larger = larger.pointwise("logical_or", where.compared("lt", 0))
            larger = larger.pointwise("logical_and", index.compared("ge", 0))
            best = w.where(larger, value, best, x.dtype)
            where = w.where(larger, index, where, torch.int64)
        assert best is not None
        return best, where.broadcast(best.shape)

    return lower


def _index(call: Call, x: Tensor, windows: Windows, place: Sequence[int]) -> Tensor:
    """The index of one place of each window in the last axes as they lie flat; -1 outside of x. [windows]"""
    w, rank = call.writer, len(windows.sizes)
    extents = x.shape[-rank:]
    index = w.full((), 0, torch.int64)
    inside = w.full((), True, torch.bool)
    for i, (_, s, p, _, n) in enumerate(windows._axes()):
        position = w.iota([n if a == i else 1 for a in range(rank)], i, place[i] - p, s)
        inside = inside.pointwise("logical_and", position.compared("ge", 0))
        inside = inside.pointwise("logical_and", position.compared("lt", extents[i]))
        index = index * extents[i] + position
    return w.where(inside, index, -1, torch.int64)


def largest_backward(rank: int) -> Lowering:
    """The gradient of the largest of windows: to the element whose index each window has."""

    def lower(
        call: Call,
        grad: Tensor,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        indices: Tensor,
    ) -> Tensor:
        w, inner = call.writer, wide(grad.dtype)
        windows = _windows(rank, grad.shape, kernel, stride, padding, dilation)
        total: Tensor | None = None
        for place in windows.places():
            here = indices.compared("eq", _index(call, x, windows, place))
            part = windows.back(call, w.where(here, grad, 0, inner), place, x.shape[-rank:])
            total = part if total is None else total + part
        assert total is not None
        return total.cast(call.dtype)

    return lower


def adaptive_average(rank: int) -> Lowering:
    """The mean of as many equal windows as the result has, where these are as long as each other."""

    def lower(call: Call, x: Tensor, sizes: Sequence[int]) -> Tensor:
        return _equal(call, x, call.shape[-rank:])

    return lower


def _equal(call: Call, x: Tensor, counts: Sequence[int]) -> Tensor:
    rank = len(counts)
    if not x.elements or any(not m or n % m for n, m in zip(x.shape[-rank:], counts, strict=True)):
        raise Refused("an adaptive pool whose windows differ")
    apart = [n for size, m in zip(x.shape[-rank:], counts, strict=True) for n in (m, size // m)]
    front = x.rank - rank
    rows = x.cast(wide(x.dtype)).reshape((*x.shape[:front], *apart))
    return rows.reduced("mean", [front + 2 * i + 1 for i in range(rank)]).cast(x.dtype)


def adaptive_average_backward(rank: int) -> Lowering:
    """The gradient of the mean of equal windows: each window's over all of its elements."""

    def lower(call: Call, grad: Tensor, x: Tensor) -> Tensor:
        counts, sizes = grad.shape[-rank:], x.shape[-rank:]
        if not x.elements or any(not m or n % m for n, m in zip(sizes, counts, strict=True)):
            raise Refused("an adaptive pool whose windows differ")
        lengths = [n // m for n, m in zip(sizes, counts, strict=True)]
        front = grad.shape[: grad.rank - rank]
        share = grad.cast(wide(grad.dtype)) / float(prod(lengths))
        columns = [n for m in counts for n in (m, 1)]
        windows = [n for m, k in zip(counts, lengths, strict=True) for n in (m, k)]
        return share.reshape((*front, *columns)).broadcast((*front, *windows)).reshape(x.shape).cast(call.dtype)

    return lower


POOLING: Mapping[Any, Lowering] = {
    aten.avg_pool1d.default: average(1),
    aten.avg_pool2d.default: average(2),
    aten.avg_pool3d.default: average(3),
    aten.avg_pool2d_backward.default: average_backward(2),
    aten.avg_pool3d_backward.default: average_backward(3),
    aten.max_pool2d_with_indices.default: largest(2),
    aten.max_pool3d_with_indices.default: largest(3),
    aten.max_pool2d_with_indices_backward.default: largest_backward(2),
    aten.max_pool3d_with_indices_backward.default: largest_backward(3),
    aten._adaptive_avg_pool2d_backward.default: adaptive_average_backward(2),
    aten._adaptive_avg_pool3d_backward.default: adaptive_average_backward(3),
    aten._adaptive_avg_pool3d.default: adaptive_average(3),
}
