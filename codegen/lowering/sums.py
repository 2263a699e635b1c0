"""Rules of contractions and reductions: few products are unrolled in order, everything else is a `reduce`."""

from math import nan, prod

from codegen.lowering.index import Affine, Axis, var
from codegen.lowering.puller import Index, Puller
from codegen.lowering.value import Value
from fusion_ir.dtype import DType, accumulate_dtype, i64
from fusion_ir.node import Node
from fusion_ir.ops.contract import ORDERED_PRODUCTS
from fusion_ir.scalar import Scalar

COMBINES: dict[str, tuple[str, float]] = {
    # op    combines with    value of an empty reduction
    "sum": ("add", 0),
    "prod": ("mul", 1),
    "max": ("maximum", 0),
    "min": ("minimum", 0),
    "any": ("logical_or", 0),
    "all": ("logical_and", 1),
}


def contract(p: Puller, node: Node, index: Index) -> Value:
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
    if prod(extents) <= ORDERED_PRODUCTS:
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


def _points(extents: list[int]) -> list[tuple[int, ...]]:
    points: list[tuple[int, ...]] = [()]
    for extent in extents:
        points = [(*head, i) for head in points for i in range(extent)]
    return points


def reduction(p: Puller, node: Node, index: Index) -> Value:
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


def mean(p: Puller, node: Node, index: Index) -> Value:
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


def variance(p: Puller, node: Node, index: Index) -> Value:
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


def arg(p: Puller, node: Node, index: Index) -> Value:
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
