"""nvFuser's ops over ours: a table from the name after `fd.ops.` to a function over nodes.

The functions' annotations say what the text must give (see `signature`); names of parameters are those of nvFuser's
Python definitions. `fusion_ir.build` does promotion and broadcasting, which here only numbers need. Ops that are
missing have no counterpart in the language: argsort, topk, scatter, cumprod, cummax, cummin, erfinv, erfcinv, lgamma,
gcd, nextafter, complex numbers, and random numbers, whose bits nvFuser does not define.
"""

from collections.abc import Callable, Sequence

from fusion_ir import build
from fusion_ir.build import Operand
from fusion_ir.dtype import DType, i64
from fusion_ir.node import Node
from fusion_ir.ops import RuleError


def _same(x: Node) -> Node:
    return x


def _cast(x: Operand, dtype: DType) -> Node:
    return build.cast(x, dtype) if isinstance(x, Node) else build.full((), x, dtype)


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
    """Indices as in Python, or, where the definition normalised them itself, taken as they are: either way the same."""
    return build.slice_(x, start_indices, end_indices, strides)


def _pad(x: Node, pad_widths: Sequence[int], value: float | int | bool | None = None) -> Node:
    """Pairs of widths, last axis first; axes that are left out are not padded."""
    if len(pad_widths) % 2 or len(pad_widths) > 2 * x.rank:
        raise RuleError(f"pad_widths has {len(pad_widths)} entries, expected pairs for at most {x.rank} axes")
    rest = (0,) * (x.rank - len(pad_widths) // 2)
    low, high = tuple(pad_widths[::2])[::-1], tuple(pad_widths[1::2])[::-1]
    return build.pad(x, (*rest, *low), (*rest, *high), 0 if value is None else value)


def _cat(tensors: Sequence[Node], dim: int = 0, manual_padding: bool = False) -> Node:
    return build.cat(tensors, dim)


def _full(shape: Sequence[int], fill_value: float | int | bool, dtype: DType) -> Node:
    return build.full(shape, fill_value, dtype)


def _iota(
    length: int,
    start: float | int | bool | None = None,
    step: float | int | bool | None = None,
    dtype: DType | None = None,
) -> Node:
    return build.iota([length], 0, 0 if start is None else start, 1 if step is None else step, dtype or i64)


def _triu(x: Node, diagonal: int = 0) -> Node:
    return build.triu(x, diagonal)


# Reductions: nvFuser's `dtype` is that of the result, Null for the usual one. The sum runs in it.


def _in_dtype(reduce: Callable[[Node, Sequence[int], bool], Node]) -> Callable[..., Node]:
    def reduction(x: Node, dims: Sequence[int], keepdim: bool = False, dtype: DType | None = None) -> Node:
        if dtype is None:
            return reduce(x, dims, keepdim)
        wide = build.promote((x.dtype, dtype)) if dtype.is_float else x.dtype
        return build.cast(reduce(build.cast(x, wide), dims, keepdim), dtype)

    return reduction


def _var(x: Node, dims: Sequence[int], correction: int = 1, keepdim: bool = False) -> Node:
    return build.var(x, dims, correction, keepdim)


def _var_mean(x: Node, dims: Sequence[int], correction: int = 1, keepdim: bool = False) -> tuple[Node, Node]:
    return build.var_mean(x, dims, correction, keepdim)


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


# Pointwise ops with parameters, and composites


def _clamp(x: Operand, min: Operand | None = None, max: Operand | None = None) -> Node:
    return build.clamp(x, min, max)


def _threshold(x: Operand, threshold: float | int | bool, value: float | int | bool) -> Node:
    return build.threshold(x, threshold, value)


def _addcmul(x: Operand, a: Operand, b: Operand, value: float | int | bool = 1) -> Node:
    return build.addcmul(x, a, b, value)


def _silu(x: Node) -> Node:
    return build.silu(x)


def _pow(x: Operand, exponent: Operand) -> Node:
    return build.pow_(x, exponent)


def _mod(x: Operand, y: Operand) -> Node:
    """The remainder with the dividend's sign, as % has it in C++."""
    return build.fmod(x, y)


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
    # unary
    "abs": build.abs_, "acos": build.acos, "acosh": build.acosh, "asin": build.asin, "asinh": build.asinh,
    "atan": build.atan, "atanh": build.atanh, "bitwise_not": build.bitwise_not, "ceil": build.ceil, "cos": build.cos,
    "cosh": build.cosh, "erf": build.erf, "erfc": build.erfc, "exp": build.exp, "exp2": build.exp2,
    "expm1": build.expm1, "floor": build.floor, "frac": build.frac, "isfinite": build.isfinite, "isinf": build.isinf,
    "isnan": build.isnan, "isneginf": build.isneginf, "isposinf": build.isposinf, "log": build.log,
    "log10": build.log10, "log1p": build.log1p, "log2": build.log2, "logical_not": build.logical_not,
    "neg": build.neg, "reciprocal": build.reciprocal, "relu": build.relu, "round": build.round_, "rsqrt": build.rsqrt,
    "segment_set": _same, "set": _same, "sigmoid": build.sigmoid, "sign": build.sign, "signbit": build.signbit,
    "silu": _silu, "sin": build.sin, "sinh": build.sinh, "sqrt": build.sqrt, "tan": build.tan, "tanh": build.tanh,
    "trunc": build.trunc,
    # binary and ternary
    "add": build.add, "addcmul": _addcmul, "atan2": build.atan2, "bitwise_and": build.bitwise_and,
    "bitwise_left_shift": build.shift_left, "bitwise_or": build.bitwise_or,
    "bitwise_right_shift": build.shift_right, "bitwise_xor": build.bitwise_xor, "clamp": _clamp, "div": build.div,
    "eq": build.eq, "fmod": build.fmod, "ge": build.ge, "gt": build.gt, "le": build.le, "lerp": build.lerp,
    "logical_and": build.logical_and, "logical_or": build.logical_or,
    "logical_right_shift": build.shift_right_logical, "lt": build.lt, "maximum": build.maximum,
    "minimum": build.minimum, "mod": _mod, "mul": build.mul, "ne": build.ne, "pow": _pow,
    "remainder": build.remainder, "sub": build.sub, "threshold": _threshold, "truediv": build.truediv,
    "where": build.where,
    # views and constants
    "broadcast": _broadcast, "broadcast_in_dim": _broadcast_in_dim, "cast": _cast, "cat": _cat, "expand": _expand,
    "full": _full, "iota": _iota, "pad": _pad, "permute": _permute, "reshape": _reshape, "slice": _slice,
    "squeeze": _squeeze, "stride_order": _stride_order, "triu": _triu,
    # reductions and scans
    "cumsum": _cumsum, "max": _in_dtype(build.max_), "min": _in_dtype(build.min_), "prod": _in_dtype(build.prod),
    "sum": _in_dtype(build.sum_), "var": _var, "var_mean": _var_mean, "welford": _welford,
    # gathers and products
    "embedding_fwd": _embedding_fwd, "gather": _gather, "index_select": _index_select, "linear": _linear,
    "matmul": _matmul, "take_along_axis": _take_along_axis,
    # sizes
    "at": _at, "shape": _shape, "size": _size,
}
# fmt: on
