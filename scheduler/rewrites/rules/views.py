"""Views that meet, or that are another view: all of them exact.

    view(f(x, y))           = f(view x, view y)             f pointwise, a slice or a permute: they sink, so that
                                                            neighbours meet
    f(view x, view y)       = view(f(x, y))                 a permute: they rise, so that f is stored as x is; or a
                                                            repeat, where f is computed once then and takes some time
    [x | x | x]             = x repeated                    no copy
    x at start + step i     = slice(x)                      a gather whose indices are counted
    x at (one index)        = a slice, repeated
    x at repeat(indices)    = repeat(x at indices)

A view moves no data by itself, but a tensor is stored in its node's axis order, and as often as it repeats there. A
reshape changes neither, and a cast that loses nothing is done wherever it is read.
"""

from collections.abc import Iterator

from fusion_ir import building as build
from fusion_ir.core.extent import shape_of
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.ops import OPS, OpKind, kind_of, make
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.rule import Alternative

CHEAP = 2.0  # arithmetic per element that is as well done for every repetition
SINKING, RISING = ("slice", "permute"), ("permute", "broadcast_in_dim", "expand")


def _sunk(node: Node, around: GraphQueries) -> Iterator[Node]:
    if node.op in SINKING and _is_computed(node.args[0]) and _moves(node):
        inner = node.args[0]
        yield make(inner.op, [make(node.op, [a], dict(node.attrs)) for a in inner.args], dict(inner.attrs))


def _risen(node: Node, around: GraphQueries) -> Iterator[Node]:
    if not _is_computed(node):
        return
    moved = [a for a in node.args if a.op != "full"]
    if not moved or moved[0].op not in RISING or not _moves(moved[0]):
        return
    if moved[0].op != "permute" and OPS[node.op].cost <= CHEAP:
        return
    view, below = moved[0], moved[0].args[0]
    if any((a.op, a.attrs) != (view.op, view.attrs) or a.args[0].shape != below.shape for a in moved[1:]):
        return
    operands = [
        make("full", [], {"shape": below.shape, "value": a.attr("value", Scalar)}) if a.op == "full" else a.args[0]
        for a in node.args
    ]
    yield make(view.op, [make(node.op, operands, dict(node.attrs))], dict(view.attrs))


def _moves(view: Node) -> bool:
    """Whether a view changes how elements lie in memory, or how many there are."""
    if view.op != "permute":
        return view.elements != view.args[0].elements
    order = [d for d in view.ints("dims") if view.args[0].sizes[d] > 1]
    return order != sorted(order)


def _is_computed(node: Node) -> bool:
    """Whether a node is pointwise, and no cast that loses nothing."""
    is_cast = node.op == "cast" and node.dtype.holds(node.args[0].dtype)
    return kind_of(node) is OpKind.POINTWISE and not is_cast


def _repeats(node: Node, around: GraphQueries) -> Iterator[Node]:
    if node.op == "cat" and len(node.args) > 1 and all(a is node.args[0] for a in node.args):
        x, axis = node.args[0], node.attr("axis", int)
        yield _repeated(x, axis, len(node.args))


def _repeated(x: Node, axis: int, count: int) -> Node:
    """x as often as `count`, one after the other along an axis."""
    wide = build.broadcast_in_dim(
        x, (*x.sizes[:axis], count, *x.sizes[axis:]), [d if d < axis else d + 1 for d in range(x.rank)]
    )
    return build.reshape(wide, [*x.sizes[:axis], count * x.sizes[axis], *x.sizes[axis + 1 :]])


def _counted(node: Node, around: GraphQueries) -> Iterator[Node]:
    if node.op != "index_select" or not node.elements:
        return
    x, index = node.args
    axis = node.attr("axis", int)
    n = x.sizes[axis]
    low, high = [0] * x.rank, list(x.sizes)
    if index.op == "full":
        at = min(max(int(index.attr("value", Scalar).value), 0), n - 1)
        low[axis], high[axis] = at, at + 1
        yield build.expand(build.slice_(x, low, high), node.sizes)
    elif index.op == "iota":
        start, step = (int(index.attr(name, Scalar).value) for name in ("start", "step"))
        last = start + step * (index.elements - 1)
        if step >= 1 and start >= 0 and last < n:
            low[axis], high[axis] = start, last + 1
            yield build.slice_(x, low, high, [step if a == axis else 1 for a in range(x.rank)])


def _repeated_index(node: Node, around: GraphQueries) -> Iterator[Node]:
    """The index is reshape(broadcast_in_dim(i)), i of one axis: all of it again and again, or each several times."""
    if node.op != "index_select" or not node.elements or node.args[1].op != "reshape":
        return
    x, wide = node.args[0], node.args[1].args[0]
    if wide.op != "broadcast_in_dim" or wide.rank != 2 or wide.args[0].rank != 1:
        return
    axis, (place,) = node.attr("axis", int), wide.ints("dims")
    index = wide.args[0]
    if index.sizes[0] != wide.sizes[place]:
        return
    picked = make("index_select", [x, index], {"axis": axis})
    sizes = (*x.sizes[:axis], *wide.sizes, *x.sizes[axis + 1 :])
    dims = [d if d < axis else d + 1 for d in range(x.rank)]
    dims[axis] = axis + place
    yield build.reshape(make("broadcast_in_dim", [picked], {"shape": shape_of(sizes), "dims": tuple(dims)}), node.sizes)


VIEWS = (
    Alternative("view-sinks", "view(f(x, y)) = f(view x, view y), a slice or a permute of f pointwise", "exact", _sunk),
    Alternative("view-rises", "f(view x, view y) = view(f(x, y)), permutes or repeats, f pointwise", "exact", _risen),
    Alternative("repeat-to-expand", "[x | x | x] = x repeated", "exact", _repeats),
    Alternative(
        "counted-gather", "x at start + step i = slice(x); x at one index = a slice, repeated", "exact", _counted
    ),
    Alternative("repeated-gather", "x at repeat(i) = repeat(x at i)", "exact", _repeated_index),
)
