"""MIGraphX's ops over ours: a table from their names to functions over nodes.

Parameters that are no nodes are named as MIGraphX prints them. Ops that are missing have no counterpart in the language
(convolutions, pooling, sorting, loops, recurrent layers), or their text does not say what they compute (compiled
kernels, `gpu::code_object`).
"""

from collections.abc import Callable, Sequence

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, f32
from fusion_ir.formats.migraphx import missing_operands as missing
from fusion_ir.formats.migraphx.quantised import QUANTISED
from fusion_ir.formats.migraphx.row import Row
from fusion_ir.formats.migraphx.views import VIEWS
from fusion_ir.ops import RuleError

# Products


def _check_product(a: Node, b: Node) -> None:
    """MIGraphX broadcasts nothing in a product: ranks, batch axes and dtypes are equal."""
    if a.rank < 2 or a.rank != b.rank or a.sizes[:-2] != b.sizes[:-2] or a.sizes[-1] != b.sizes[-2]:
        raise RuleError(f"expected [..., M, K] and [..., K, N] with equal axes in front, got {list(a.sizes)} "
                        f"and {list(b.sizes)}")  # fmt: skip
    if a.dtype != b.dtype:
        raise RuleError(f"expected operands of one element type, got {a.dtype} and {b.dtype}")


def _factor(value: float, dtype: DType, name: str) -> float | int:
    if dtype.is_float:
        return value
    if value != int(value):
        raise RuleError(f"{name} is {value}, expected an integer for a product of integers")
    return int(value)


def _product(a: Node, b: Node, c: Node | None, alpha: float, beta: float, out: DType) -> Node:
    """alpha a b + beta c, rounded once. Without c, or with beta 0, the sum is left out and beta does not count."""
    _check_product(a, b)
    added = c is not None and beta != 0
    if alpha == 1 and not added:
        return build.matmul(a, b, out)
    inner = f32 if out.is_float and out.bytes < 4 else out
    result = build.matmul(a, b, inner)
    if alpha != 1:
        result = build.mul(result, _factor(alpha, out, "alpha"))
    if c is not None and added:
        if c.sizes != result.sizes or c.dtype != out:
            raise RuleError(f"expected an addend {out}{list(result.sizes)}, got {c.dtype}{list(c.sizes)}")
        addend = build.cast(c, inner)
        result = build.add(result, addend if beta == 1 else build.mul(addend, _factor(beta, out, "beta")))
    return build.cast(result, out)


def _dot(a: Node, b: Node, c: Node | None = None, alpha: float = 1.0, beta: float = 1.0) -> Node:
    return _product(a, b, c, alpha, beta, a.dtype)


def _quant_dot(a: Node, b: Node, c: Node | None = None, alpha: float = 1.0, beta: float = 1.0) -> Node:
    """i8 gives i32, 8-bit floats give f32."""
    if a.dtype.bytes != 1 or a.dtype.kind in ("uint", "bool"):
        raise RuleError(f"expected operands of i8 or an 8-bit float, got {a.dtype}")
    return _product(a, b, c, alpha, beta, f32 if a.dtype.is_float else DTYPES["i32"])


def _gemm(dot: Callable[[Node, Node, Node | None, float, float], Node]) -> Callable[..., Node]:
    """`dot` after lowering. Sums run in f32 whatever `compute_fp32` says; `trans_batch` is a layout, which the result's
    strides state."""

    def gemm(
        a: Node,
        b: Node,
        c: Node | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        int8_x4_format: bool = False,
        compute_fp32: bool = False,
        trans_batch: int = 0,
        solution_idx: int = 0,
    ) -> Node:
        return dot(a, b, c, alpha, beta)

    return gemm


# Pointwise


def _same(x: Node) -> Node:
    return x


def _first(xs: Sequence[Node]) -> Node:
    """A wait: the others are values that are waited for."""
    return xs[0]


def _squared_difference(x: Node, y: Node) -> Node:
    return build.square(build.sub(x, y))


def _leaky_relu(x: Node, alpha: float = 0.01) -> Node:
    return build.where(build.gt(x, 0), x, build.mul(x, alpha))


def _elu(x: Node, alpha: float = 1.0) -> Node:
    return build.where(build.gt(x, 0), x, build.mul(build.expm1(x), alpha))


def _prelu(x: Node, slope: Node) -> Node:
    return build.where(build.lt(x, 0), build.mul(x, slope), x)


def _clip(
    x: Node,
    low: Node | None = None,
    high: Node | None = None,
    max_val: float | None = None,
    min_val: float | None = None,
) -> Node:
    """Bounds as operands, or, in older releases, as attributes."""
    return build.clamp(x, min_val if low is None else low, max_val if high is None else high)


def _convert(x: Node, target_type: str = "") -> Node:
    """The reader casts to the printed type, and holds `target_type` against it."""
    return x


def _then(*functions: Callable[..., Node]) -> Callable[[Node, Node], Node]:
    """The first over two operands, the others over what comes out; every step is rounded."""

    def chain(x: Node, y: Node) -> Node:
        node = functions[0](x, y)
        for function in functions[1:]:
            node = function(node)
        return node

    return chain


def _of_three(first: Callable[..., Node], *functions: Callable[..., Node]) -> Callable[[Node, Node, Node], Node]:
    """first(x, y) + z, then the others; every step is rounded."""

    def chain(x: Node, y: Node, z: Node) -> Node:
        node = build.add(first(x, y), z)
        for function in functions:
            node = function(node)
        return node

    return chain


# Along axes


def _softmax(x: Node, axis: int = 1) -> Node:
    return build.softmax(x, axis)


def _log_softmax(x: Node, axis: int = 1) -> Node:
    return build.log_softmax(x, axis)


def _reduce(function: Callable[[Node, build.Axes, bool], Node], floats: bool = False) -> Callable[..., Node]:
    """A reduction over `axes`, or over all where there are none; the axes stay with extent 1, the dtype stays."""

    def reduction(x: Node, axes: Sequence[int] = ()) -> Node:
        if floats and not x.dtype.is_float:
            raise RuleError(f"expected a floating-point operand, got {x.dtype}")
        return build.cast(function(x, axes or None, True), x.dtype)

    return reduction


def _argument(function: Callable[[Node, int | None, bool], Node]) -> Callable[..., Node]:
    def reduction(x: Node, axis: int = 0, select_last_index: bool = False) -> Node:
        if select_last_index:
            raise RuleError("select_last_index is 1, only the lowest index can be selected")
        return function(x, axis, True)

    return reduction


def _prefix_sum(x: Node, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Node:
    if exclusive or reverse:
        raise RuleError("exclusive and reversed sums are not read")
    return build.cast(build.cumsum(x, axis), x.dtype)


def _concat(xs: Sequence[Node], axis: int = 0) -> Node:
    return build.cat(xs, axis)


def _pad(x: Node, pads: Sequence[int], mode: str = "0", value: float = 0.0) -> Node:
    """Widths before every axis, then widths behind every axis."""
    if mode not in ("0", "constant", "constant_pad"):
        raise RuleError(f"mode is {mode}, only 0 (constant) is read")
    if len(pads) != 2 * x.rank:
        raise RuleError(f"pads has {len(pads)} entries, expected {2 * x.rank} for rank {x.rank}")
    return build.pad(x, pads[: x.rank], pads[x.rank :], value)


def _gather(x: Node, index: Node, index_strides: Sequence[int], axis: int = 0) -> Node:
    """Slices of x along `axis`; negative indices count from the end. The axis vanishes for a scalar index, {1}, {0}."""
    at = build.normal_axis(axis, x.rank)
    index = index if index.dtype.name in ("i32", "i64") else build.cast(index, DTYPES["i64"])
    positive = build.where(build.lt(index, 0), build.add(index, x.sizes[at]), index)
    picked = build.index_select(x, at, build.flatten(positive))
    inside = () if index.sizes == (1,) and not any(index_strides) else index.sizes
    sizes = [*x.sizes[:at], *inside, *x.sizes[at + 1 :]]
    return build.reshape(picked, sizes or [1])


_UNARY: dict[str, Callable[..., Node]] = {
    "abs": build.abs_, "acos": build.acos, "acosh": build.acosh, "asin": build.asin, "asinh": build.asinh,
    "atan": build.atan, "atanh": build.atanh, "ceil": build.ceil, "cos": build.cos, "cosh": build.cosh,
    "elu": _elu, "erf": build.erf, "exp": build.exp, "floor": build.floor, "leaky_relu": _leaky_relu,
    "log": build.log, "log2": build.log2, "nearbyint": build.round_, "neg": build.neg, "recip": build.reciprocal,
    "relu": build.relu, "rsqrt": build.rsqrt, "sigmoid": build.sigmoid, "sign": build.sign, "sin": build.sin,
    "sinh": build.sinh, "sqrt": build.sqrt, "tan": build.tan, "tanh": build.tanh,
}  # fmt: skip
_BINARY: dict[str, Callable[..., Node]] = {
    "add": build.add, "bitwise_and": build.bitwise_and, "div": build.div, "fmod": build.fmod, "max": build.maximum,
    "min": build.minimum, "mod": build.remainder, "mul": build.mul, "pow": build.pow_, "prelu": _prelu,
    "sqdiff": _squared_difference, "sub": build.sub,
}  # fmt: skip
_TRUTH: dict[str, Callable[..., Node]] = {
    "equal": build.eq, "greater": build.gt, "greater_or_equal": build.ge, "isinf": build.isinf, "isnan": build.isnan,
    "less": build.lt, "less_or_equal": build.le, "logical_and": build.logical_and, "logical_or": build.logical_or,
    "logical_xor": build.logical_xor, "not": build.logical_not,
}  # fmt: skip

# Kernels of older releases that join two or three ops, each rounded as if it stood alone.
_JOINED: dict[str, Callable[..., Node]] = {
    "gpu::add_relu": _then(build.add, build.relu), "gpu::add_sigmoid": _then(build.add, build.sigmoid),
    "gpu::add_tanh": _then(build.add, build.tanh), "gpu::mul_add": _of_three(build.mul),
    "gpu::mul_add_relu": _of_three(build.mul, build.relu), "gpu::triadd": _of_three(build.add),
    "gpu::triadd_relu": _of_three(build.add, build.relu), "gpu::triadd_sigmoid": _of_three(build.add, build.sigmoid),
    "gpu::triadd_tanh": _of_three(build.add, build.tanh),
}  # fmt: skip

MIGRAPHX_OPS: dict[str, Row] = {
    **{name: Row(function, missing.like_result, each=True) for name, function in {**_UNARY, **_BINARY}.items()},
    **{name: Row(function, missing.compared, each=True, cast="truth") for name, function in _TRUTH.items()},
    **{name: Row(function, missing.like_result, each=True) for name, function in _JOINED.items()},
    **VIEWS,
    **QUANTISED,
    "clip": Row(_clip, missing.like_result, each=True),
    "convert": Row(_convert, missing.extents_only, each=True, cast="any"),
    "where": Row(build.where, missing.selected, each=True),
    "dot": Row(_dot, missing.product, lowered=False),
    "gpu::gemm": Row(_gemm(_dot), missing.product),
    "quant_dot": Row(_quant_dot, missing.quantised_product, lowered=False),
    "gpu::quant_gemm": Row(_gemm(_quant_dot), missing.quantised_product),
    "softmax": Row(_softmax, missing.like_result),
    "logsoftmax": Row(_log_softmax, missing.like_result),
    "prefix_scan_sum": Row(_prefix_sum, missing.like_result),
    "reduce_all": Row(_reduce(build.all_), missing.element_type),
    "reduce_any": Row(_reduce(build.any_), missing.element_type),
    "reduce_max": Row(_reduce(build.max_), missing.element_type),
    "reduce_mean": Row(_reduce(build.mean, floats=True), missing.element_type),
    "reduce_min": Row(_reduce(build.min_), missing.element_type),
    "reduce_prod": Row(_reduce(build.prod), missing.element_type),
    "reduce_sum": Row(_reduce(build.sum_), missing.element_type),
    "argmax": Row(_argument(build.argmax), missing.nothing),
    "argmin": Row(_argument(build.argmin), missing.nothing),
    "concat": Row(_concat, missing.concatenated),
    "gather": Row(_gather, missing.first_element_type),
    "pad": Row(_pad, missing.padded),
    # Copies between host and device, whose second argument is a buffer where there is one
    "hip::copy": Row(_same, missing.like_result),
    "hip::copy_from_gpu": Row(_same, missing.like_result),
    "hip::copy_to_gpu": Row(_same, missing.like_result),
    "hip::sync_stream": Row(_first, missing.nothing),
}


def row_of(op: str) -> Row | None:
    """The row of an op as the text spells it: `add`, or `gpu::add` after lowering."""
    row = MIGRAPHX_OPS.get(op)
    if row is None and op.startswith("gpu::"):
        row = MIGRAPHX_OPS.get(op.removeprefix("gpu::"))
        return row if row is not None and row.lowered else None
    return row


# Ops whose results are memory, not data.
BUFFERS: tuple[str, ...] = (
    "allocate", "cpu::allocate", "cpu::preallocate", "gpu::allocate", "hip::allocate", "hip::allocate_memory",
    "hip::hip_allocate_memory", "load", "preallocate",
)  # fmt: skip

# Ops that the text does not determine, with what to do instead.
OPAQUE: dict[str, str] = {
    "gpu::code_object": "a compiled kernel, and the text does not say what it computes",
    "gpu::mlir_op": "a kernel still to be compiled",
    "gpu::precompile_op": "a kernel still to be compiled",
}
