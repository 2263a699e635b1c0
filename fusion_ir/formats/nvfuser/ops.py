"""nvFuser's ops over ours: a table from the name after `fd.ops.` to a function over nodes and numbers.

The functions' annotations say what the text must give (see `signature`); names of parameters are those of nvFuser's
Python definitions. In which dtype an op computes is nvFuser's rule (`nvfuser_numbers`); `fusion_ir.building`
broadcasts. Ops that are missing have no counterpart in the language: argsort, topk, scatter, cumprod, cummax, cummin,
erfinv, erfcinv, lgamma, gcd, nextafter, complex numbers, and random numbers, whose bits nvFuser does not define.
"""

from collections.abc import Callable, Sequence

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bool_, i64
from fusion_ir.formats.numbers import (
    Given,
    Number,
    applied,
    cast_number,
    common,
    floating,
    folded,
    kept,
    unwidened,
)
from fusion_ir.ops import RuleError

Rule = Callable[[Sequence[Given]], DType]


# Pointwise ops: a function over nodes, and the rule for the dtype in which it computes


def _unary(function: Callable[..., Node], rule: Rule) -> Callable[[Given], Given]:
    def op(x: Node | Number) -> Given:
        return applied(function, [x], rule([x]))

    return op


def _binary(function: Callable[..., Node], rule: Rule = common) -> Callable[[Given, Given], Given]:
    def op(x: Node | Number, y: Node | Number) -> Given:
        return applied(function, [x, y], rule([x, y]))

    return op


def _logical(function: Callable[..., Node]) -> Callable[[Given, Given], Given]:
    def op(x: Node | Number, y: Node | Number) -> Given:
        return applied(function, [_cast(v, bool_) for v in (x, y)], bool_)

    return op


def _of_bits(function: Callable[..., Node]) -> Callable[[Given, Given], Given]:
    def op(x: Node | Number, y: Node | Number) -> Given:
        dtype = common([x, y])
        if dtype.is_float:
            raise RuleError(f"expected integers or bool, got {x.dtype} and {y.dtype}")
        return applied(function, [x, y], dtype)

    return op


def _cast(x: Node | Number, dtype: DType) -> Given:
    return build.cast(x, dtype) if isinstance(x, Node) else cast_number(x, dtype)


def _logical_not(x: Node | Number) -> Given:
    return applied(build.logical_not, [x], x.dtype)


def _where(condition: Node | Number, x: Node | Number, y: Node | Number) -> Given:
    """Halves stay halves; of two numbers the result has their dtype, Double for Python's."""
    dtype = unwidened([x, y])
    branches = [build.cast(v, dtype) if isinstance(v, Node) else _constant(v, dtype) for v in (x, y)]
    result = build.where(condition if isinstance(condition, Node) else _constant(condition, bool_), *branches)
    return result if _tensor(condition, x, y) else folded(result)


def _tensor(*given: Given) -> bool:
    return any(isinstance(x, Node) for x in given)


def _constant(x: Number, dtype: DType) -> Node:
    return build.full((), cast_number(x, dtype).value, dtype)


def _lerp(a: Node | Number, b: Node | Number, weight: Node | Number) -> Given:
    return applied(build.lerp, [a, b, weight], common([a, b, weight]))


def _clamp(x: Node | Number, min: Node | Number | None = None, max: Node | Number | None = None) -> Given:
    """clamp in x's dtype; bounds that are tensors promote."""
    bounds = [b for b in (min, max) if b is not None]
    rule = common if _tensor(*bounds) else kept
    low, high = min is not None, max is not None

    def bounded(x: Node, *given: Node) -> Node:
        return build.clamp(x, given[0] if low else None, given[-1] if high else None)

    return applied(bounded, [x, *bounds], rule([x, *bounds]))


def _threshold(x: Node | Number, threshold: Number, value: Number) -> Given:
    """threshold in x's dtype."""
    return applied(build.threshold, [x, threshold, value], x.dtype)


def _addcmul(x: Node | Number, a: Node | Number, b: Node | Number, value: Number | None = None) -> Given:
    """x + a (b value), every product rounded."""
    dtype = common([x, a, b])
    scaled = b if value is None else applied(build.mul, [b, value], dtype)
    return applied(build.add, [x, applied(build.mul, [a, scaled], dtype)], dtype)


# Views and constants


def _same(x: Node) -> Node:
    return x


def _reshape(x: Node, new_shape: Sequence[int]) -> Node:
    return build.reshape(x, new_shape)


def _permute(x: Node, dims: Sequence[int]) -> Node:
    return build.permute(x, dims)


def _stride_order(x: Node, stride_order: Sequence[int]) -> Node:
    """The reader keeps the order for the outputs; the values stay as they are."""
    return x


def _broadcast(x: Node, is_broadcast_dim: Sequence[bool]) -> Node:
    """New axes of extent 1 where the flag is set."""
    if len(is_broadcast_dim) - sum(is_broadcast_dim) != x.rank:
        raise RuleError(f"expected {x.rank} times False, got {list(is_broadcast_dim)}")
    new = [axis for axis, flag in enumerate(is_broadcast_dim) if flag]
    return build.unsqueeze(x, new) if new else x


def _broadcast_in_dim(x: Node, shape: Sequence[int], broadcast_dims: Sequence[int]) -> Node:
    return build.broadcast_in_dim(x, shape, broadcast_dims)


def _expand(x: Node, shape: Sequence[int]) -> Node:
    """Spelled as a broadcast_in_dim, so that both spellings of a definition have one key."""
    return build.broadcast_to(x, build.expand(x, shape).shape)


def _squeeze(x: Node, dims: Sequence[int], squeeze_expanded: bool = False) -> Node:
    return build.squeeze(x, dims)


def _slice(
    x: Node,
    start_indices: Sequence[int],
    end_indices: Sequence[int],
    strides: Sequence[int] | None = None,
    manual_normalization: bool = False,
) -> Node:
    """A slice with indices as in Python. `manual_normalization` makes no difference: indices that the definition
    normalised itself are such indices, too."""
    return build.slice_(x, start_indices, end_indices, strides)


def _pad(x: Node, pad_widths: Sequence[int], value: Number | None = None) -> Node:
    """Pairs of widths, last axis first; axes that are left out are not padded."""
    if len(pad_widths) % 2 or len(pad_widths) > 2 * x.rank:
        raise RuleError(f"pad_widths has {len(pad_widths)} entries, expected pairs for at most {x.rank} axes")
    rest = (0,) * (x.rank - len(pad_widths) // 2)
    low, high = tuple(pad_widths[::2])[::-1], tuple(pad_widths[1::2])[::-1]
    return build.pad(x, (*rest, *low), (*rest, *high), 0 if value is None else cast_number(value, x.dtype).value)


def _cat(tensors: Sequence[Node], dim: int = 0, manual_padding: bool = False) -> Node:
    return build.cat(tensors, dim)


def _full(shape: Sequence[int], fill_value: Number, dtype: DType) -> Node:
    return build.full(shape, cast_number(fill_value, dtype).value, dtype)


def _iota(
    length: int,
    start: Number | None = None,
    step: Number | None = None,
    dtype: DType | None = None,
) -> Node:
    dtype = dtype or i64
    first, next_ = (default if v is None else cast_number(v, dtype).value for v, default in ((start, 0), (step, 1)))
    return build.iota([length], 0, first, next_, dtype)


def _triu(x: Node, diagonal: int = 0) -> Node:
    return build.triu(x, diagonal)


def _select(x: Node, index: Node | Number, dim: int) -> Node:
    """One position of an axis, which the result lacks: of a number's, or of what a tensor without axes says."""
    axis = build.normal_axis(dim, x.rank)
    if isinstance(index, Node):
        return build.squeeze(build.index_select(x, axis, build.reshape(index, [1])), axis)
    position = _integer(index)
    if not 0 <= position < x.sizes[axis]:
        raise RuleError(f"index {position} is out of range for an axis of extent {x.sizes[axis]}")
    start = [position if a == axis else 0 for a in range(x.rank)]
    stop = [position + 1 if a == axis else n for a, n in enumerate(x.sizes)]
    return build.squeeze(build.slice_(x, start, stop), axis)


def _integer(given: Number) -> int:
    if not given.dtype.is_integer:
        raise RuleError(f"expected an integer, got {given.value}")
    return int(given.value)


# Reductions: all axes where none are given. nvFuser's `dtype` is that of the result, and the operand is cast to it
# before it is summed; it may stand in the place of the axes.


def _reduced(reduce: Callable[..., Node]) -> Callable[..., Node]:
    def reduction(
        x: Node,
        dims: int | Sequence[int] | DType | None = None,
        keepdim: bool = False,
        dtype: DType | None = None,
        dim: int | None = None,
    ) -> Node:
        if isinstance(dims, DType):
            if dtype is not None:
                raise RuleError("a dtype is given twice")
            dims, dtype = None, dims
        if dim is not None:
            if dims is not None:
                raise RuleError("dims and dim are both given")
            dims = dim
        if dtype is None:
            return reduce(x, dims, keepdim)
        return build.cast(reduce(build.cast(x, dtype), dims, keepdim), dtype)

    return reduction


def _wide(x: Node) -> Node:
    """Composed of sums, differences and quotients, these compute halves in Float."""
    return build.cast(x, floating([x]))


def _var(x: Node, dims: int | Sequence[int] | None = None, correction: int = 1, keepdim: bool = False) -> Node:
    return build.var(_wide(x), dims, correction, keepdim)


def _var_mean(
    x: Node, dims: int | Sequence[int] | None = None, correction: int = 1, keepdim: bool = False
) -> tuple[Node, Node]:
    return build.var_mean(_wide(x), dims, correction, keepdim)


def _welford(x: Node, dims: Sequence[int]) -> tuple[Node, Node, Node]:
    """(mean, sum of squared deviations, count)."""
    mean = build.mean(x, dims, True)
    squares = build.sum_(build.square(build.sub(x, mean)), dims)
    count = x.elements // max(squares.elements, 1)
    return build.mean(x, dims), squares, build.full(squares.sizes, count, i64)


def _cumsum(x: Node, dim: int) -> Node:
    return build.cumsum(x, dim)


# Gathers and products


def _gather(x: Node, index: Node, dim: int) -> Node:
    return build.gather(x, dim, index)


def _index_select(x: Node, index: Node, dim: int) -> Node:
    return build.index_select(x, dim, index)


def _take_along_axis(x: Node, index: Node, dim: int) -> Node:
    return build.take_along_axis(x, index, dim)


def _embedding_fwd(
    input: Node,
    weight: Node,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float | None = None,
    scale_grad_by_freq: bool | None = None,
    sparse: bool | None = None,
) -> Node:
    """The other arguments only matter to the gradient, except for max_norm, which changes the table."""
    if max_norm is not None:
        raise RuleError("max_norm changes the weight in place, which the language cannot say")
    return build.embedding(input, weight)


def _matmul(a: Node, b: Node) -> Node:
    return build.matmul(a, b)


def _linear(x: Node, weight: Node, bias: Node | None = None) -> Node:
    return build.linear(x, weight, bias)


# Sizes, which are numbers here: extents are known when a definition is read


def _size(x: Node, dim: int) -> int:
    if not -x.rank <= dim < x.rank:
        raise RuleError(f"dim {dim} is out of range for rank {x.rank}")
    return x.sizes[dim]


def _shape(x: Node) -> list[int]:
    return list(x.sizes)


def _at(vector: Sequence[int], index: int) -> int:
    if not -len(vector) <= index < len(vector):
        raise RuleError(f"index {index} is out of range for {len(vector)} values")
    return vector[index]


# fmt: off
NVFUSER_OPS: dict[str, Callable[..., object]] = {
    # what copies or changes a sign keeps its dtype, tests of floats do not compute, functions give floats
    "abs": _unary(build.abs_, kept), "ceil": _unary(build.ceil, kept), "floor": _unary(build.floor, kept),
    "frac": _unary(build.frac, kept), "neg": _unary(build.neg, kept), "relu": _unary(build.relu, kept),
    "round": _unary(build.round_, kept), "sign": _unary(build.sign, kept), "silu": _unary(build.silu, kept),
    "trunc": _unary(build.trunc, kept), "bitwise_not": _unary(build.bitwise_not, kept),
    "isfinite": _unary(build.isfinite, kept), "isinf": _unary(build.isinf, kept), "isnan": _unary(build.isnan, kept),
    "isneginf": _unary(build.isneginf, kept), "isposinf": _unary(build.isposinf, kept),
    "signbit": _unary(build.signbit, kept), "logical_not": _logical_not, "segment_set": _same, "set": _same,
    "acos": _unary(build.acos, floating), "acosh": _unary(build.acosh, floating), "asin": _unary(build.asin, floating),
    "asinh": _unary(build.asinh, floating), "atan": _unary(build.atan, floating),
    "atanh": _unary(build.atanh, floating), "cos": _unary(build.cos, floating), "cosh": _unary(build.cosh, floating),
    "erf": _unary(build.erf, floating), "erfc": _unary(build.erfc, floating), "exp": _unary(build.exp, floating),
    "exp2": _unary(build.exp2, floating), "expm1": _unary(build.expm1, floating), "log": _unary(build.log, floating),
    "log10": _unary(build.log10, floating), "log1p": _unary(build.log1p, floating),
    "log2": _unary(build.log2, floating), "reciprocal": _unary(build.reciprocal, floating),
    "rsqrt": _unary(build.rsqrt, floating), "sigmoid": _unary(build.sigmoid, floating),
    "sin": _unary(build.sin, floating), "sinh": _unary(build.sinh, floating), "sqrt": _unary(build.sqrt, floating),
    "tan": _unary(build.tan, floating), "tanh": _unary(build.tanh, floating),
    # binary and ternary
    "add": _binary(build.add), "div": _binary(build.div), "eq": _binary(build.eq), "fmod": _binary(build.fmod),
    "ge": _binary(build.ge), "gt": _binary(build.gt), "le": _binary(build.le), "lt": _binary(build.lt),
    "maximum": _binary(build.maximum), "minimum": _binary(build.minimum), "mod": _binary(build.fmod),
    "mul": _binary(build.mul), "ne": _binary(build.ne), "pow": _binary(build.pow_),
    "remainder": _binary(build.remainder), "sub": _binary(build.sub), "atan2": _binary(build.atan2, floating),
    "truediv": _binary(build.truediv, floating), "bitwise_and": _of_bits(build.bitwise_and),
    "bitwise_left_shift": _of_bits(build.shift_left), "bitwise_or": _of_bits(build.bitwise_or),
    "bitwise_right_shift": _of_bits(build.shift_right), "bitwise_xor": _of_bits(build.bitwise_xor),
    "logical_right_shift": _of_bits(build.shift_right_logical), "logical_and": _logical(build.logical_and),
    "logical_or": _logical(build.logical_or), "addcmul": _addcmul, "clamp": _clamp, "lerp": _lerp,
    "threshold": _threshold, "where": _where,
    # views and constants
    "broadcast": _broadcast, "broadcast_in_dim": _broadcast_in_dim, "cast": _cast, "cat": _cat, "expand": _expand,
    "full": _full, "iota": _iota, "pad": _pad, "permute": _permute, "reshape": _reshape, "select": _select,
    "slice": _slice, "squeeze": _squeeze, "stride_order": _stride_order, "triu": _triu,
    # reductions and scans
    "cumsum": _cumsum, "max": _reduced(build.max_), "min": _reduced(build.min_), "prod": _reduced(build.prod),
    "sum": _reduced(build.sum_), "var": _var, "var_mean": _var_mean, "welford": _welford,
    # gathers and products
    "embedding_fwd": _embedding_fwd, "gather": _gather, "index_select": _index_select, "linear": _linear,
    "matmul": _matmul, "take_along_axis": _take_along_axis,
    # sizes
    "at": _at, "shape": _shape, "size": _size,
}
# fmt: on
