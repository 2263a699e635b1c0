"""MIGraphX's view ops: values of our language, and the strides that the results have in the operand's memory."""

from collections.abc import Sequence

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.node import Node
from fusion_ir.formats.migraphx.missing_operands import (
    element_type,
    like_result,
    same_memory,
    squeezed,
    transposed,
    unsqueezed,
)
from fusion_ir.formats.migraphx.row import Row, Strides, View
from fusion_ir.ops import RuleError

# MIGraphX has no rank 0: what would have it gets one axis.
_SCALAR = [1]


def lazy_strides(sizes: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> Strides | None:
    """Strides of a reshape that moves nothing, or None where there are none.

    Runs of axes of the operand that lie in one piece (each stride the next one's times its extent) are cut anew.

        (1, 348, 12, 64), strides (267264, 768, 64, 1), target (348, 768)  ->  (768, 1)
    """
    if 0 in sizes:
        return dense_strides(target)
    runs: list[tuple[int, int]] = []  # elements and innermost stride, from the outermost run
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    result = list(dense_strides(target))
    position, left = len(runs) - 1, 1
    step = 0
    for axis in reversed(range(len(target))):
        if target[axis] == 1:
            continue
        if left == 1:
            if position < 0:
                return None
            left, step = runs[position]
            position -= 1
        if left % target[axis]:
            return None
        result[axis] = step
        step *= target[axis]
        left //= target[axis]
    return tuple(result) if left == 1 and position < 0 else None


def _dims(x: Node, dims: Sequence[int]) -> list[int]:
    """Extents of a reshape: 0 keeps the operand's, one -1 is what remains."""
    return [x.sizes[a] if d == 0 and a < x.rank else d for a, d in enumerate(dims)]


def _view(node: Node, *strides: Strides | None) -> View:
    return View(node, tuple(s for s in strides if s is not None))


def _reshape_lazy(x: Node, strides: Sequence[int], dims: Sequence[int]) -> View:
    node = build.reshape(x, _dims(x, dims))
    lazy = lazy_strides(x.sizes, strides, node.sizes)
    if lazy is None:
        raise RuleError(f"{list(x.sizes)} with strides {list(strides)} cannot become {list(node.sizes)} "
                        "without a copy")  # fmt: skip
    return _view(node, lazy)


def _reshape(x: Node, strides: Sequence[int], dims: Sequence[int]) -> View:
    """A view in older releases, a copy in newer ones."""
    node = build.reshape(x, _dims(x, dims))
    return _view(node, dense_strides(node.sizes), lazy_strides(x.sizes, strides, node.sizes))


def _flatten(x: Node, strides: Sequence[int], axis: int = 1) -> View:
    """Two axes: those before `axis` and the others."""
    if not -x.rank <= axis <= x.rank:
        raise RuleError(f"flatten: axis {axis} is out of range for rank {x.rank}")
    at = axis + x.rank if axis < 0 else axis
    first = 1
    for size in x.sizes[:at]:
        first *= size
    node = build.reshape(x, [first, x.elements // first if first else 0])
    return _view(node, dense_strides(node.sizes), lazy_strides(x.sizes, strides, node.sizes))


def _transpose(x: Node, strides: Sequence[int], permutation: Sequence[int]) -> View:
    node = build.permute(x, permutation)
    return _view(node, tuple(strides[a] for a in permutation))


def _slice(x: Node, strides: Sequence[int], axes: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> View:
    """Bounds as in Python: negative ones count from the end, those beyond it are clipped."""
    if not len(axes) == len(starts) == len(ends):
        raise RuleError(f"slice: {len(axes)} axes, {len(starts)} starts and {len(ends)} ends")
    start, stop = [0] * x.rank, list(x.sizes)
    for axis, first, last in zip(axes, starts, ends, strict=True):
        at = build.normal_axis(axis, x.rank)
        start[at], stop[at] = first, last
    return _view(build.slice_(x, start, stop), tuple(strides))


def _step(x: Node, strides: Sequence[int], axes: Sequence[int], steps: Sequence[int]) -> View:
    """Every n-th element."""
    if len(axes) != len(steps):
        raise RuleError(f"step: {len(axes)} axes and {len(steps)} steps")
    every = [1] * x.rank
    for axis, n in zip(axes, steps, strict=True):
        every[build.normal_axis(axis, x.rank)] = n
    node = build.slice_(x, [0] * x.rank, x.sizes, every)
    return _view(node, tuple(s * n for s, n in zip(strides, every, strict=True)))


def _multibroadcast(
    x: Node,
    strides: Sequence[int],
    out_lens: Sequence[int] = (),
    output_lens: Sequence[int] = (),
    out_dyn_dims: Sequence[int] = (),
) -> View:
    """Trailing axes aligned; axes of extent 1 that are repeated get stride 0."""
    target = tuple(out_lens or output_lens)
    node = build.broadcast_to(x, target)
    new = len(target) - x.rank
    kept = [s if n == target[new + a] else 0 for a, (n, s) in enumerate(zip(x.sizes, strides, strict=True))]
    return _view(node, (*([0] * new), *kept))


def _broadcast(
    x: Node,
    strides: Sequence[int],
    axis: int = 0,
    dims: Sequence[int] = (),
    out_lens: Sequence[int] = (),
    out_dyn_dims: Sequence[int] = (),
) -> View:
    """The operand's axes stand from `axis` on; along the others it is repeated."""
    target = tuple(out_lens or dims)
    at = axis + len(target) if axis < 0 else axis
    if at < 0 or at + x.rank > len(target) or (target[at : at + x.rank] != x.sizes and x.elements != 1):
        raise RuleError(f"broadcast: {list(x.sizes)} does not stand in {list(target)} from axis {axis} on")
    node = build.broadcast_in_dim(x, target, range(at, at + x.rank))
    inside = [s if n == target[at + a] else 0 for a, (n, s) in enumerate(zip(x.sizes, strides, strict=True))]
    return _view(node, (*([0] * at), *inside, *([0] * (len(target) - at - x.rank))))


def _squeeze(x: Node, strides: Sequence[int], axes: Sequence[int] = ()) -> View:
    """`x` without `axes`; where none are given, without all axes of extent 1."""
    node = build.squeeze(x, axes if axes else None)
    gone = build.normal_axes(axes, x.rank) if axes else [a for a, n in enumerate(x.sizes) if n == 1]
    kept = tuple(s for a, s in enumerate(strides) if a not in gone)
    return _view(node, kept) if node.rank else _view(build.reshape(x, _SCALAR), (0,))


def _unsqueeze(x: Node, strides: Sequence[int], axes: Sequence[int], steps: Sequence[int] = ()) -> View:
    """New axes at these positions of the result; `steps` are the extents that they take from the axis behind them."""
    if x.sizes == (1,) and not any(strides):  # a scalar stays one
        return _view(x, (0,))
    rank = x.rank + len(axes)
    places = [build.normal_axis(a, rank) for a in axes]
    if len(set(places)) != len(places) or len(steps) > len(axes):
        raise RuleError(f"unsqueeze: axes {list(axes)} with steps {list(steps)}")
    taken = dict(zip(places, [*steps, *([1] * (len(axes) - len(steps)))], strict=True))
    left, target, found = list(x.sizes), list[int](), list[int]()
    position = 0
    for axis in range(rank):
        if axis not in taken:
            target.append(left[position])
            found.append(strides[position])
            position += 1
            continue
        step = taken[axis]
        if step < 1 or (step != 1 and (position == x.rank or left[position] % step)):
            raise RuleError(f"unsqueeze: step {step} at axis {axis} does not divide {list(x.sizes)}")
        if position < x.rank:
            left[position] //= step
        target.append(step)
        found.append(strides[position] * left[position] if position < x.rank else 1)
    return _view(build.reshape(x, target), tuple(found))


def _identity(x: Node, strides: Sequence[int]) -> View:
    return _view(x, tuple(strides))


def _contiguous(x: Node) -> View:
    """A copy, row-major."""
    return _view(x, dense_strides(x.sizes))


def _layout(x: Node, permutation: Sequence[int]) -> Node:
    """A copy in another order of memory, which its type states."""
    build.permute(x, permutation)
    return x


VIEWS: dict[str, Row] = {
    "identity": Row(_identity, same_memory),
    "contiguous": Row(_contiguous, like_result),
    "layout": Row(_layout, like_result),
    "reshape": Row(_reshape, element_type),
    "reshape_lazy": Row(_reshape_lazy, element_type, lowered=False),
    "flatten": Row(_flatten, element_type),
    "transpose": Row(_transpose, transposed, lowered=False),
    "slice": Row(_slice, element_type, lowered=False),
    "step": Row(_step, element_type, lowered=False),
    "broadcast": Row(_broadcast, element_type, lowered=False),
    "multibroadcast": Row(_multibroadcast, element_type, lowered=False),
    "squeeze": Row(_squeeze, squeezed, lowered=False),
    "unsqueeze": Row(_unsqueeze, unsqueezed, lowered=False),
}
