"""View ops: index maps, and tensors that are functions of the index alone. None of them moves data by itself."""

import itertools
from collections.abc import Sequence

import numpy as np

from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.core.extent import Shape, elements, shape_of, sizes
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType, compute_dtype
from fusion_ir.ops import axis_maps
from fusion_ir.ops.row import Op, OpKind, RuleError
from fusion_ir.ops.rules import Args, Attrs, attr, check_axes, ints, same, scalar_attr, shape_attr

MOST_OPERANDS = 4096
# Views of which each element is one of their operand's: no values of their own, no other operands.
SELECTIONS = ("reshape", "permute", "broadcast_in_dim", "expand", "slice", "squeeze")


def _per_axis(attrs: Attrs, names: Sequence[str], rank: int) -> list[tuple[int, ...]]:
    """The attributes `names`, each one integer per axis."""
    values = [ints(attrs, name) for name in names]
    for name, value in zip(names, values, strict=True):
        if len(value) != rank:
            raise RuleError(f"{name} has {len(value)} entries for rank {rank}")
    return values


def _reshape(args: Args, attrs: Attrs) -> Shape:
    shape = shape_attr(attrs)
    if elements(shape) != args[0].elements:
        raise RuleError(f"{list(args[0].sizes)} has {args[0].elements} elements, {list(shape)} has {elements(shape)}")
    return shape


def _permute(args: Args, attrs: Attrs) -> Shape:
    dims = ints(attrs, "dims")
    if sorted(dims) != list(range(args[0].rank)):
        raise RuleError(f"dims {list(dims)} is not a permutation of the {args[0].rank} axes")
    return tuple(args[0].shape[d] for d in dims)


def _broadcast(operand: Node, shape: Shape, dims: Sequence[int]) -> Shape:
    for axis, dim in enumerate(dims):
        if not operand.shape[axis].is_one and operand.shape[axis] != shape[dim]:
            raise RuleError(f"axis {axis} has extent {operand.shape[axis]}, axis {dim} of the result {shape[dim]}")
    return shape


def _broadcast_in_dim(args: Args, attrs: Attrs) -> Shape:
    shape, dims = shape_attr(attrs), ints(attrs, "dims")
    if len(dims) != args[0].rank:
        raise RuleError(f"dims has {len(dims)} entries for rank {args[0].rank}")
    check_axes(dims, len(shape))
    if any(a >= b for a, b in itertools.pairwise(dims)):
        raise RuleError(f"dims {list(dims)} must increase")
    return _broadcast(args[0], shape, dims)


def _expand(args: Args, attrs: Attrs) -> Shape:
    shape = shape_attr(attrs)
    if len(shape) != args[0].rank:
        raise RuleError(f"shape {list(shape)} has rank {len(shape)}, the operand has {args[0].rank}")
    return _broadcast(args[0], shape, range(len(shape)))


def _slice(args: Args, attrs: Attrs) -> Shape:
    starts, stops, steps = _per_axis(attrs, ("start", "stop", "step"), args[0].rank)
    for axis, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        if step < 1 or not 0 <= start <= stop <= args[0].sizes[axis]:
            raise RuleError(f"axis {axis} of extent {args[0].sizes[axis]} cannot be cut by {start}:{stop}:{step}")
    return shape_of(-(-(stop - start) // step) for start, stop, step in zip(starts, stops, steps, strict=True))


def _pad(args: Args, attrs: Attrs) -> Shape:
    low, high = _per_axis(attrs, ("low", "high"), args[0].rank)
    if scalar_attr(attrs, "value").dtype != args[0].dtype:
        raise RuleError(f"the value is {scalar_attr(attrs, 'value').dtype}, the operand {args[0].dtype}")
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        if args[0].sizes[axis] + before + after < 0:
            raise RuleError(f"axis {axis} of extent {args[0].sizes[axis]} cannot be cropped by {before} and {after}")
    return shape_of(n + before + after for n, before, after in zip(args[0].sizes, low, high, strict=True))


def _cat(args: Args, attrs: Attrs) -> Shape:
    axis, first = attr(attrs, "axis", int), args[0]
    check_axes((axis,), first.rank)
    for position, arg in enumerate(args):
        if arg.rank != first.rank:
            raise RuleError(f"operand 0 has rank {first.rank}, operand {position} has rank {arg.rank}")
        for other in range(first.rank):
            if other != axis and arg.shape[other] != first.shape[other]:
                raise RuleError(
                    f"axis {other} has extent {first.shape[other]} in operand 0, "
                    f"{arg.shape[other]} in operand {position}"
                )
    total = shape_of([sum(arg.sizes[axis] for arg in args)])
    return first.shape[:axis] + total + first.shape[axis + 1 :]


def _squeeze(args: Args, attrs: Attrs) -> Shape:
    axes = ints(attrs, "axes")
    check_axes(axes, args[0].rank)
    for axis in axes:
        if not args[0].shape[axis].is_one:
            raise RuleError(f"axis {axis} has extent {args[0].shape[axis]}, only extent 1 can be dropped")
    return tuple(n for axis, n in enumerate(args[0].shape) if axis not in axes)


def _given_shape(args: Args, attrs: Attrs) -> Shape:
    return shape_attr(attrs)


def _iota_shape(args: Args, attrs: Attrs) -> Shape:
    check_axes((attr(attrs, "axis", int),), len(shape_attr(attrs)))
    return shape_attr(attrs)


def _iota_dtype(args: Args, attrs: Attrs) -> DType:
    start, step = scalar_attr(attrs, "start"), scalar_attr(attrs, "step")
    if start.dtype != step.dtype or start.dtype.kind == "bool":
        raise RuleError(f"start and step must be numbers of one dtype, got {start.dtype} and {step.dtype}")
    return start.dtype


def _value_dtype(args: Args, attrs: Attrs) -> DType:
    return scalar_attr(attrs, "value").dtype


# References: NumPy views where NumPy can


def _reshape_reference(node: Node, x: np.ndarray) -> np.ndarray:
    return x.reshape(node.sizes)


def _permute_reference(node: Node, x: np.ndarray) -> np.ndarray:
    return x.transpose(node.ints("dims"))


def _broadcast_reference(node: Node, x: np.ndarray) -> np.ndarray:
    dims = node.ints("dims")
    kept = [1] * node.rank
    for axis, dim in enumerate(dims):
        kept[dim] = x.shape[axis]
    return np.broadcast_to(x.reshape(kept), node.sizes)


def _expand_reference(node: Node, x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x, node.sizes)


def _slice_reference(node: Node, x: np.ndarray) -> np.ndarray:
    bounds = zip(node.ints("start"), node.ints("stop"), node.ints("step"), strict=True)
    return x[tuple(slice(*b) for b in bounds)]


def _pad_reference(node: Node, x: np.ndarray) -> np.ndarray:
    result = np.empty(node.sizes, x.dtype)
    result[...] = node.attr("value", Scalar).array().view(x.dtype)
    to: list[slice] = []
    source: list[slice] = []
    for extent, size, low in zip(x.shape, node.sizes, node.ints("low"), strict=True):
        first, last = max(low, 0), min(low + extent, size)
        to.append(slice(first, max(last, first)))
        source.append(slice(first - low, max(last, first) - low))
    if all(s.stop > s.start for s in to):
        result[tuple(to)] = x[tuple(source)]
    return result


def _cat_reference(node: Node, *arrays: np.ndarray) -> np.ndarray:
    return np.concatenate(arrays, axis=node.attr("axis", int))


def _squeeze_reference(node: Node, x: np.ndarray) -> np.ndarray:
    return x.squeeze(node.ints("axes"))


def _iota_reference(node: Node) -> np.ndarray:
    axis, wide = node.attr("axis", int), compute_dtype(node.dtype)
    start, step = (round_to(node.attr(name, Scalar).array(), wide) for name in ("start", "step"))
    with np.errstate(all="ignore"):
        index = round_to(np.arange(node.sizes[axis], dtype=np.int64), wide)
        line = round_to(start.reshape(1) + step.reshape(1) * index, node.dtype)
    return np.broadcast_to(line.reshape([-1 if a == axis else 1 for a in range(node.rank)]), node.sizes)


def _full_reference(node: Node) -> np.ndarray:
    return np.broadcast_to(node.attr("value", Scalar).array(), sizes(node.shape))


VIEWS: tuple[Op, ...] = (
    Op("reshape", OpKind.VIEW, "same elements in row-major order", 1, same, _reshape, _reshape_reference,
       attrs={"shape": "shape"}, cost=0, axis_maps=axis_maps.reshape),
    Op("permute", OpKind.VIEW, "axis i of the result is axis dims[i] of x", 1, same, _permute, _permute_reference,
       attrs={"dims": "ints"}, cost=0, axis_maps=axis_maps.permute),
    Op("broadcast_in_dim", OpKind.VIEW, "axis i of x becomes axis dims[i]; extents equal or 1; dims increase", 1, same,
       _broadcast_in_dim, _broadcast_reference, attrs={"shape": "shape", "dims": "ints"}, cost=0,
       axis_maps=axis_maps.broadcast_in_dim),
    Op("expand", OpKind.VIEW, "axes of extent 1 repeated", 1, same, _expand, _expand_reference,
       attrs={"shape": "shape"}, cost=0, axis_maps=axis_maps.expand),
    Op("slice", OpKind.VIEW, "x[start:stop:step] per axis, 0 <= start <= stop <= extent, step >= 1", 1, same, _slice,
       _slice_reference, attrs={"start": "ints", "stop": "ints", "step": "ints"}, cost=0,
       axis_maps=axis_maps.slice_),
    Op("pad", OpKind.VIEW, "x[i - low], `value` where that is outside; negative widths crop", 1, same, _pad,
       _pad_reference, attrs={"low": "ints", "high": "ints", "value": "scalar"}, cost=0,
       axis_maps=axis_maps.pad),
    Op("cat", OpKind.VIEW, "operands one after the other along `axis`", (1, MOST_OPERANDS), same, _cat, _cat_reference,
       attrs={"axis": "axis"}, cost=0, axis_maps=axis_maps.cat),
    Op("squeeze", OpKind.VIEW, "axes of extent 1 dropped", 1, same, _squeeze, _squeeze_reference,
       attrs={"axes": "axes"}, cost=0, axis_maps=axis_maps.squeeze),
    Op("iota", OpKind.VIEW, "start + step * index along `axis`; ints wrap, floats round the product and the sum", 0,
       _iota_dtype, _iota_shape, _iota_reference,
       attrs={"shape": "shape", "axis": "axis", "start": "scalar", "step": "scalar"}, cost=2),
    Op("full", OpKind.VIEW, "the constant `value`", 0, _value_dtype, _given_shape, _full_reference,
       attrs={"shape": "shape", "value": "scalar"}, cost=0),
)  # fmt: skip
