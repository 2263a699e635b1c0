"""Rules of contractions and reductions: few products are unrolled in order, everything else is a `reduce`."""

from collections.abc import Callable, Sequence
from math import inf, nan, prod

from codegen.lowering.index import Affine, Cut
from codegen.lowering.puller import Index, Puller
from codegen.lowering.reduction_axes import Piece, axes_of
from codegen.lowering.value import Value
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType, accumulate_dtype, i64
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products, summed_sizes

COMBINES: dict[str, tuple[str, float]] = {
    # op    combines with    value of an empty reduction
    "sum": ("add", 0),
    "prod": ("mul", 1),
    "max": ("maximum", 0),
    "min": ("minimum", 0),
    "any": ("logical_or", 0),
    "all": ("logical_and", 1),
}

i32 = DTYPES["i32"]

IDENTITIES: dict[str, float] = {"add": -0.0, "fma": -0.0, "mul": 1, "logical_or": False, "logical_and": True}


def identity(combine: str, dtype: DType) -> Scalar:
    """Start value of a reduction: combined with any value it gives that value, -0.0 included."""
    if combine in IDENTITIES:
        return Scalar.of(IDENTITIES[combine], dtype)
    limits = (-inf, inf) if dtype.is_float else (-(1 << 8 * dtype.bytes - 1), (1 << 8 * dtype.bytes - 1) - 1)
    if dtype.name in ("u8", "bool"):
        limits = (0, 255 if dtype.name == "u8" else 1)
    return Scalar.of(limits[combine == "minimum"], dtype)


def contract(p: Puller, node: Node, index: Index) -> Value:
    """Products by fma, from the first one on: unrolled in order where they are few, else a reduction."""
    a, b = node.args
    acc = node.attr("acc", DType)
    a_axes, b_axes = node.ints("a_axes"), node.ints("b_axes")
    extents = summed_sizes(node)

    def operands(reduced: Index) -> tuple[Value, Value]:
        root = (*index, *reduced)
        return p.arg(a, _operand_index(a_axes, root), acc), p.arg(b, _operand_index(b_axes, root), acc)

    def product(pair: tuple[Value, Value], total: Value | None) -> Value:
        if total is not None and acc.is_float:
            return p.values.make("fma", (*pair, total), (), acc)
        mul = p.values.make("mul", pair, (), acc)
        return mul if total is None else p.values.make("add", (total, mul), (), acc)

    def over(piece: Piece) -> Value:
        pair = operands(piece)
        if not axes_of(piece):
            return product(pair, None)
        args, op = (pair, "fma") if acc.is_float else ((product(pair, None),), "add")
        return p.values.make("reduce", args, (op, *axes_of(piece)), acc)

    total: Value | None = None
    if products(node) > ORDERED_PRODUCTS:
        return p.values.cast(_joined(p, "add", [over(piece) for piece in p.bound.of(node, extents)]), node.dtype)
    for point in _points(extents):
        total = product(operands(tuple(map(Affine, point))), total)
    return p.values.cast(p.values.const(Scalar.of(0, acc)) if total is None else total, node.dtype)


def _operand_index(axes: tuple[int, ...], root: Index) -> Index:
    """The operand's index: position axes[i] takes root axis i."""
    pairs = [(position, e) for position, e in zip(axes, root, strict=True) if position >= 0]
    return tuple(e for _, e in sorted(pairs, key=lambda pair: pair[0]))


def _points(extents: Sequence[int]) -> list[tuple[int, ...]]:
    points: list[tuple[int, ...]] = [()]
    for extent in extents:
        points = [(*head, i) for head in points for i in range(extent)]
    return points


def reduction(p: Puller, node: Node, index: Index) -> Value:
    """sum, prod, max, min, any, all: a `reduce` of the operand in the accumulation dtype."""
    combine, empty = COMBINES[node.op]
    (x,) = node.args
    if _count(node) == 0:
        return p.values.const(Scalar.of(empty, node.dtype))
    acc = accumulate_dtype(x.dtype) if combine in ("add", "mul") else None
    return p.values.cast(_reduce(p, node, index, combine, lambda inner: p.arg(x, inner, acc)), node.dtype)


def mean(p: Puller, node: Node, index: Index) -> Value:
    return p.values.cast(_mean_of(p, node, index), node.dtype)


def _mean_of(p: Puller, node: Node, index: Index) -> Value:
    """The mean over node's axes, in the accumulation dtype."""
    (x,) = node.args
    acc = accumulate_dtype(x.dtype)
    if _count(node) == 0:
        return p.values.const(Scalar.of(nan, acc))
    return _over(p, _reduce(p, node, index, "add", lambda inner: p.arg(x, inner, acc)), _count(node))


def variance(p: Puller, node: Node, index: Index) -> Value:
    """Two passes: the mean, then the squares of the differences."""
    (x,) = node.args
    acc = accumulate_dtype(x.dtype)
    n = _count(node)
    if n == 0:
        return p.values.const(Scalar.of(nan, node.dtype))
    mean = _mean_of(p, node, index)

    def square(inner: Index) -> Value:
        difference = p.values.make("sub", (p.arg(x, inner, acc), mean), (), acc)
        return p.values.make("mul", (difference, difference), (), acc)

    squares = _reduce(p, node, index, "add", square)
    return p.values.cast(_over(p, squares, max(n - node.attr("correction", int), 0)), node.dtype)


def _over(p: Puller, total: Value, n: int) -> Value:
    return p.values.make("div", (total, p.values.const(Scalar.of(n, total.dtype))), (), total.dtype)


def arg(p: Puller, node: Node, index: Index) -> Value:
    """argmax, argmin: an `argreduce` of the operand and its position along the axis. Positions are i32 where they fit
    and operands have fewer than 8 bytes, else i64; the result is i64."""
    (axis,) = _reduced_dims(node)
    extent = node.args[0].sizes[axis]
    pieces = p.bound.of(node, [extent])
    if len(pieces) > 1:
        raise NotOnePiece(f"{node.op} over an axis that is put together from {len(pieces)} pieces")
    (position,) = pieces[0]
    if not position.axes:
        return p.values.const(Scalar.of(0, i64))
    inner = (*index[:axis], position, *index[axis:])
    try:
        operand = p.arg(node.args[0], inner)
    except Cut as request:
        if request.axis not in position.axes:
            raise
        operand = p.in_one_piece(lambda: p.arg(node.args[0], inner))
    dtype = i32 if operand.dtype.bytes < 8 and extent < 1 << 31 else i64
    found = p.values.make("argreduce", (operand, p.values.index(position, dtype)), (node.op, *position.axes), dtype)
    return p.values.cast(found, i64)


class NotOnePiece(Exception):
    """The op needs its axis whole."""


def _reduced_dims(node: Node) -> tuple[int, ...]:
    return node.ints("axes") if node.op not in ("argmax", "argmin") else (node.attr("axis", int),)


def _count(node: Node) -> int:
    return prod(node.args[0].sizes[d] for d in node.ints("axes"))


def _reduce(p: Puller, node: Node, index: Index, combine: str, operand: Callable[[Index], Value]) -> Value:
    """`combine` over the reduced dims of `node`: a `reduce` per piece; the value itself where all extents are 1."""
    dims = _reduced_dims(node)

    def over(piece: Piece) -> Value:
        at, rest = dict(zip(dims, piece, strict=True)), iter(index)
        value = operand(tuple(at[d] if d in at else next(rest) for d in range(node.args[0].rank)))
        axes = axes_of(piece)
        return p.values.make("reduce", (value,), (combine, *axes), value.dtype) if axes else value

    pieces = p.bound.of(node, [node.args[0].sizes[d] for d in dims])
    return _joined(p, combine, [over(piece) for piece in pieces])


def _joined(p: Puller, combine: str, parts: list[Value]) -> Value:
    total = parts[0]
    for part in parts[1:]:
        total = p.values.make(combine, (total, part), (), total.dtype)
    return total
