"""nvFuser's ops as %kernel_math dumps spell them, over ours: infix operators, functions, casts, and everything else.

The spellings are those that nvFuser's printers write, older and newer. A function of one or two operands carries an f
where it gives float (cosf, fmodf). `fmax` and `fmin` hand NaN on, as nvFuser's own functions of these names do.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from fusion_ir import building as build
from fusion_ir.building import Operand
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, i64
from fusion_ir.formats.kernel_math import views
from fusion_ir.formats.kernel_math.calls import MathCall, Padding, Word
from fusion_ir.formats.kernel_math.scalars import Number
from fusion_ir.formats.kernel_math.tensors import KERNEL_DTYPES, Axis

Results = Node | tuple[Node, Padding] | list[Node]

# fmt: off
PREFIXES: Mapping[str, Callable[[Operand], Node]] = {
    "-": build.neg, "!": build.logical_not, "~": build.bitwise_not,
}
INFIX: Mapping[str, Callable[[Operand, Operand], Node]] = {
    "+": build.add, "-": build.sub, "*": build.mul, "/": build.div, "%": build.fmod,
    "==": build.eq, "!=": build.ne, "<": build.lt, "<=": build.le, ">": build.gt, ">=": build.ge,
    "&&": build.logical_and, "||": build.logical_or, "&": build.bitwise_and, "|": build.bitwise_or,
    "^": build.bitwise_xor, "<<": build.shift_left, ">>": build.shift_right,
}
# These are written with an f behind the name where the result is float.
_SUFFIXED: Mapping[str, Callable[..., Node]] = {
    "acos": build.acos, "acosh": build.acosh, "asin": build.asin, "asinh": build.asinh, "atan": build.atan,
    "atan2": build.atan2, "atanh": build.atanh, "ceil": build.ceil, "cos": build.cos, "cosh": build.cosh,
    "erf": build.erf, "erfc": build.erfc, "exp": build.exp, "exp2": build.exp2, "expm1": build.expm1,
    "floor": build.floor, "fmod": build.fmod, "log": build.log, "log10": build.log10, "log1p": build.log1p,
    "log2": build.log2, "nearbyint": build.round_, "rsqrt": build.rsqrt, "sin": build.sin, "sinh": build.sinh,
    "sqrt": build.sqrt, "tan": build.tan, "tanh": build.tanh, "trunc": build.trunc,
}
_PLAIN: Mapping[str, Callable[..., Node]] = {
    "abs": build.abs_, "bitwise_not": build.bitwise_not, "clamp": build.clamp, "fmax": build.maximum,
    "fmin": build.minimum, "frac": build.frac, "isfinite": build.isfinite, "isinf": build.isinf, "isnan": build.isnan,
    "isneginf": build.isneginf, "isposinf": build.isposinf, "lerp": build.lerp, "logical_not": build.logical_not,
    "max": build.maximum, "min": build.minimum, "pow": build.pow_, "reciprocal": build.reciprocal,
    "relu": build.relu, "remainder": build.remainder, "sigmoid": build.sigmoid, "signbit": build.signbit,
    "silu": build.silu, "threshold": build.threshold, "where": build.where,
}
_ARITY: Mapping[str, int] = {
    "atan2": 2, "fmod": 2, "fmax": 2, "fmin": 2, "max": 2, "min": 2, "pow": 2, "remainder": 2,
    "clamp": 3, "lerp": 3, "threshold": 3, "where": 3,
}
# fmt: on
POINTWISE_NAMES: tuple[str, ...] = (*_PLAIN, *_SUFFIXED, *(f"{name}f" for name in _SUFFIXED))

_CAST = re.compile(
    r"__(?:(?P<source>half|bfloat|float|double|int|bool|e4m3|e5m2)2|to_)(?P<to>\w+)\Z",
    re.ASCII,
)
_CAST_NAMES: Mapping[str, tuple[str, ...]] = {
    "half": ("f16",),
    "bfloat": ("bf16",),
    "float": ("f32",),
    "double": ("f64",),
    "bool": ("bool",),
    "e4m3": ("f8e4m3",),
    "e5m2": ("f8e5m2",),
    "int": ("i8", "i16", "i32", "i64", "u8"),  # __int2half is printed for every integer
    "int8": ("i8",),
    "int16": ("i16",),
    "int32": ("i8", "i16", "i32"),
    "int64": ("i64",),
    "index": ("i64",),
    "uint8": ("u8",),
    "uint32": ("u8",),
}
CAST_WORDS: Mapping[str, DType] = {**KERNEL_DTYPES, "int32_t": DTYPES["i32"]}


def pointwise(name: str, dtype: DType) -> tuple[Callable[..., Node], int] | None:
    """The function that is printed as `name` where it gives `dtype`, with its number of operands; None for no such."""
    plain = name[:-1] if name.endswith("f") and dtype.name == "f32" and name[:-1] in _SUFFIXED else name
    function = _SUFFIXED.get(plain) or _PLAIN.get(plain)
    return None if function is None else (function, _ARITY.get(plain, 1))


def cast_named(call: MathCall) -> Node | None:
    """__bfloat2float( x ) and the like; None where the call is no cast. Raises FormatError for other dtypes."""
    match = _CAST.match(call.name)
    if match is None or match["to"] not in _CAST_NAMES:
        return None
    call.count(1)
    x, to = call.tensor(0).node, call.result.dtype
    if match["source"] and x.dtype.name not in _CAST_NAMES[match["source"]]:
        raise call.error(f"{call.name} is applied to {x.dtype}")
    if to.name not in _CAST_NAMES[match["to"]]:
        raise call.error(f"{call.name} gives {' or '.join(_CAST_NAMES[match['to']])}, but {to} is written")
    return build.cast(x, to)


# Reductions: the result is written with its reduced axes, as r


def _reduced(call: MathCall, written: Sequence[Axis]) -> tuple[int, ...]:
    """The axes of the operand that the result has as r. Raises FormatError unless its axes are those of the operand."""
    before = call.tensor(0).mention.kept
    if [axis.extent for axis in before] != [axis.extent for axis in written]:
        found, expected = [a.extent for a in written], [a.extent for a in before]
        raise call.error(
            f"{call.name}: axes of extent {found} are written, expected {expected} as the operand has them"
        )
    axes = tuple(i for i, axis in enumerate(written) if axis.kind == "r")
    if not axes:
        raise call.error(f"{call.name}: no axis of the result is written as reduced (r)")
    return axes


def _lowest(dtype: DType) -> tuple[Number, ...]:
    if dtype.is_float:
        largest = {"f64": 1.7976931348623157e308, "f32": 3.4028234663852886e38, "f16": 65504.0}.get(dtype.name)
        return (-math.inf, *(() if largest is None else (-largest,)))
    return (-(2 ** (8 * dtype.bytes - 1)),) if dtype.kind == "int" else (0,)


def _highest(dtype: DType) -> tuple[Number, ...]:
    if dtype.is_float:
        return tuple(-value for value in _lowest(dtype))
    bits = 8 * dtype.bytes - (dtype.kind == "int")
    return (2**bits - 1,) if dtype.is_integer else (1,)


_REDUCTIONS: Mapping[str, tuple[Callable[..., Node], Callable[[DType], tuple[Number, ...]]]] = {
    "add": (build.sum_, lambda _: (0,)),
    "mul": (build.prod, lambda _: (1,)),
    "fmax": (build.max_, _lowest),
    "max": (build.max_, _lowest),
    "fmin": (build.min_, _highest),
    "min": (build.min_, _highest),
    "logical_or": (build.any_, lambda _: (0,)),
    "logical_and": (build.all_, lambda _: (1,)),
}


def _reduction(call: MathCall) -> Node:
    call.count(1)
    x, axes = call.tensor(0).node, _reduced(call, call.result.axes)
    op = call.required("op", Word, "a word").text
    if op not in _REDUCTIONS:
        raise call.error(f"unknown reduction {op}, expected one of {[*_REDUCTIONS]}")
    function, neutral = _REDUCTIONS[op]
    initial = call.required("initial value", object, "a number")
    expected = neutral(x.dtype)
    if not isinstance(initial, bool | int | float) or not any(math.isclose(initial, e, rel_tol=1e-6) for e in expected):
        raise call.error(f"{op} starts from {initial}, expected {' or '.join(map(str, expected))}")
    call.flag("allreduce")
    return function(x, axes)


def _welford(call: MathCall) -> list[Node]:
    """Mean, sum of squared deviations, and count: T1(Avg), T2(Var), T3(Count) = Welford ( T0(Avg), allreduce = false ).

    The names (Avg), (Var) and (Count) stand behind the tensors.
    """
    call.count(1)
    x = call.tensor(0).node
    call.flag("allreduce")
    if [m.tag for m in call.results] != ["Avg", "Var", "Count"] or call.positional[0].tag != "Avg":
        raise call.error("Welford: expected results T(Avg), T(Var), T(Count) of one operand T(Avg)")
    axes = _reduced(call, call.results[0].axes)
    for other in call.results[1:]:
        if _reduced(call, other.axes) != axes:
            raise call.error(f"Welford: {other.name} is reduced along other axes than {call.results[0].name}")
    mean = build.mean(x, axes, True)
    squares = build.sum_(build.square(build.sub(x, mean)), axes)
    count = x.elements // max(squares.elements, 1)
    return [build.mean(x, axes), squares, build.full(squares.sizes, count, call.results[2].dtype)]


def _scan(call: MathCall) -> Node:
    call.count(1)
    x, dim = call.tensor(0).node, call.integer("dim", "an axis")
    op, initial = call.required("op_type", Word, "a word").text, call.required("init", object, "a number")
    if op != "add" or initial != 0:
        raise call.error(f"scan: {op} from {initial} is not in the language, expected add from 0")
    return build.cumsum(x, dim)


# Gathers and products


def _index_select(call: MathCall) -> Node:
    call.count(2)
    return build.index_select(call.tensor(0).node, call.integer("dim", "an axis"), call.tensor(1).node)


def _torch_gather(call: MathCall) -> Node:
    call.count(2)
    return build.gather(call.tensor(0).node, call.integer("dim", "an axis"), call.tensor(1).node)


def _take_along_axis(call: MathCall) -> Node:
    call.count(2)
    return build.take_along_axis(call.tensor(0).node, call.tensor(1).node, call.integer("dim", "an axis"))


def _select(call: MathCall) -> Node:
    """select( x, axis = iS4{8}, index = i7 ): the axis by its number."""
    call.count(1)
    x = call.tensor(0)
    axis, index = call.required("axis", Axis, "an axis"), call.integer("index", "an integer")
    if axis not in x.mention.kept:
        raise call.error(f"select: {axis} is no axis of {x.mention.name}")
    position = x.mention.kept.index(axis)
    if not 0 <= index < axis.extent:
        raise call.error(f"select: index {index} is not below the extent of {axis}")
    start = [index if a == position else 0 for a in range(x.node.rank)]
    stop = [index + 1 if a == position else n for a, n in enumerate(x.node.sizes)]
    return build.squeeze(build.slice_(x.node, start, stop), position if x.node.rank else None)


def _embedding(call: MathCall) -> Node:
    """All keywords but max_norm, which changes the table, matter only to the gradient."""
    call.count(2)
    for name in ("padding_idx", "norm_type", "scale_grad_by_freq", "sparse"):
        call.keyword(name, object, "a number")
    return build.embedding(call.tensor(0).node, call.tensor(1).node)


def _without_k(call: MathCall, extent: int) -> None:
    """Newer dumps write the summed axis behind a product's own, as r."""
    summed = [axis for axis in call.result.axes if axis.kind == "r"]
    if len(summed) > 1 or any(axis.extent != extent for axis in summed):
        raise call.error(
            f"{call.name} sums over an axis of extent {extent}, but {', '.join(map(str, summed))} is written"
        )


def _matmul(call: MathCall) -> Node:
    call.count(2)
    a, b = call.tensor(0).node, call.tensor(1).node
    result = build.matmul(a, b)
    _without_k(call, a.sizes[-1])
    return result


def _linear(call: MathCall) -> Node:
    bias = call.tensor(2).node if call.count(2, 3) == 3 else None
    x = call.tensor(0).node
    result = build.linear(x, call.tensor(1).node, bias)
    _without_k(call, x.sizes[-1])
    return result


# Constants


def _full(call: MathCall) -> Node:
    call.count(2)
    return build.full(call.integers(0), call.number(1), call.result.dtype)


def _iota(call: MathCall) -> Node:
    call.count(4)
    dtype = CAST_WORDS.get(call.word(3))
    if dtype != call.result.dtype:
        raise call.error(f"iota of {call.word(3)} gives {call.result.dtype} as it is written")
    length = call.number(0)
    if not isinstance(length, int):
        raise call.error(f"iota has length {length}")
    return build.iota([length], 0, call.number(1), call.number(2), dtype or i64)


CALLS: Mapping[str, Callable[[MathCall], Results]] = {
    "Set": views.set_,
    "Set.Permute": views.permute,
    "SegmenterSet": views.set_,
    "Welford": _welford,
    "broadcast": views.broadcast,
    "cat": views.cat,
    "embedding": _embedding,
    "expand": views.expand,
    "full": _full,
    "indexSelect": _index_select,
    "index_select": _index_select,
    "iota": _iota,
    "linear": _linear,
    "matmul": _matmul,
    "pad": views.pad,
    "reduction": _reduction,
    "repeat": views.expand,
    "reshape": views.reshape,
    "scan": _scan,
    "select": _select,
    "slice": views.slice_,
    "squeeze": views.squeeze,
    "takeAlongAxis": _take_along_axis,
    "torchGather": _torch_gather,
    "view": views.reshape,
}
