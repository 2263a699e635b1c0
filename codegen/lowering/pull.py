"""Pulling: the value of a node at an index, views rewritten into the index on the way.

A store pulls its value through the cone of its output. Where a view straddles a radix or a bound, `Split` or `Cut`
tells the caller (`stores.py`) to refine an axis; once refinement is off (too many pieces), opaque digits and masks take
over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from math import nan, prod

from codegen.lowering.index import Affine, Axes, Axis, Fetched, clamp, cut_at, div_mod, flatten, region, var
from codegen.lowering.value import Value, Values
from fusion_ir.dtype import DTYPES, DType, accumulate_dtype, compute_dtype, i64
from fusion_ir.extent import dense_strides
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.ops import OPS, OpKind
from fusion_ir.scalar import Scalar

Index = tuple[Affine, ...]


@dataclass
class Puller:
    """Pulls nodes of one graph at indices. `visits` records where each node was read, in order: unification uses it."""

    graph: Graph
    values: Values
    axes: Axes
    refine: bool = True
    memo: dict[tuple[Node, Index], Value] = field(default_factory=dict[tuple[Node, Index], Value])
    visits: dict[Node, dict[Index, None]] = field(default_factory=dict[Node, dict[Index, None]])

    def pull(self, node: Node, index: Index) -> Value:
        """The value of `node` at `index` (one expression per axis), in the node's dtype."""
        key = (node, index)
        if key not in self.memo:
            self.visits.setdefault(node, {})[index] = None
            rule = RULES.get(node.op, _pointwise)
            self.memo[key] = rule(self, node, index)
        return self.memo[key]

    def arg(self, node: Node, index: Index, dtype: DType | None = None) -> Value:
        """Pulled and cast to `dtype`, by default the compute dtype."""
        return self.values.cast(self.pull(node, index), dtype or compute_dtype(node.dtype))


def _input(p: Puller, node: Node, index: Index) -> Value:
    position = node.attr("position", int)
    return p.values.load(position, flatten(index, p.graph.inputs[position].strides), node.dtype)


def _pointwise(p: Puller, node: Node, index: Index) -> Value:
    assert OPS[node.op].kind is OpKind.POINTWISE, node.op
    args = [p.arg(a, index) for a in node.args]
    return p.values.cast(p.values.make(node.op, args, (), compute_dtype(node.dtype)), node.dtype)


def _cast(p: Puller, node: Node, index: Index) -> Value:
    return p.values.cast(p.pull(node.args[0], index), node.dtype)


def _reshape(p: Puller, node: Node, index: Index) -> Value:
    flat = flatten(index, dense_strides(node.sizes))
    source = node.args[0]
    while source.op == "reshape":
        source = source.args[0]
    if source.op == "input":
        spec = p.graph.inputs[source.attr("position", int)]
        if spec.is_dense:  # the digits would be multiplied together again
            return p.values.load(source.attr("position", int), flat, source.dtype)
    digits: list[Affine] = []
    for size in reversed(source.sizes[1:]):
        flat, rest = div_mod(flat, size, refine=p.refine)
        digits.append(rest)
    if source.sizes:
        digits.append(flat)
    return p.pull(source, tuple(reversed(digits)))


def _permute(p: Puller, node: Node, index: Index) -> Value:
    dims = node.ints("dims")
    source: list[Affine] = [Affine()] * len(dims)
    for position, dim in enumerate(dims):
        source[dim] = index[position]
    return p.pull(node.args[0], tuple(source))


def _broadcast_in_dim(p: Puller, node: Node, index: Index) -> Value:
    (x,) = node.args
    return p.pull(
        x, tuple(Affine() if size == 1 else index[d] for size, d in zip(x.sizes, node.ints("dims"), strict=True))
    )


def _expand(p: Puller, node: Node, index: Index) -> Value:
    (x,) = node.args
    return p.pull(x, tuple(Affine() if size == 1 else e for size, e in zip(x.sizes, index, strict=True)))


def _squeeze(p: Puller, node: Node, index: Index) -> Value:
    (x,) = node.args
    rest = iter(index)
    return p.pull(x, tuple(Affine() if d in node.ints("axes") else next(rest) for d in range(x.rank)))


def _slice(p: Puller, node: Node, index: Index) -> Value:
    moved = zip(index, node.ints("start"), node.ints("step"), strict=True)
    return p.pull(node.args[0], tuple(e * step + start for e, start, step in moved))


def _cat(p: Puller, node: Node, index: Index) -> Value:
    axis = node.attr("axis", int)
    bounds = (0, *accumulate(a.sizes[axis] for a in node.args))
    e = index[axis]

    def piece(i: int, at: Affine) -> Value:
        return p.pull(node.args[i], (*index[:axis], at, *index[axis + 1 :]))

    i = region(e, bounds)
    if i is not None:
        return piece(i, e + -bounds[i])
    _cut(p, e, bounds)
    parts = [i for i, a in enumerate(node.args) if a.sizes[axis]]
    value = piece(parts[-1], clamp(e + -bounds[parts[-1]], node.args[parts[-1]].sizes[axis]))
    for i in reversed(parts[:-1]):
        inside = _less(p, e, bounds[i + 1])
        here = piece(i, clamp(e + -bounds[i], node.args[i].sizes[axis]))
        value = _where(p, inside, here, value)
    return value


def _pad(p: Puller, node: Node, index: Index) -> Value:
    (x,) = node.args
    low = node.ints("low")
    fill = p.values.const(node.attr("value", Scalar))
    source: list[Affine] = []
    inside: list[Value] = []
    for e, before, size in zip(index, low, x.sizes, strict=True):
        at = e + -before
        if at.high < 0 or at.low >= size:
            return fill
        if at.low < 0 or at.high >= size:
            _cut(p, at, (0, size))
            if at.low < 0:
                inside.append(p.values.make("logical_not", (_less(p, at, 0),), (), DTYPES["bool"]))
            if at.high >= size:
                inside.append(_less(p, at, size))
            at = clamp(at, size)
        source.append(at)
    value = p.pull(x, tuple(source))
    for condition in inside:
        value = _where(p, condition, value, fill)
    return value


def _cut(p: Puller, e: Affine, bounds: tuple[int, ...]) -> None:
    cut = cut_at(e, bounds) if p.refine else None
    if cut is not None:
        raise cut


def _less(p: Puller, e: Affine, bound: int) -> Value:
    limit = p.values.const(Scalar.of(bound, i64))
    return p.values.make("lt", (p.values.index(e), limit), (), DTYPES["bool"])


def _where(p: Puller, condition: Value, a: Value, b: Value) -> Value:
    """Selects in the compute dtype: exact for every dtype."""
    compute = compute_dtype(a.dtype)
    chosen = p.values.make("where", (condition, p.values.cast(a, compute), p.values.cast(b, compute)), (), compute)
    return p.values.cast(chosen, a.dtype)


def _full(p: Puller, node: Node, index: Index) -> Value:
    return p.values.const(node.attr("value", Scalar))


def _iota(p: Puller, node: Node, index: Index) -> Value:
    """start + step * index, in the compute dtype (integers wrap; floats round twice)."""
    compute = compute_dtype(node.dtype)
    start, step = (p.values.cast(p.values.const(node.attr(name, Scalar)), compute) for name in ("start", "step"))
    position = p.values.cast(p.values.index(index[node.attr("axis", int)]), compute)
    value = p.values.make("add", (start, p.values.make("mul", (step, position), (), compute)), (), compute)
    return p.values.cast(value, node.dtype)


def _uniform(p: Puller, node: Node, index: Index) -> Value:
    seed, offset = (p.pull(a, ()) for a in node.args)
    linear = flatten(index, dense_strides(node.sizes))
    return p.values.uniform(seed, offset, node.attr("stream", int), linear, node.dtype)


def _contract(p: Puller, node: Node, index: Index) -> Value:
    """Products by fma, from the first one on: unrolled in order where they are few, else a reduction."""
    a, b = node.args
    acc = node.attr("acc", DType)
    a_axes, b_axes = node.ints("a_axes"), node.ints("b_axes")
    extents = reduced_extents(node)

    def operands(reduced: Index) -> tuple[Value, Value]:
        root = (*index, *reduced)
        return p.arg(a, _operand_index(a_axes, root), acc), p.arg(b, _operand_index(b_axes, root), acc)

    def product(pair: tuple[Value, Value], total: Value | None) -> Value:
        if total is not None and acc.is_float:
            return p.values.make("fma", (*pair, total), (), acc)
        mul = p.values.make("mul", pair, (), acc)
        return mul if total is None else p.values.make("add", (total, mul), (), acc)

    total: Value | None = None
    if prod(extents) <= UNROLLED_PRODUCTS:
        for point in _points(extents):
            total = product(operands(tuple(map(Affine, point))), total)
        if total is None:
            total = p.values.const(Scalar.of(0, acc))
    else:
        axes = [p.axes.new(n) for n in extents]
        pair = operands(tuple(map(var, axes)))
        args, op = (pair, "fma") if acc.is_float else ((product(pair, None),), "add")
        total = p.values.make("reduce", args, (op, *axes), acc)
    return p.values.cast(total, node.dtype)


def reduced_extents(node: Node) -> list[int]:
    """Extents of the reduced axes of a contraction."""
    a_axes, reduced = node.ints("a_axes"), node.attr("reduced", int)
    return [node.args[0].sizes[position] for position in a_axes[len(a_axes) - reduced :]]


def _operand_index(axes: tuple[int, ...], root: Index) -> Index:
    """The operand's index: position axes[i] takes root axis i."""
    pairs = [(position, e) for position, e in zip(axes, root, strict=True) if position >= 0]
    return tuple(e for _, e in sorted(pairs, key=lambda pair: pair[0]))


UNROLLED_PRODUCTS = 16  # a contraction of at most so many products is unrolled into the cone


def _points(extents: list[int]) -> list[tuple[int, ...]]:
    points: list[tuple[int, ...]] = [()]
    for extent in extents:
        points = [(*head, i) for head in points for i in range(extent)]
    return points


def _reduction(p: Puller, node: Node, index: Index) -> Value:
    """sum, prod, max, min, any, all: a `reduce` of the operand in the accumulation dtype."""
    combine, empty = COMBINES[node.op]
    (x,) = node.args
    axes, inner = _bind(p, node, index, node.ints("axes"))
    if any(x.sizes[d] == 0 for d in node.ints("axes")):
        return p.values.const(Scalar.of(empty, node.dtype))
    value = p.arg(x, inner, accumulate_dtype(x.dtype) if combine in ("add", "mul") else None)
    if axes:
        value = p.values.make("reduce", (value,), (combine, *axes), value.dtype)
    return p.values.cast(value, node.dtype)


def _mean(p: Puller, node: Node, index: Index) -> Value:
    return p.values.cast(_mean_of(p, node, index), node.dtype)


def _mean_of(p: Puller, node: Node, index: Index) -> Value:
    """The mean over node's axes, in the accumulation dtype."""
    (x,) = node.args
    acc = accumulate_dtype(x.dtype)
    n = prod(x.sizes[d] for d in node.ints("axes"))
    if n == 0:
        return p.values.const(Scalar.of(nan, acc))
    axes, inner = _bind(p, node, index, node.ints("axes"))
    return _over(p, _sum(p, p.arg(x, inner, acc), axes), n)


def _var(p: Puller, node: Node, index: Index) -> Value:
    """Two passes: the mean, then the squares of the differences."""
    (x,) = node.args
    acc = accumulate_dtype(x.dtype)
    n = prod(x.sizes[d] for d in node.ints("axes"))
    mean = _mean_of(p, node, index)
    if n == 0:
        return p.values.const(Scalar.of(nan, node.dtype))
    axes, inner = _bind(p, node, index, node.ints("axes"))
    difference = p.values.make("sub", (p.arg(x, inner, acc), mean), (), acc)
    squares = _sum(p, p.values.make("mul", (difference, difference), (), acc), axes)
    return p.values.cast(_over(p, squares, max(n - node.attr("correction", int), 0)), node.dtype)


def _sum(p: Puller, value: Value, axes: list[Axis]) -> Value:
    return p.values.make("reduce", (value,), ("add", *axes), value.dtype) if axes else value


def _over(p: Puller, total: Value, n: int) -> Value:
    return p.values.make("div", (total, p.values.const(Scalar.of(n, total.dtype))), (), total.dtype)


def _arg(p: Puller, node: Node, index: Index) -> Value:
    axes, inner = _bind(p, node, index, (node.attr("axis", int),))
    if not axes:
        return p.values.const(Scalar.of(0, i64))
    return p.values.make("argreduce", (p.arg(node.args[0], inner),), (node.op, *axes), i64)


def _bind(p: Puller, node: Node, index: Index, dims: tuple[int, ...]) -> tuple[list[Axis], Index]:
    """New axes for the reduced dims (those of extent 1 have none), and the operand's index."""
    rest = iter(index)
    bound: list[Axis] = []
    inner: list[Affine] = []
    for d, size in enumerate(node.args[0].sizes):
        if d in dims:
            axis = p.axes.new(size)
            bound += [axis] if size > 1 else []
            inner.append(var(axis))
        else:
            inner.append(next(rest))
    return bound, tuple(inner)


def _gather(p: Puller, node: Node, index: Index) -> Value:
    axis = node.attr("axis", int)
    at = _fetch(p, node.args[1], index, node.args[0].sizes[axis])
    return p.pull(node.args[0], (*index[:axis], at, *index[axis + 1 :]))


def _index_select(p: Puller, node: Node, index: Index) -> Value:
    axis = node.attr("axis", int)
    at = _fetch(p, node.args[1], (index[axis],), node.args[0].sizes[axis])
    return p.pull(node.args[0], (*index[:axis], at, *index[axis + 1 :]))


def _fetch(p: Puller, indices: Node, index: Index, extent: int) -> Affine:
    """An element of an index tensor as an index, clamped to [0, extent)."""
    least, most = (p.values.const(Scalar.of(n, i64)) for n in (0, max(extent - 1, 0)))
    value = p.values.make("minimum", (p.arg(indices, index, i64), most), (), i64)
    value = p.values.make("maximum", (value, least), (), i64)
    return Affine.of(0, [(Fetched(value, extent), 1)])


COMBINES: dict[str, tuple[str, float]] = {
    # op    combines with    value of an empty reduction
    "sum": ("add", 0),
    "prod": ("mul", 1),
    "max": ("maximum", 0),
    "min": ("minimum", 0),
    "any": ("logical_or", 0),
    "all": ("logical_and", 1),
}

# View ops and the like: everything that is not plain pointwise, but for cumsum,
# which is no function of one index: family `naive` has it. A test holds this table against OPS.
RULES: dict[str, Callable[[Puller, Node, Index], Value]] = {
    "input": _input,
    "cast": _cast,
    "reshape": _reshape,
    "permute": _permute,
    "broadcast_in_dim": _broadcast_in_dim,
    "expand": _expand,
    "squeeze": _squeeze,
    "slice": _slice,
    "cat": _cat,
    "pad": _pad,
    "full": _full,
    "iota": _iota,
    "uniform": _uniform,
    "contract": _contract,
    **dict.fromkeys(COMBINES, _reduction),
    "mean": _mean,
    "var": _var,
    "argmax": _arg,
    "argmin": _arg,
    "gather": _gather,
    "take_along_axis": _gather,
    "index_select": _index_select,
}
