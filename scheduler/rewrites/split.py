"""Splitting reductions: in parts that tasks can share, and one more reduction over the parts.

    sum over i of x[i, j], i < 8192  ->  sum over t of (sum over k of x[512 t + k, j]), t < 16, k < 512

Reductions have no order in this language, so this changes no meaning. Parts are accumulated and stored in the dtype of
accumulation. A sum down the columns is split although its columns could be shared among tasks: only by rows can it join
the kernel of the gradient that reads the same rows.
"""

from collections.abc import Sequence
from math import prod

from fusion_ir import build
from fusion_ir.dtype import accumulate_dtype
from fusion_ir.node import Node
from fusion_ir.ops import make
from scheduler.rewrites.rule import Rule

LEAST_ELEMENTS = 1 << 16  # smaller tensors take less time than a launch
LEAST_PART = 4  # elements of the split axis in a part


def splitting(tasks: int) -> Rule:
    """Splits reductions that give too few results for `tasks` tasks, and those over the leading axis of rows."""
    equation = "op over i of x[i] = op over t of (op over k of x[n t + k])"
    return Rule("split-reduction", equation, "exact", lambda node: _split(node, tasks))


def _split(node: Node, tasks: int) -> Node | None:
    if node.op not in ("sum", "mean", "var", "prod", "max", "min", "any", "all"):
        return None
    (x,) = node.args
    axes = node.ints("axes")
    if x.elements < LEAST_ELEMENTS or not _is_wanted(x, axes, tasks):
        return None
    found = _part(x, axes, tasks)
    if found is None:
        return None
    axis, parts = found
    if node.op in ("max", "min", "any", "all"):
        return _in_parts(node.op, x, axes, axis, parts)
    wide = build.cast(x, accumulate_dtype(x.dtype))
    if node.op in ("sum", "prod"):
        return build.cast(_in_parts(node.op, wide, axes, axis, parts), node.dtype)
    count = prod(x.sizes[a] for a in axes)
    mean = build.div(_in_parts("sum", wide, axes, axis, parts), count)
    if node.op == "mean":
        return build.cast(mean, node.dtype)
    kept = [a for a in range(x.rank) if a not in axes]
    centred = build.sub(wide, build.broadcast_in_dim(mean, x.sizes, kept))
    squares = _in_parts("sum", build.mul(centred, centred), axes, axis, parts)
    divisor = max(count - node.attr("correction", int), 0)
    return build.cast(build.div(squares, divisor), node.dtype)


def _is_wanted(x: Node, axes: Sequence[int], tasks: int) -> bool:
    results = prod(n for d, n in enumerate(x.sizes) if d not in axes)
    outside = prod(x.sizes[: min(axes)])  # rows of results that tasks can share as they are
    return results < tasks or (outside < tasks and x.rank - 1 not in axes)


def _part(x: Node, axes: Sequence[int], tasks: int) -> tuple[int, int] | None:
    """The axis to split and the number of parts: the outermost one that a suitable number divides."""
    for axis in sorted(axes):
        n = x.sizes[axis]
        for parts in range(tasks, 4 * tasks + 1):
            if n % parts == 0 and n // parts >= LEAST_PART:
                return axis, parts
    return None


def _in_parts(op: str, x: Node, axes: Sequence[int], axis: int, parts: int) -> Node:
    sizes = (*x.sizes[:axis], parts, x.sizes[axis] // parts, *x.sizes[axis + 1 :])
    inner = tuple(a if a < axis else a + 1 for a in sorted(axes))
    partial = make(op, [build.reshape(x, sizes)], {"axes": inner})
    place = sum(1 for d in range(axis) if d not in axes)
    return make(op, [partial], {"axes": (place,)})
