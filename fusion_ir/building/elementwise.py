"""Pointwise functions over loose operands: one line each, made from the op's row."""

from collections.abc import Callable

from fusion_ir.building.operands import (
    Number,
    Operand,
    aligned,
    as_float,
    broadcast_shapes,
    broadcast_to,
    cast,
    common_dtype,
    full,
    loses,
    wide,
)
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType, bool_
from fusion_ir.ops import OPS, RuleError, make

Unary = Callable[[Operand], Node]
Binary = Callable[[Operand, Operand], Node]
Adjust = Callable[[str, DType], DType]


# What an op wants of the common dtype of its operands


def _as_is(op: str, dtype: DType) -> DType:
    return dtype


def _number(op: str, dtype: DType) -> DType:
    if dtype == bool_:
        raise RuleError(f"{op} is not defined on bool")
    return dtype


def _float(op: str, dtype: DType) -> DType:
    return as_float(dtype)


def _bool(op: str, dtype: DType) -> DType:
    return bool_


def _ordered(op: str, dtype: DType) -> DType:
    return DTYPES["u8"] if dtype == bool_ else dtype


def _unary(op: str, adjust: Adjust = _as_is) -> Unary:
    def build(x: Operand) -> Node:
        return make(op, aligned([x], adjust(op, common_dtype([x]))))

    build.__name__, build.__doc__ = op, OPS[op].doc
    return build


def _binary(op: str, adjust: Adjust = _as_is, on_bool: str = "") -> Binary:
    def build(x: Operand, y: Operand) -> Node:
        dtype = common_dtype([x, y])
        if on_bool and dtype == bool_:
            return make(on_bool, aligned([x, y], bool_))
        return make(op, aligned([x, y], adjust(op, dtype)))

    build.__name__, build.__doc__ = op, OPS[op].doc
    return build


def _unrounded(op: str, adjust: Adjust = _as_is, on_bool: str = "") -> Binary:
    """A binary function in which numbers, and tensors without axes, are not rounded to a dtype of 16 or 8 bits first.

    mul(x, 0.0123) in bf16 is x times 0.0123 in f32, rounded once, as torch has it.
    """
    usual = _binary(op, adjust, on_bool)

    def build(x: Operand, y: Operand) -> Node:
        dtype = adjust(op, common_dtype([x, y]))
        if dtype.is_float and wide(dtype) != dtype and any(loses(v, dtype) for v in (x, y)):
            return cast(make(op, aligned([x, y], wide(dtype))), dtype)
        return usual(x, y)

    build.__name__, build.__doc__ = op, OPS[op].doc
    return build


def _of_floats(op: str, otherwise: bool) -> Unary:
    """A test of floats that is `otherwise` for every integer and bool."""

    def build(x: Operand) -> Node:
        (node,) = aligned([x])
        return make(op, [node]) if node.dtype.is_float else full(node.shape, otherwise, bool_)

    build.__name__, build.__doc__ = op, OPS[op].doc
    return build


def _rounding(op: str) -> Unary:
    """Rounding to integers, which leaves integers as they are."""

    def build(x: Operand) -> Node:
        (node,) = aligned([x])
        return make(op, [node]) if node.dtype.is_float else node

    build.__name__, build.__doc__ = op, OPS[op].doc
    return build


neg = _unary("neg", _number)
abs_ = _unary("abs", _number)
sign = _unary("sign", _number)
relu = _unary("relu", _number)
square = _unary("square", _number)
floor = _rounding("floor")
ceil = _rounding("ceil")
trunc = _rounding("trunc")
round_ = _rounding("round")
isfinite = _of_floats("isfinite", True)
isinf = _of_floats("isinf", False)
isnan = _of_floats("isnan", False)
isneginf = _of_floats("isneginf", False)
isposinf = _of_floats("isposinf", False)
signbit = _unary("signbit", _float)
sqrt = _unary("sqrt", _float)
reciprocal = _unary("reciprocal", _float)
exp = _unary("exp", _float)
exp2 = _unary("exp2", _float)
expm1 = _unary("expm1", _float)
log = _unary("log", _float)
log2 = _unary("log2", _float)
log10 = _unary("log10", _float)
log1p = _unary("log1p", _float)
rsqrt = _unary("rsqrt", _float)
sin = _unary("sin", _float)
cos = _unary("cos", _float)
tan = _unary("tan", _float)
asin = _unary("asin", _float)
acos = _unary("acos", _float)
atan = _unary("atan", _float)
sinh = _unary("sinh", _float)
cosh = _unary("cosh", _float)
tanh = _unary("tanh", _float)
asinh = _unary("asinh", _float)
acosh = _unary("acosh", _float)
atanh = _unary("atanh", _float)
erf = _unary("erf", _float)
erfc = _unary("erfc", _float)
sigmoid = _unary("sigmoid", _float)
logical_not = _unary("logical_not", _bool)
bitwise_not = _unary("bitwise_not")

add = _binary("add", on_bool="logical_or")
sub = _binary("sub", _number)
mul = _unrounded("mul", on_bool="logical_and")
div = _unrounded("div", _number)  # integers truncate; truediv does not
truediv = _unrounded("div", _float)
floordiv = _unrounded("floordiv", _number)
fmod = _binary("fmod", _number)
remainder = _binary("remainder", _number)
maximum = _binary("maximum", on_bool="logical_or")
minimum = _binary("minimum", on_bool="logical_and")
atan2 = _binary("atan2", _float)
eq = _binary("eq")
ne = _binary("ne")
lt = _binary("lt", _ordered)
le = _binary("le", _ordered)
gt = _binary("gt", _ordered)
ge = _binary("ge", _ordered)
logical_and = _binary("logical_and", _bool)
logical_or = _binary("logical_or", _bool)
logical_xor = _binary("logical_xor", _bool)
bitwise_and = _binary("bitwise_and")
bitwise_or = _binary("bitwise_or")
bitwise_xor = _binary("bitwise_xor")
shift_left = _binary("shift_left")
shift_right = _binary("shift_right")
shift_right_logical = _binary("shift_right_logical")


def where(condition: Operand, x: Operand, y: Operand) -> Node:
    """x where the condition holds, else y; x and y are promoted to one dtype."""
    dtype = common_dtype([x, y])
    (test,) = aligned([condition], bool_)
    branches = [aligned([v], dtype)[0] for v in (x, y)]
    shape = broadcast_shapes([test.shape, *(b.shape for b in branches)])
    return make("where", [broadcast_to(v, shape) for v in (test, *branches)])


def clamp(x: Operand, low: Operand | None = None, high: Operand | None = None) -> Node:
    """minimum(maximum(x, low), high); a bound that is None does not count. The bounds take part in promotion."""
    if low is not None and high is not None:
        given = [x, low, high]
        return make("clamp", aligned(given, _number("clamp", common_dtype(given))))
    if low is not None:
        return maximum(x, low)
    return minimum(x, high) if high is not None else aligned([x])[0]


def lerp(a: Operand, b: Operand, weight: Operand) -> Node:
    """a + weight (b - a), computed from the nearer end."""
    given = [a, b, weight]
    dtype = as_float(common_dtype(given))
    inner = wide(dtype) if loses(weight, dtype) else dtype
    return cast(make("lerp", aligned(given, inner)), dtype)


def pow_(x: Operand, exponent: Operand) -> Node:
    """x to the power of `exponent`. The numbers +-1/2, +-1, +-2, 3 and 1 are spelled by the exact ops, as torch does.

    Powers of integers are integers, and wrap; of numbers as exponents they take those from 0 to 64. Raises RuleError.
    """
    if not isinstance(exponent, Node) and isinstance(x, Node):
        dtype = common_dtype([x, exponent])
        if dtype == bool_:
            return x if exponent else full(x.shape, True)
        x = cast(x, dtype)
        if dtype.is_integer:
            return _integer_power(x, int(exponent))
        exact = _exact_power(x, exponent)
        if exact is not None:
            return exact
    given = [x, exponent]
    dtype = common_dtype(given)
    if dtype.is_integer and isinstance(exponent, Node):
        return _power_by_bits(*aligned(given, dtype))
    return make("pow", aligned(given, as_float(dtype)))


def _exact_power(x: Node, exponent: Number) -> Node | None:
    match exponent:
        case 0.5:
            return sqrt(x)
        case -0.5:
            return rsqrt(x)
        case 1:
            return x
        case -1:
            return reciprocal(x)
        case 2:
            return square(x)
        case 3:
            return mul(square(x), x)
        case -2:
            return reciprocal(square(x))
        case _:
            return None


def _integer_power(x: Node, exponent: int) -> Node:
    if not 0 <= exponent <= 64:
        raise RuleError(f"pow: integers take exponents from 0 to 64, got {exponent}")
    result = full(x.shape, 1, x.dtype)
    for digit in f"{exponent:b}":
        result = square(result)
        result = mul(result, x) if digit == "1" else result
    return result


def _power_by_bits(x: Node, exponent: Node) -> Node:
    """The product of x^(2^k) over the bits of the exponent, and for one below 0 the power truncated to an integer."""
    known = exponent.attr("value", Scalar).value if exponent.op == "full" else -1
    if 0 <= known <= 64:
        return _integer_power(x, int(known))
    one = full(x.shape, 1, x.dtype)
    result, power = one, x
    for bit in range(x.dtype.digits):
        taken = ne(bitwise_and(exponent, 1 << bit), 0)
        result = where(taken, mul(result, power), result)
        power = square(power)
    if x.dtype.kind == "uint":
        return result
    # 1 / x is an integer for 1 and -1 alone; 1 / 0 counts as 0.
    sign = where(ne(bitwise_and(exponent, 1), 0), x, one)
    return where(lt(exponent, 0), where(eq(abs_(x), 1), sign, 0), result)


def frac(x: Operand) -> Node:
    """x - trunc(x)."""
    return sub(x, trunc(x))


def threshold(x: Operand, bound: Number, value: Number) -> Node:
    """`value` where x <= bound, else x; NaN stays."""
    dtype = common_dtype([x, bound])
    inner = wide(dtype) if dtype.is_float and loses(bound, dtype) else dtype
    compared = cast(x, inner) if isinstance(x, Node) else x
    return where(le(compared, bound), value, x)
