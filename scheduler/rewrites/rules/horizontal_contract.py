"""Products that share an operand as one product, from which each takes its part.

    x y, x z, x w                 =  parts of x [y | z | w]
    y x, z x                      =  parts of [y ; z] x

Only one launch then, which reads x once and has more rows or columns to share among multiprocessors. Operands beside
each other cost a copy, which a prologue makes once where they are constants. All of them must be of one dtype, summed
over the same axes of x, and none may be computed from another. (MIGraphX does this to products of one left operand and
constants in `simplify_algebra.cpp`.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import make
from scheduler.rewrites.matching.factors import is_product
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.rule import Alternative

MOST_TOGETHER = 16  # products


@dataclass(frozen=True)
class _Shared:
    """A contraction as seen from its operand `side`, x, the other one being y.

    reduced:  axes of x that are summed over, batch: those that y has too and the result keeps; y's axes for each.
    own:      y's other axes.
    """

    node: Node
    side: int
    reduced: tuple[tuple[int, int], ...]
    batch: tuple[tuple[int, int], ...]
    own: tuple[int, ...]

    @property
    def x(self) -> Node:
        return self.node.args[self.side]

    @property
    def y(self) -> Node:
        return self.node.args[1 - self.side]

    @property
    def axes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Axes of x and of y, by root axis."""
        both = self.node.ints("a_axes"), self.node.ints("b_axes")
        return both[self.side], both[1 - self.side]

    @property
    def alike(self) -> tuple[object, ...]:
        """Properties in which products must agree to be computed as one."""
        pairs = tuple(i for i, _ in self.reduced), tuple(i for i, _ in self.batch)
        return (*pairs, self.y.dtype, self.node.dtype, self.side)

    @property
    def width(self) -> int:
        """Elements of y's own axes."""
        return prod(self.y.sizes[j] for j in self.own)


def _shared(node: Node, side: int) -> _Shared:
    axes = (node.ints("a_axes"), node.ints("b_axes"))
    pairs = list(zip(axes[side], axes[1 - side], strict=True))
    kept = len(pairs) - node.attr("reduced", int)
    return _Shared(
        node,
        side,
        tuple(sorted(pairs[kept:])),
        tuple(sorted(pair for pair in pairs[:kept] if min(pair) >= 0)),
        tuple(sorted(j for i, j in pairs[:kept] if i < 0)),
    )


def _groups(node: Node, side: int, around: GraphQueries) -> Iterator[list[_Shared]]:
    """Groups of products that `node` may be computed with: first those whose ys are all constants, then all."""
    own = _shared(node, side)
    alike: list[_Shared] = []
    for reader in around.readers(own.x):
        if is_product(reader) and reader.args[side] is own.x and reader.args[0] is not reader.args[1]:
            other = _shared(reader, side)
            if other.alike == own.alike and other.own:
                alike.append(other)
    if own not in alike:
        return
    seen: list[list[_Shared]] = []
    for constant in (True, False):
        group: list[_Shared] = []
        for other in alike:
            if constant and not around.is_constant(other.y):
                continue
            if len(group) < MOST_TOGETHER and not any(_depend(other.node, g.node, around) for g in group):
                group.append(other)
        if len(group) > 1 and own in group and group not in seen:
            seen.append(group)
            yield group


def _depend(a: Node, b: Node, around: GraphQueries) -> bool:
    return around.depends(a, b) or around.depends(b, a)


def _find(node: Node, around: GraphQueries) -> Iterator[Node]:
    for side in (0, 1) if is_product(node) and node.elements else ():
        for group in _groups(node, side, around):
            yield _part(node, group, _together(group))


def _together(group: Sequence[_Shared]) -> Node:
    """The product of x with all ys: the axes of x that are kept, in x's order, then the columns of all ys."""
    first = group[0]
    batch, reduced = ([i for i, _ in pairs] for pairs in (first.batch, first.reduced))
    kept = [i for i in range(first.x.rank) if i not in reduced]
    beside, order = _beside(group)
    x_axes = (*kept, -1, *reduced)
    y_axes = tuple(order.index(i) if i in (*batch, -1, *reduced) else -1 for i in x_axes)
    sides = [(first.x, x_axes), (beside, y_axes)]
    (a, a_axes), (b, b_axes) = sides if first.side == 0 else sides[::-1]
    attrs = {
        "a_axes": a_axes,
        "b_axes": b_axes,
        "reduced": len(reduced),
        "acc": first.node.attr("acc", DType),
        "out_dtype": first.node.dtype,
    }
    return make("contract", [a, b], attrs)


def _beside(group: Sequence[_Shared]) -> tuple[Node, list[int]]:
    """All ys beside each other along their own axes, which become one; and the axes of that tensor, each named by the
    axis of x that it goes with, -1 for the one of columns, in the order that the first y has."""
    first = group[0]
    of_x = {j: i for i, j in (*first.reduced, *first.batch)}
    order = [of_x.get(j, -1) for j in range(first.y.rank)]
    place = order.index(-1)
    order = [i for k, i in enumerate(order) if i >= 0 or k == place]
    parts: list[Node] = []
    for shared in group:
        axis = dict((*shared.reduced, *shared.batch))
        dims = [j for i in order for j in (shared.own if i < 0 else (axis[i],))]
        sizes = [shared.width if i < 0 else shared.x.sizes[i] for i in order]
        parts.append(build.reshape(build.permute(shared.y, dims), sizes))
    return build.cat(parts, order.index(-1)), order


def _part(node: Node, group: Sequence[_Shared], product: Node) -> Node:
    """The part of the product that is `node`: its columns, with its axes. Raises AssertionError for a node outside."""
    start = 0
    for shared in group:
        if shared.node is node:
            break
        start += shared.width
    else:
        raise AssertionError(f"{node} is not in its group")
    kept = product.sizes[:-1]
    part = build.slice_(product, [0] * len(kept) + [start], [*kept, start + shared.width])
    apart = build.reshape(part, [*kept, *(shared.y.sizes[j] for j in shared.own)])
    x_axes, y_axes = shared.axes
    in_x = sorted(i for i in range(shared.x.rank) if i not in {i for i, _ in shared.reduced})
    dims: list[int] = []
    for i, j in list(zip(x_axes, y_axes, strict=True))[: node.rank]:
        dims.append(in_x.index(i) if i >= 0 else len(kept) + shared.own.index(j))
    return build.permute(apart, dims)


SIBLINGS = (
    Alternative("horizontal-product", "x y = x [y | z], its first columns; x z the others", "reassociate", _find),
)
