"""Scatters with sums: slices of one tensor are added up where an index says. The transpose of `index_select`.

    scatter_sum(x, index; axis, extent)[..., m, ...] = sum over i with index[i] == m of x[..., i, ...]

Places outside [0, extent) contribute nothing, and the sum of no slice is +0. Sums are those of op `sum`: in the
accumulate dtype, rounded once.
"""

from dataclasses import dataclass

import numpy as np

from fusion_ir.arithmetic.cache_blocks import BLOCK_ELEMENTS
from fusion_ir.arithmetic.conversions import accumulate, round_to
from fusion_ir.arithmetic.threads import side_by_side
from fusion_ir.core.extent import Extent, Shape
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, i64
from fusion_ir.ops.row import Op, OpKind, RuleError
from fusion_ir.ops.rules import Args, Attrs, attr, check_axes


def _dtype(args: Args, attrs: Attrs) -> DType:
    """Floats keep their dtype; integers and bool give i64, as in `sum`."""
    if args[1].dtype.name not in ("i32", "i64"):
        raise RuleError(f"the index must be i32 or i64, got {args[1].dtype}")
    return args[0].dtype if args[0].dtype.is_float else i64


def _shape(args: Args, attrs: Attrs) -> Shape:
    axis, extent, (x, index) = attr(attrs, "axis", int), attr(attrs, "extent", int), args
    check_axes((axis,), x.rank)
    if extent < 0:
        raise RuleError(f"extent must be 0 or more, got {extent}")
    if index.rank != 1:
        raise RuleError(f"the index must have rank 1, got {index.rank}")
    if index.sizes[0] != x.sizes[axis]:
        raise RuleError(f"axis {axis} has extent {x.sizes[axis]} in the operand, the index {index.sizes[0]}")
    return (*x.shape[:axis], Extent(extent), *x.shape[axis + 1 :])


@dataclass(frozen=True)
class Places:
    """The slices of a scatter in the order of their places. order: i64 numbers of the slices that have a place, those
    of one place next to each other in rising order. rows: the places that have slices, rising. starts: for each of
    them, where in `order` its slices begin."""

    order: np.ndarray
    rows: np.ndarray
    starts: np.ndarray

    def counts(self, extent: int) -> np.ndarray:
        """How many slices each place has: i64[extent]."""
        found = np.zeros(extent, np.int64)
        found[self.rows] = np.diff(self.starts, append=self.order.size)
        return found


def places_of(index: np.ndarray, extent: int) -> Places:
    """The places within [0, extent) that an index i32 or i64 [n] names."""
    inside = np.flatnonzero((index >= 0) & (index < extent))
    order = inside[np.argsort(index[inside], kind="stable")]
    rows, starts = np.unique(index[order], return_index=True)
    return Places(order, rows.astype(np.int64), starts)


def added_at(x: np.ndarray, index: np.ndarray, axis: int, extent: int) -> np.ndarray:
    """The sums of the slices of `x` along `axis` by their places, in x's dtype: x's shape, with `extent` on that axis.
    Each element's bits depend on the terms of its own sum alone."""
    found, lines = places_of(index, extent), np.moveaxis(x, axis, -1)
    result = np.zeros((*lines.shape[:-1], extent), x.dtype)
    if not found.rows.size or not result.size:
        return np.moveaxis(result, -1, axis)
    flat, out = lines.reshape(-1, lines.shape[-1]), result.reshape(-1, extent)
    step = max(BLOCK_ELEMENTS // max(found.order.size, 1), 1)

    def put(first: int) -> None:
        terms = np.ascontiguousarray(flat[first : first + step, found.order])
        out[first : first + step, found.rows] = np.add.reduceat(terms, found.starts, axis=-1)

    side_by_side(put, range(0, flat.shape[0], step))
    return np.moveaxis(result, -1, axis)


def _reference(node: Node, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    axis, extent = node.attr("axis", int), node.attr("extent", int)
    return round_to(np.ascontiguousarray(added_at(accumulate(x), index, axis, extent)), node.dtype)


SCATTERING: tuple[Op, ...] = (
    Op("scatter_sum", OpKind.SCATTER,
       "sum of the slices x[..., i, ...] with index[i] == m, for each m < extent; other places count nowhere; dtype as "
       "sum", 2, _dtype, _shape, _reference, attrs={"axis": "axis", "extent": "int"}),
)  # fmt: skip
