"""Views, gathers and generators over loose arguments: negative axes, -1 in a reshape, optional steps."""

from collections.abc import Sequence

from fusion_ir.building.elementwise import ge, le, sub, where
from fusion_ir.building.operands import (
    Axes,
    Number,
    Operand,
    Sizes,
    broadcast_to,
    cast,
    full,
    normal_axes,
    normal_axis,
    promote,
)
from fusion_ir.core.extent import Extent, shape_of
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType, f32, i64
from fusion_ir.ops import RuleError, make


def reshape(x: Node, sizes: Sizes) -> Node:
    """Same elements in row-major order; one size may be -1. `x` itself where nothing changes. Raises RuleError."""
    wanted = [s.value if isinstance(s, Extent) else s for s in sizes]
    if wanted.count(-1) > 1 or any(s < -1 for s in wanted):
        raise RuleError(f"reshape: sizes {wanted} are not a shape")
    if -1 in wanted:
        known = 1
        for s in wanted:
            known *= 1 if s == -1 else s
        if known == 0 or x.elements % known:
            raise RuleError(f"reshape: {x.elements} elements do not fill {wanted}")
        wanted[wanted.index(-1)] = x.elements // known
    shape = shape_of(wanted)
    return x if shape == x.shape else make("reshape", [x], {"shape": shape})


def flatten(x: Node, first: int = 0, last: int = -1) -> Node:
    """Axes first ... last merged into one; rank 0 becomes rank 1."""
    if x.rank == 0:
        return reshape(x, [1])
    a, b = normal_axis(first, x.rank), normal_axis(last, x.rank)
    return reshape(x, [*x.sizes[:a], -1, *x.sizes[b + 1 :]]) if x.elements else reshape(x, _merged(x.sizes, a, b))


def _merged(sizes: Sequence[int], first: int, last: int) -> list[int]:
    size = 1
    for s in sizes[first : last + 1]:
        size *= s
    return [*sizes[:first], size, *sizes[last + 1 :]]


def permute(x: Node, dims: Sequence[int]) -> Node:
    """Axis i of the result is axis dims[i] of x; negative ones count from the end."""
    order = tuple(normal_axis(d, x.rank) for d in dims)
    return x if order == tuple(range(x.rank)) else make("permute", [x], {"dims": order})


def transpose(x: Node, first: int = -2, second: int = -1) -> Node:
    """Two axes exchanged."""
    order = list(range(x.rank))
    a, b = normal_axis(first, x.rank), normal_axis(second, x.rank)
    order[a], order[b] = order[b], order[a]
    return permute(x, order)


def broadcast_in_dim(x: Node, sizes: Sizes, dims: Sequence[int]) -> Node:
    """Axis i of x becomes axis dims[i] of the result. `x` itself where nothing changes."""
    shape = shape_of(sizes)
    given = tuple(normal_axis(d, len(shape)) for d in dims)
    if shape == x.shape and given == tuple(range(x.rank)):
        return x
    return make("broadcast_in_dim", [x], {"shape": shape, "dims": given})


def expand(x: Node, sizes: Sizes) -> Node:
    """Axes of extent 1 repeated; -1 keeps an extent; axes may be added in front (torch.expand)."""
    wanted = [s.value if isinstance(s, Extent) else s for s in sizes]
    front = len(wanted) - x.rank
    if front < 0:
        raise RuleError(f"expand: {list(x.sizes)} has more axes than {wanted}")
    kept = [x.sizes[a - front] if s == -1 and a >= front else s for a, s in enumerate(wanted)]
    if any(s < 0 for s in kept):
        raise RuleError(f"expand: sizes {wanted} are not a shape")
    if front:
        return broadcast_to(x, kept)
    return x if tuple(kept) == x.sizes else make("expand", [x], {"shape": shape_of(kept)})


def unsqueeze(x: Node, axes: int | Sequence[int]) -> Node:
    """New axes of extent 1, at these positions of the result."""
    count = 1 if isinstance(axes, int) else len(axes)
    new = normal_axes(axes, x.rank + count)
    rest = iter(x.shape)
    shape = shape_of([1 if a in new else next(rest) for a in range(x.rank + count)])
    return make("broadcast_in_dim", [x], {"shape": shape, "dims": tuple(a for a in range(len(shape)) if a not in new)})


def squeeze(x: Node, axes: Axes = None) -> Node:
    """`x` without `axes`, which must have extent 1; None: without all axes of extent 1."""
    chosen = tuple(a for a, n in enumerate(x.sizes) if n == 1) if axes is None else normal_axes(axes, x.rank)
    return make("squeeze", [x], {"axes": chosen}) if chosen else x


def slice_(x: Node, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None) -> Node:
    """x[start:stop:step] per axis as in Python: negative bounds count from the end, bounds are clipped; step >= 1."""
    steps = tuple(step) if step is not None else (1,) * x.rank
    if not len(start) == len(stop) == len(steps) == x.rank:
        raise RuleError(f"slice: {len(start)} starts, {len(stop)} stops and {len(steps)} steps for rank {x.rank}")
    if any(s < 1 for s in steps):
        raise RuleError(f"slice: steps {list(steps)} must be 1 or more")
    bounds = [slice(*b).indices(n) for b, n in zip(zip(start, stop, steps, strict=True), x.sizes, strict=True)]
    starts, stops = tuple(b[0] for b in bounds), tuple(max(b[0], b[1]) for b in bounds)
    if starts == (0,) * x.rank and stops == x.sizes and steps == (1,) * x.rank:
        return x
    return make("slice", [x], {"start": starts, "stop": stops, "step": steps})


def pad(x: Node, low: Sequence[int], high: Sequence[int], value: Number = 0) -> Node:
    """`low` elements before and `high` behind each axis, filled with `value`; negative widths crop."""
    if not any(low) and not any(high) and len(low) == len(high) == x.rank:
        return x
    return make("pad", [x], {"low": tuple(low), "high": tuple(high), "value": Scalar.of(value, x.dtype)})


def cat(nodes: Sequence[Node], axis: int = 0) -> Node:
    """One after the other along `axis`, promoted to one dtype. Raises RuleError."""
    if not nodes:
        raise RuleError("cat: there are no operands")
    dtype = promote(n.dtype for n in nodes)
    where_ = normal_axis(axis, nodes[0].rank)
    return make("cat", [cast(n, dtype) for n in nodes], {"axis": where_}) if len(nodes) > 1 else nodes[0]


def stack(nodes: Sequence[Node], axis: int = 0) -> Node:
    """One after the other along a new axis."""
    return cat([unsqueeze(n, axis) for n in nodes], axis)


def iota(sizes: Sizes, axis: int = 0, start: Number = 0, step: Number = 1, dtype: DType = i64) -> Node:
    """start + step * index along `axis`."""
    shape = shape_of(sizes)
    values = {"start": Scalar.of(start, dtype), "step": Scalar.of(step, dtype)}
    return make("iota", [], {"shape": shape, "axis": normal_axis(axis, len(shape)), **values})


def triu(x: Node, diagonal: int = 0) -> Node:
    """The last two axes' elements with column - row >= diagonal; the others 0."""
    return where(ge(_column_minus_row(x), diagonal), x, full((), 0, x.dtype))


def tril(x: Node, diagonal: int = 0) -> Node:
    """The last two axes' elements with column - row <= diagonal; the others 0."""
    return where(le(_column_minus_row(x), diagonal), x, full((), 0, x.dtype))


def _column_minus_row(x: Node) -> Node:
    if x.rank < 2:
        raise RuleError(f"triu and tril take rank 2 or more, got {x.rank}")
    return sub(iota(x.shape[-2:], 1), iota(x.shape[-2:], 0))


def gather(x: Node, axis: int, index: Node) -> Node:
    """x[..., index[i], ...] (torch.gather); indices are clamped."""
    return make("gather", [x, index], {"axis": normal_axis(axis, x.rank)})


def take_along_axis(x: Node, index: Node, axis: int) -> Node:
    """`gather` whose other axes broadcast against each other first (numpy.take_along_axis)."""
    where_ = normal_axis(axis, x.rank)
    if index.rank != x.rank:
        raise RuleError(f"take_along_axis: the operand has rank {x.rank}, the index {index.rank}")
    sizes = [max(p, q) if 0 not in (p, q) else 0 for p, q in zip(x.sizes, index.sizes, strict=True)]
    wide_x = broadcast_to(x, [n if a == where_ else s for a, (n, s) in enumerate(zip(x.sizes, sizes, strict=True))])
    wide_i = broadcast_to(
        index, [n if a == where_ else s for a, (n, s) in enumerate(zip(index.sizes, sizes, strict=True))]
    )
    return make("take_along_axis", [wide_x, wide_i], {"axis": where_})


def index_select(x: Node, axis: int, index: Node) -> Node:
    """Slices of x at index[i] along `axis`; a rank 0 index counts as one of extent 1."""
    return make("index_select", [x, flatten(index) if index.rank == 0 else index], {"axis": normal_axis(axis, x.rank)})


def scatter_sum(x: Node, axis: int, index: Node, extent: int) -> Node:
    """Sums of the slices of x along `axis` by the places index[i] < extent; a rank 0 index counts as one of extent 1.
    Integers and bool give i64."""
    at = flatten(index) if index.rank == 0 else index
    return make("scatter_sum", [x, at], {"axis": normal_axis(axis, x.rank), "extent": extent})


def embedding(index: Node, table: Node) -> Node:
    """Rows of table[V, D] at `index` of any shape: [..., D]."""
    picked = index_select(table, 0, flatten(index))
    return reshape(picked, [*index.sizes, *table.sizes[1:]])


def uniform(sizes: Sizes, seed: Operand, offset: Operand, stream: int = 0) -> Node:
    """f32 in [0, 1) from Philox4x32-10; seed and offset are i64 of rank 0 or Python integers."""
    args = [v if isinstance(v, Node) else full((), v, i64) for v in (seed, offset)]
    return make("uniform", [cast(a, i64) for a in args], {"shape": shape_of(sizes), "stream": stream})


def dropout(x: Node, probability: float, seed: Operand, offset: Operand, stream: int = 0) -> tuple[Node, Node]:
    """(x / (1 - p) where kept else 0, mask): an element is kept where its random number is >= p."""
    kept = ge(uniform(x.shape, seed, offset, stream), full((), probability, f32))
    scale = 0.0 if probability >= 1 else 1.0 / (1.0 - probability)
    scaled = make("mul", [x, full(x.shape, scale, x.dtype)])
    return where(kept, scaled, full((), 0, x.dtype)), kept
