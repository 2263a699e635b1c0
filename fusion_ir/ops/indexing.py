"""Gathers: the operand is read where another tensor says. Indices are clamped to [0, extent - 1]."""

import numpy as np

from fusion_ir.core.extent import Shape
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops.row import Op, OpKind, RuleError
from fusion_ir.ops.rules import Args, Attrs, attr, check_axes


def _dtype(args: Args, attrs: Attrs) -> DType:
    if args[1].dtype.name not in ("i32", "i64"):
        raise RuleError(f"the index must be i32 or i64, got {args[1].dtype}")
    return args[0].dtype


def _axis(args: Args, attrs: Attrs) -> int:
    axis = attr(attrs, "axis", int)
    check_axes((axis,), args[0].rank)
    if args[0].sizes[axis] == 0 and args[1].elements:
        raise RuleError(f"axis {axis} has extent 0: there is nothing to read")
    return axis


def _gather(args: Args, attrs: Attrs) -> Shape:
    axis, (x, index) = _axis(args, attrs), args
    if x.rank != index.rank:
        raise RuleError(f"the operand has rank {x.rank}, the index {index.rank}")
    for other in range(x.rank):
        if other != axis and index.sizes[other] > x.sizes[other]:
            raise RuleError(
                f"axis {other} has extent {index.sizes[other]} in the index, only {x.sizes[other]} in the operand"
            )
    return index.shape


def _take_along_axis(args: Args, attrs: Attrs) -> Shape:
    axis, (x, index) = _axis(args, attrs), args
    if x.rank != index.rank:
        raise RuleError(f"the operand has rank {x.rank}, the index {index.rank}")
    for other in range(x.rank):
        if other != axis and index.shape[other] != x.shape[other]:
            raise RuleError(
                f"axis {other} has extent {index.sizes[other]} in the index, {x.sizes[other]} in the operand"
            )
    return index.shape


def _index_select(args: Args, attrs: Attrs) -> Shape:
    axis, (x, index) = _axis(args, attrs), args
    if index.rank != 1:
        raise RuleError(f"the index must have rank 1, got {index.rank}")
    return x.shape[:axis] + index.shape + x.shape[axis + 1 :]


def _gather_reference(node: Node, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    axis = node.attr("axis", int)
    if index.size == 0:
        return np.empty(node.sizes, x.dtype)
    used = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(index.shape))]
    return np.take_along_axis(used, np.clip(index, 0, x.shape[axis] - 1).astype(np.int64), axis)


def _index_select_reference(node: Node, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    axis = node.attr("axis", int)
    if index.size == 0:
        return np.empty(node.sizes, x.dtype)
    return np.take(x, np.clip(index, 0, x.shape[axis] - 1).astype(np.int64), axis)


INDEXING: tuple[Op, ...] = (
    Op("gather", OpKind.GATHER, "x[..., index[i], ...]; the result has the index's shape, within x on other axes", 2,
       _dtype, _gather, _gather_reference, attrs={"axis": "axis"}),
    Op("take_along_axis", OpKind.GATHER, "gather with equal extents on the other axes", 2, _dtype, _take_along_axis,
       _gather_reference, attrs={"axis": "axis"}),
    Op("index_select", OpKind.GATHER, "whole slices of x at index[i] along `axis`", 2, _dtype, _index_select,
       _index_select_reference, attrs={"axis": "axis"}),
)  # fmt: skip
