"""Pointwise ops: out[i] = f(a[i], b[i], ...). One row each; adding an op is adding a row.

References see operands widened to the compute dtype and return that dtype or bool; the interpreter rounds to the
node's. Rows with `ulps` 0 are bit for bit on every target. The others compute in f64 and round once, and kernels stay
within `ulps` of the exact value.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fusion_ir.arithmetic.erf import erf_f32
from fusion_ir.core.node import Node
from fusion_ir.ops.row import Op, OpKind
from fusion_ir.ops.rules import (
    DTypeRule,
    bits,
    booleans,
    dtype_attr,
    equal_shapes,
    floats,
    integers,
    numbers,
    same,
    selected,
    to_bool,
)

Function = Callable[..., np.ndarray]
Reference = Callable[..., np.ndarray]


def _exact(
    name: str,
    doc: str,
    arity: int,
    dtype: DTypeRule,
    function: Function,
    *,
    cost: float = 1.0,
    commutative: bool = False,
    domain: tuple[float, float] = (-4.0, 4.0),
    zero_signs: tuple[int, ...] = (),
) -> Op:
    """A row whose results have equal bits on every target."""

    def reference(node: Node, *arrays: np.ndarray) -> np.ndarray:
        return function(*arrays)

    cpp = f"{name}_({', '.join(f'{{{i}}}' for i in range(arity))})"
    return Op(
        name, OpKind.POINTWISE, doc, arity, dtype, equal_shapes, reference,
        cpp=cpp, cost=cost, commutative=commutative, domain=domain, zero_signs=zero_signs,
    )  # fmt: skip


def _inexact(
    name: str,
    doc: str,
    arity: int,
    function: Function,
    *,
    ulps: float,
    cost: float,
    domain: tuple[float, float] = (-4.0, 4.0),
    zero_signs: tuple[int, ...] = (),
) -> Op:
    """A row for floats whose kernels stay within `ulps`; the reference computes in f64 and rounds once."""

    def reference(node: Node, *arrays: np.ndarray) -> np.ndarray:
        return function(*(a.astype(np.float64, copy=False) for a in arrays)).astype(arrays[0].dtype, copy=False)

    cpp = f"{name}_({', '.join(f'{{{i}}}' for i in range(arity))})"
    return Op(
        name,
        OpKind.POINTWISE,
        doc,
        arity,
        floats,
        equal_shapes,
        reference,
        cpp=cpp,
        ulps=ulps,
        cost=cost,
        domain=domain,
        zero_signs=zero_signs,
    )


# Definitions that NumPy does not have in one word


def _signbit(x: np.ndarray) -> np.ndarray:
    """The sign of a NaN depends on the machine that made it, so it has none here."""
    return np.signbit(x) & ~np.isnan(x)


def _is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f"


def _maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    top = np.maximum(a, b)
    return np.where(a == b, np.where(np.signbit(a), b, a), top) if _is_float(a) else top


def _minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    low = np.minimum(a, b)
    return np.where(a == b, np.where(np.signbit(a), a, b), low) if _is_float(a) else low


def _relu(x: np.ndarray) -> np.ndarray:
    return np.where(x <= 0, x.dtype.type(0), x)


def _sign(x: np.ndarray) -> np.ndarray:
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def _reciprocal(x: np.ndarray) -> np.ndarray:
    return x.dtype.type(1) / x


def _safe_divisor(b: np.ndarray) -> np.ndarray:
    """0 and -1 replaced by 1: the divisors that trap or overflow."""
    return np.where((b == 0) | (b == -1), b.dtype.type(1), b)


def _div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if _is_float(a):
        return a / b
    divisor = _safe_divisor(b)
    quotient = (a - np.fmod(a, divisor)) // divisor
    return np.where(b == 0, a.dtype.type(0), np.where(b == -1, np.negative(a), quotient))


def _floor_of_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """floor(a / b) of floats, by the remainder of the division: a / b itself may be rounded up to an integer."""
    one, half = a.dtype.type(1), a.dtype.type(0.5)
    rest, quotient = np.fmod(a, b), a / b
    whole = (a - rest) / b
    whole = np.where((rest != 0) & ((rest < 0) != (b < 0)), whole - one, whole)
    low = np.floor(whole)
    nearest = np.where(whole - low > half, low + one, low)
    return np.where(b == 0, quotient, np.where(whole == 0, np.copysign(a.dtype.type(0), quotient), nearest))


def _floordiv(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if _is_float(a):
        return _floor_of_quotient(a, b)
    return np.where(b == 0, a.dtype.type(0), np.where(b == -1, np.negative(a), a // _safe_divisor(b)))


def _fmod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if _is_float(a):
        return np.fmod(a, b)
    return np.where(b == 0, a, np.fmod(a, _safe_divisor(b)))


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if _is_float(a):
        rest = np.fmod(a, b)
        return np.where((rest != 0) & (np.signbit(rest) != np.signbit(b)), rest + b, rest)
    return np.where(b == 0, a, np.remainder(a, _safe_divisor(b)))


def _width(x: np.ndarray) -> int:
    return 8 * x.dtype.itemsize


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    inside = (b >= 0) & (b < _width(a))
    return np.where(inside, a << np.where(inside, b, b.dtype.type(0)), a.dtype.type(0))


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    inside = (b >= 0) & (b < _width(a))
    amount = np.where(inside, b, b.dtype.type(_width(a) - 1))
    if a.dtype.kind == "i":
        return a >> amount
    return np.where(inside, a >> amount, a.dtype.type(0))


def _shift_right_logical(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    inside = (b >= 0) & (b < _width(a))
    moved = a.astype(unsigned) >> np.where(inside, b, b.dtype.type(0)).astype(unsigned)
    return np.where(inside, moved, unsigned.type(0)).astype(a.dtype)


def _clamp(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return _minimum(_maximum(x, low), high)


def _lerp(a: np.ndarray, b: np.ndarray, w: np.ndarray) -> np.ndarray:
    one, half = w.dtype.type(1), w.dtype.type(0.5)
    return np.where(np.abs(w) < half, a + w * (b - a), b - (b - a) * (one - w))


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return 1.0 / np.sqrt(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, decay) / (1.0 + decay)


def _each(function: Callable[[float], float]) -> Function:
    """A function of the math module over an array of f64."""

    def over(x: np.ndarray) -> np.ndarray:
        return np.fromiter(map(function, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)

    return over


def _erf(node: Node, x: np.ndarray) -> np.ndarray:
    """erf(x); f32 by our own `erf_f32`, which is ten times as fast as one call per element."""
    return erf_f32(x.astype(np.float64)).astype(np.float32) if x.dtype == np.float32 else _each(math.erf)(x)


def _cast(node: Node, x: np.ndarray) -> np.ndarray:
    """The interpreter's rounding to the node's dtype is the cast."""
    return x


_CAST = Op(
    "cast",
    OpKind.POINTWISE,
    "x converted to `dtype`: to nearest even, f64 and integers to 16 and 8 bits by way of f32; float to int truncates, "
    "saturates, NaN to 0 (torch leaves both to the machine); to f8e4m3 saturates; int to int wraps; to bool is != 0, "
    "NaN true",
    1,
    dtype_attr,
    equal_shapes,
    _cast,
    attrs={"dtype": "dtype"},
    cpp="{0}",
)

POINTWISE: tuple[Op, ...] = (
    _CAST,
    # exact, one operand
    _exact("neg", "-x; integers wrap", 1, numbers, np.negative),
    _exact("abs", "|x|; integers wrap", 1, numbers, np.abs),
    _exact("sign", "-1, +0 or 1; +0 of NaN, as in torch", 1, numbers, _sign, cost=2),
    _exact("relu", "x where x > 0, else +0, also of -0 (torch: on CUDA); NaN stays", 1, numbers, _relu),
    _exact("square", "x * x", 1, numbers, np.square),
    _exact("sqrt", "correctly rounded; NaN below 0", 1, floats, np.sqrt, cost=4, domain=(0.0, 64.0)),
    _exact("reciprocal", "1 / x", 1, floats, _reciprocal, cost=4, domain=(0.125, 8.0), zero_signs=(0,)),
    _exact("floor", "largest integer <= x", 1, floats, np.floor),
    _exact("ceil", "smallest integer >= x", 1, floats, np.ceil),
    _exact("trunc", "x without its fraction", 1, floats, np.trunc),
    _exact("round", "nearest integer, halves to even", 1, floats, np.rint),
    _exact("isfinite", "neither infinite nor NaN", 1, to_bool(floats), np.isfinite),
    _exact("isinf", "+inf or -inf", 1, to_bool(floats), np.isinf),
    _exact("isnan", "NaN", 1, to_bool(floats), np.isnan),
    _exact("isneginf", "-inf", 1, to_bool(floats), np.isneginf),
    _exact("isposinf", "+inf", 1, to_bool(floats), np.isposinf),
    _exact("signbit", "sign bit set: also of -0.0; never of NaN", 1, to_bool(floats), _signbit, zero_signs=(0,)),
    # exact, arithmetic
    _exact("add", "a + b", 2, numbers, np.add, commutative=True),
    _exact("sub", "a - b", 2, numbers, np.subtract),
    _exact("mul", "a * b", 2, numbers, np.multiply, commutative=True),
    _exact("div", "a / b; integers truncate, x / 0 = 0, MIN / -1 = MIN", 2, numbers, _div, cost=4, domain=(0.25, 8.0),
           zero_signs=(1,)),
    _exact("floordiv", "floor of the quotient by way of fmod, a / b where b is 0; integers floor, 0 and -1 as div", 2,
           numbers, _floordiv, cost=16, zero_signs=(1,)),
    _exact("fmod", "a - trunc(a / b) * b, exact, sign of a; integers x rem 0 = x", 2, numbers, _fmod, cost=10),
    _exact("remainder", "fmod, plus b where that is not 0 and has not the sign of b", 2, numbers, _remainder, cost=11),
    _exact("maximum", "larger; NaN wins, +0 > -0 (torch: either)", 2, numbers, _maximum, commutative=True),
    _exact("minimum", "smaller; NaN wins, -0 < +0 (torch: either)", 2, numbers, _minimum, commutative=True),
    _exact("clamp", "minimum(maximum(x, low), high)", 3, numbers, _clamp, cost=2),
    _exact("lerp", "a + w (b - a) where |w| < 1/2, else b - (b - a)(1 - w), every step rounded", 3, floats, _lerp,
           cost=5, domain=(0.0, 1.0)),
    # exact, comparison and logic
    _exact("eq", "a == b; NaN equals nothing", 2, to_bool(same), np.equal, commutative=True),
    _exact("ne", "a != b", 2, to_bool(same), np.not_equal, commutative=True),
    _exact("lt", "a < b", 2, to_bool(numbers), np.less),
    _exact("le", "a <= b", 2, to_bool(numbers), np.less_equal),
    _exact("gt", "a > b", 2, to_bool(numbers), np.greater),
    _exact("ge", "a >= b", 2, to_bool(numbers), np.greater_equal),
    _exact("where", "a where the condition holds, else b", 3, selected, np.where),
    _exact("logical_and", "a and b", 2, booleans, np.logical_and, commutative=True),
    _exact("logical_or", "a or b", 2, booleans, np.logical_or, commutative=True),
    _exact("logical_xor", "a != b", 2, booleans, np.logical_xor, commutative=True),
    _exact("logical_not", "not a", 1, booleans, np.logical_not),
    _exact("bitwise_and", "a & b", 2, bits, np.bitwise_and, commutative=True),
    _exact("bitwise_or", "a | b", 2, bits, np.bitwise_or, commutative=True),
    _exact("bitwise_xor", "a ^ b", 2, bits, np.bitwise_xor, commutative=True),
    _exact("bitwise_not", "~a; not for bool", 1, bits, np.invert),
    _exact("shift_left", "a << b; 0 where b < 0 or b >= width", 2, integers, _shift_left, domain=(-2.0, 12.0)),
    _exact("shift_right", "a >> b with the sign; all sign where b < 0 or b >= width", 2, integers, _shift_right,
           domain=(-12.0, 12.0)),
    _exact("shift_right_logical", "a >> b with zeros; 0 where b < 0 or b >= width", 2, integers, _shift_right_logical,
           domain=(-12.0, 12.0)),
    # within ulps, floats only
    # exp, exp2 and sigmoid are CUDA's, whose 2^x is one instruction: over all floats they were off by 2.07, 2.38 and
    # 3.89 ulps on an H200 (tests/gpu/test_elementary.py). Of sigmoid, just above a power of 2 the same error is
    # twice as many ulps; its row is what the bounds of the PTX ISA come to.
    _inexact("exp", "e^x", 1, np.exp, ulps=2.5, cost=8),
    _inexact("exp2", "2^x", 1, np.exp2, ulps=2.5, cost=8),
    _inexact("expm1", "e^x - 1", 1, np.expm1, ulps=2, cost=12),
    _inexact("log", "ln x; NaN below 0", 1, np.log, ulps=1, cost=10, domain=(0.0625, 64.0)),
    _inexact("log2", "log to base 2", 1, np.log2, ulps=2, cost=10, domain=(0.0625, 64.0)),
    _inexact("log10", "log to base 10", 1, np.log10, ulps=2, cost=10, domain=(0.0625, 64.0)),
    _inexact("log1p", "ln(1 + x)", 1, np.log1p, ulps=2, cost=12, domain=(-0.875, 64.0)),
    _inexact("rsqrt", "1 / sqrt x", 1, _rsqrt, ulps=2, cost=6, domain=(0.0625, 64.0), zero_signs=(0,)),
    _inexact("sin", "sin x", 1, np.sin, ulps=2, cost=12),
    _inexact("cos", "cos x", 1, np.cos, ulps=2, cost=12),
    _inexact("tan", "tan x", 1, np.tan, ulps=4, cost=20, domain=(-1.5, 1.5)),
    _inexact("asin", "arc sine", 1, np.arcsin, ulps=3, cost=14, domain=(-1.0, 1.0)),
    _inexact("acos", "arc cosine", 1, np.arccos, ulps=2, cost=14, domain=(-1.0, 1.0)),
    _inexact("atan", "arc tangent", 1, np.arctan, ulps=2, cost=14),
    _inexact("atan2", "angle of the point (b, a)", 2, np.arctan2, ulps=2, cost=18, zero_signs=(0, 1)),
    _inexact("sinh", "hyperbolic sine", 1, np.sinh, ulps=3, cost=14),
    _inexact("cosh", "hyperbolic cosine", 1, np.cosh, ulps=2, cost=12),
    _inexact("tanh", "hyperbolic tangent", 1, np.tanh, ulps=3, cost=12),
    _inexact("asinh", "inverse of sinh", 1, np.arcsinh, ulps=2, cost=16),
    _inexact("acosh", "inverse of cosh", 1, np.arccosh, ulps=3, cost=16, domain=(1.0, 64.0)),
    _inexact("atanh", "inverse of tanh", 1, np.arctanh, ulps=3, cost=16, domain=(-0.9375, 0.9375)),
    replace(_inexact("erf", "error function", 1, _each(math.erf), ulps=2, cost=14), reference=_erf),
    _inexact("erfc", "1 - erf x", 1, _each(math.erfc), ulps=7, cost=20),
    _inexact("sigmoid", "1 / (1 + e^-x)", 1, _sigmoid, ulps=5, cost=12),
    _inexact("pow", "a^b as in C", 2, np.power, ulps=2, cost=24, domain=(0.125, 4.0), zero_signs=(0,)),
)  # fmt: skip
