"""Pointwise ops that the wire has by name: arithmetic, functions, comparisons, logic, bits."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from fuseplan_client.torch.aten.call import KIND, Call, Lowering, aten, prims, promoted, wide
from fuseplan_client.torch.wire import Number, Refused, Tensor, rounded


def combined(
    call: Call, op: str, args: tuple[Tensor | Number, ...], kind: KIND = KIND.DEFAULT, *, unrounded: bool = False
) -> Tensor:
    """`op` of operands that are promoted as PyTorch promotes them. unrounded: PyTorch's kernel takes numbers, and
    tensors without axes, as they are; others round them to a tensor's 16 bits first."""
    meet, result = promoted(args, kind)
    inner = wide(meet) if unrounded and any(_loses(a, meet) for a in args) else meet
    first, *others = (call.writer.value(a, inner) for a in args)
    found = first.pointwise(op, *others, dtype=torch.bool if kind == KIND.ALWAYS_BOOL else inner)
    return found.cast(result).broadcast(call.shape)


def _loses(operand: Tensor | Number, dtype: torch.dtype) -> bool:
    """Whether an operand that takes no part in promotion would be rounded to `dtype`."""
    if wide(dtype) == dtype:
        return False
    if isinstance(operand, Tensor):
        return not operand.rank and operand.dtype.is_floating_point and operand.dtype.itemsize > dtype.itemsize
    narrow, exact = rounded(operand, dtype), rounded(operand, torch.float32)
    return narrow != exact and exact == exact


def _op(op: str, kind: KIND = KIND.DEFAULT, *, unrounded: bool = False) -> Lowering:
    def lower(call: Call, *args: Any) -> Tensor:
        return combined(call, op, args, kind, unrounded=unrounded)

    return lower


def _division(op: str, *, unrounded: bool = False) -> Lowering:
    """A quotient in whole numbers, or what is left."""

    def lower(call: Call, x: Any, y: Any) -> Tensor:
        _check_divisor(x, y)
        return combined(call, op, (x, y), unrounded=unrounded)

    return lower


def _check_divisor(x: Any, y: Any) -> None:
    """Raises Refused where PyTorch raises for zeros: of integers by what may be 0."""
    meet, _ = promoted([x, y], KIND.DEFAULT)
    if not meet.is_floating_point and (isinstance(y, Tensor) or y == 0):
        raise Refused("integers divided by what may be 0, for which PyTorch raises")


def _rounding(op: str) -> Lowering:
    """Rounding to integers, which leaves integers as they are."""

    def lower(call: Call, x: Tensor) -> Tensor:
        return x.pointwise(op) if x.dtype.is_floating_point else x

    return lower


def _of_floats(op: str, otherwise: bool) -> Lowering:
    """A test of floats that is `otherwise` for every integer and bool."""

    def lower(call: Call, x: Tensor) -> Tensor:
        return x.pointwise(op, dtype=torch.bool) if x.dtype.is_floating_point else call.full(otherwise)

    return lower


def _sum(call: Call, op: str, x: Any, y: Any, alpha: Number) -> Tensor:
    if alpha == 1 and not isinstance(alpha, Tensor):
        return combined(call, op, (x, y))
    meet, _ = promoted([x, y], KIND.DEFAULT)
    inner = wide(meet)  # PyTorch scales, by a number of the tensors' dtype, and adds in one kernel
    x, y = (call.writer.value(call.writer.value(v, meet), inner) for v in (x, y))
    if not isinstance(alpha, Tensor) and meet != inner:
        alpha = rounded(alpha, meet)
    scaled = y.pointwise("mul", alpha)
    return x.pointwise(op, scaled).cast(meet).broadcast(call.shape)


def add(call: Call, x: Any, y: Any, alpha: Number = 1) -> Tensor:
    """x + alpha y."""
    return _sum(call, "add", x, y, alpha)


def sub(call: Call, x: Any, y: Any, alpha: Number = 1) -> Tensor:
    """x - alpha y."""
    return _sum(call, "sub", x, y, alpha)


def rsub(call: Call, x: Any, y: Any, alpha: Number = 1) -> Tensor:
    """y - alpha x."""
    return _sum(call, "sub", y, x, alpha)


def div(call: Call, x: Any, y: Any, rounding_mode: str | None = None) -> Tensor:
    """x / y, of integers in floats; or rounded down, or towards 0."""
    if rounding_mode is None:
        return combined(call, "div", (x, y), KIND.INT_TO_FLOAT, unrounded=True)
    _check_divisor(x, y)
    if rounding_mode == "floor":
        return combined(call, "floordiv", (x, y), unrounded=True)
    meet, _ = promoted([x, y], KIND.DEFAULT)
    if not meet.is_floating_point:
        return combined(call, "div", (x, y))
    inner = wide(meet)  # the quotient is not rounded to 16 bits before it is truncated
    quotient = call.writer.value(x, inner) / call.writer.value(y, inner)
    return quotient.pointwise("trunc").cast(meet).broadcast(call.shape)


def power(call: Call, x: Any, exponent: Any) -> Tensor:
    """x to the power of `exponent`; the wire spells small powers by exact ops, as PyTorch does."""
    meet, result = promoted([x, exponent], KIND.BOOL_TO_LONG)
    if isinstance(x, Tensor) and not isinstance(exponent, Tensor) and math.isfinite(exponent):
        if not meet.is_floating_point and not 0 <= exponent <= 64:
            raise Refused("a power of integers below 0 or beyond 64")
        if exponent == 0 and call.target is not aten.pow.Tensor_Tensor:
            return call.full(1)
        if meet == torch.float16:  # of which PyTorch makes no roots and no products: -inf to 0.5 is inf
            return combined(call, "pow", (x, exponent), KIND.BOOL_TO_LONG)
        attrs = {"exponent": int(exponent) if not meet.is_floating_point else float(exponent)}
        return call.writer.op("pow", [x.cast(meet)], call.shape, meet, **attrs).cast(result)
    return combined(call, "pow", (x, exponent), KIND.BOOL_TO_LONG)


def bitwise_not(call: Call, x: Tensor) -> Tensor:
    """Each bit turned; of bool the opposite."""
    return x.pointwise("logical_not" if x.dtype == torch.bool else "bitwise_not")


def negative(call: Call, x: Tensor) -> Tensor:
    """-x."""
    return -x


def absolute(call: Call, x: Tensor) -> Tensor:
    """|x|; of bool as it is."""
    return x if x.dtype == torch.bool or x.dtype == torch.uint8 else x.pointwise("abs")


def sign(call: Call, x: Tensor) -> Tensor:
    """-1, 0 or 1; of bool as it is."""
    return x if x.dtype == torch.bool else x.pointwise("sign")


def signbit(call: Call, x: Tensor) -> Tensor:
    """Whether the sign bit is set; of integers, whether they are negative."""
    if x.dtype.is_floating_point:
        return x.pointwise("signbit", dtype=torch.bool)
    return call.full(False) if x.dtype == torch.bool else x.compared("lt", 0)


def x_log_y(call: Call, x: Any, y: Any) -> Tensor:
    """x ln y, the logarithm rounded to the tensors' dtype; 0 where x is 0, unless y is NaN."""
    w = call.writer
    meet, _ = promoted([x, y], KIND.INT_TO_FLOAT)
    x, y = w.value(x, meet), w.value(y, meet)
    found = w.where(x.compared("eq", 0), 0, x * y.pointwise("log"), meet)
    return w.where(y.pointwise("isnan", dtype=torch.bool), y, found, meet).broadcast(call.shape)


def copysign(call: Call, x: Tensor, y: Any) -> Tensor:
    """|x| with the sign of y."""
    dtype = call.dtype
    size = x.cast(dtype).pointwise("abs")
    other = call.writer.value(y, dtype)
    return call.writer.where(other.pointwise("signbit", dtype=torch.bool), -size, size, dtype).broadcast(call.shape)


def without_nan(op: str) -> Lowering:
    """The larger or the smaller of two, of which NaN is none."""

    def lower(call: Call, x: Tensor, y: Tensor) -> Tensor:
        w, dtype = call.writer, call.dtype
        x, y = x.cast(dtype), y.cast(dtype)
        found = x.pointwise(op, y)
        if dtype.is_floating_point:
            found = w.where(y.pointwise("isnan", dtype=torch.bool), x, found, dtype)
            found = w.where(x.pointwise("isnan", dtype=torch.bool), y, found, dtype)
        return found.broadcast(call.shape)

    return lower


def round_decimals(call: Call, x: Tensor, *, decimals: int = 0) -> Tensor:
    """x rounded to a decimal place: x 10^d to even, over 10^d; by the inverse where d < 0."""
    if not x.dtype.is_floating_point or not decimals:
        return _rounding("round")(call, x)
    given, ten = x.cast(wide(x.dtype)), 10.0 ** abs(decimals)
    if decimals > 0:
        return ((given * ten).pointwise("round") / ten).cast(x.dtype)
    return ((given / ten).pointwise("round") * ten).cast(x.dtype)


def relu(call: Call, x: Tensor) -> Tensor:
    """x where x > 0, else 0."""
    return x.pointwise("relu")


def shift(op: str) -> Lowering:
    """A shift of bits; PyTorch's by a negative number of bits, or by too many, is what the wire's is."""

    def lower(call: Call, x: Any, y: Any) -> Tensor:
        return combined(call, op, (x, y))

    return lower


_FUNCTIONS = """acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 reciprocal rsqrt
sigmoid sin sinh sqrt tan tanh""".split()
_COMPARISONS = "eq ne lt le gt ge".split()
_ROUNDINGS = "floor ceil trunc".split()

POINTWISE: Mapping[Any, Lowering] = {
    **{getattr(aten, name).default: _op(name, KIND.INT_TO_FLOAT) for name in _FUNCTIONS},
    **{
        getattr(getattr(aten, name), overload): _op(name, KIND.ALWAYS_BOOL)
        for name in _COMPARISONS
        for overload in ("Tensor", "Scalar")
    },
    **{getattr(aten, name).default: _rounding(name) for name in _ROUNDINGS},
    aten.round.default: _rounding("round"),
    aten.isnan.default: _of_floats("isnan", False),
    aten.isinf.default: _of_floats("isinf", False),
    aten.isfinite.default: _of_floats("isfinite", True),
    aten.isneginf.default: _of_floats("isneginf", False),
    aten.isposinf.default: _of_floats("isposinf", False),
    aten.logical_not.default: _op("logical_not", KIND.ALWAYS_BOOL),
    aten.logical_and.default: _op("logical_and", KIND.ALWAYS_BOOL),
    aten.logical_or.default: _op("logical_or", KIND.ALWAYS_BOOL),
    aten.logical_xor.default: _op("logical_xor", KIND.ALWAYS_BOOL),
    **{
        getattr(getattr(aten, f"bitwise_{name}"), overload): _op(f"bitwise_{name}")
        for name in ("and", "or", "xor")
        for overload in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    aten.bitwise_not.default: bitwise_not,
    aten.add.Tensor: add,
    aten.add.Scalar: add,
    aten.sub.Tensor: sub,
    aten.sub.Scalar: sub,
    aten.rsub.Tensor: rsub,
    aten.rsub.Scalar: rsub,
    aten.mul.Tensor: _op("mul", unrounded=True),
    aten.mul.Scalar: _op("mul", unrounded=True),
    aten.div.Tensor: div,
    aten.div.Scalar: div,
    aten.div.Tensor_mode: div,
    aten.div.Scalar_mode: div,
    aten.floor_divide.default: _division("floordiv", unrounded=True),
    aten.fmod.Tensor: _division("fmod"),
    aten.fmod.Scalar: _division("fmod"),
    aten.remainder.Tensor: _division("remainder"),
    aten.remainder.Scalar: _division("remainder"),
    aten.remainder.Scalar_Tensor: _division("remainder"),
    aten.maximum.default: _op("maximum"),
    aten.minimum.default: _op("minimum"),
    aten.atan2.default: _op("atan2", KIND.INT_TO_FLOAT),
    aten.pow.Tensor_Scalar: power,
    aten.pow.Tensor_Tensor: power,
    aten.pow.Scalar: power,
    aten.neg.default: negative,
    aten.abs.default: absolute,
    aten.sign.default: sign,
    aten.sgn.default: sign,
    aten.signbit.default: signbit,
    aten.relu.default: relu,
    aten.xlogy.Tensor: x_log_y,
    aten.xlogy.Scalar_Self: x_log_y,
    aten.xlogy.Scalar_Other: x_log_y,
    aten.copysign.Tensor: copysign,
    aten.copysign.Scalar: copysign,
    aten.fmax.default: without_nan("maximum"),
    aten.fmin.default: without_nan("minimum"),
    aten.round.decimals: round_decimals,
    prims.signbit.default: signbit,
    aten.bitwise_left_shift.Tensor: shift("shift_left"),
    aten.bitwise_left_shift.Tensor_Scalar: shift("shift_left"),
    aten.bitwise_left_shift.Scalar_Tensor: shift("shift_left"),
    aten.bitwise_right_shift.Tensor: shift("shift_right"),
    aten.bitwise_right_shift.Tensor_Scalar: shift("shift_right"),
    aten.bitwise_right_shift.Scalar_Tensor: shift("shift_right"),
    # prims, which decompositions of PyTorch's use
    prims.sqrt.default: _op("sqrt"),
    prims.isfinite.default: _of_floats("isfinite", True),
    prims.sign.default: sign,
    prims.mul.default: _op("mul"),
    prims.add.default: _op("add"),
    prims.sub.default: _op("sub"),
    prims.div.default: _op("div"),
    prims.ne.default: _op("ne", KIND.ALWAYS_BOOL),
}
