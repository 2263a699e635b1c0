"""The ops of the wire format: those of the language, strictly, and every function of `fusion_ir.building`, loosely.

A node whose attributes are exactly those of its row in `OPS` is made as it stands, if the op's rules accept it.
Otherwise, and for composites, the function of the same name is called: its tensors are the node's `args`, in order, the
rest are its `attrs`. An operand that may be a number can be given as one, among the attributes:

    {"name": "y", "op": "mul", "args": ["x"], "attrs": {"y": 0.5}}
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from fusion_ir import building as build
from fusion_ir.core.aliases import DTYPE_ALIASES, OP_ALIASES, attribute_hint, dtype_hint, op_hint
from fusion_ir.core.extent import shape_of
from fusion_ir.core.limits import check_sizes
from fusion_ir.core.node import Attr, Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.errors import FormatError, counted, excerpt
from fusion_ir.formats.json.faults import describe
from fusion_ir.formats.json.strict_json import excerpt_key
from fusion_ir.formats.signature import Parameter, parameters
from fusion_ir.ops import OPS, make
from fusion_ir.ops.row import AttrKind

# fmt: off
WIRE_OPS: dict[str, Callable[..., object]] = {
    # pointwise
    "abs": build.abs_, "acos": build.acos, "acosh": build.acosh, "add": build.add, "addcmul": build.addcmul,
    "asin": build.asin, "asinh": build.asinh, "atan": build.atan, "atan2": build.atan2, "atanh": build.atanh,
    "bitwise_and": build.bitwise_and, "bitwise_not": build.bitwise_not, "bitwise_or": build.bitwise_or,
    "bitwise_xor": build.bitwise_xor, "cast": build.cast, "ceil": build.ceil, "clamp": build.clamp, "cos": build.cos,
    "cosh": build.cosh, "div": build.div, "eq": build.eq, "erf": build.erf, "erfc": build.erfc, "exp": build.exp,
    "exp2": build.exp2, "expm1": build.expm1, "floor": build.floor, "floordiv": build.floordiv, "fmod": build.fmod,
    "frac": build.frac, "ge": build.ge, "gt": build.gt, "isfinite": build.isfinite, "isinf": build.isinf,
    "isnan": build.isnan, "isneginf": build.isneginf, "isposinf": build.isposinf, "le": build.le, "lerp": build.lerp,
    "log": build.log, "log10": build.log10, "log1p": build.log1p, "log2": build.log2,
    "logical_and": build.logical_and, "logical_not": build.logical_not, "logical_or": build.logical_or,
    "logical_xor": build.logical_xor, "lt": build.lt, "maximum": build.maximum, "minimum": build.minimum,
    "mul": build.mul, "ne": build.ne, "neg": build.neg, "pow": build.pow_, "reciprocal": build.reciprocal,
    "relu": build.relu, "remainder": build.remainder, "round": build.round_, "rsqrt": build.rsqrt,
    "shift_left": build.shift_left, "shift_right": build.shift_right,
    "shift_right_logical": build.shift_right_logical, "sigmoid": build.sigmoid, "sign": build.sign,
    "signbit": build.signbit, "sin": build.sin, "sinh": build.sinh, "sqrt": build.sqrt, "square": build.square,
    "sub": build.sub, "tan": build.tan, "tanh": build.tanh, "threshold": build.threshold, "truediv": build.truediv,
    "trunc": build.trunc, "where": build.where,
    # views and constants
    "broadcast_in_dim": build.broadcast_in_dim, "broadcast_to": build.broadcast_to, "cat": build.cat,
    "expand": build.expand, "flatten": build.flatten, "full": build.full, "iota": build.iota, "pad": build.pad,
    "permute": build.permute, "reshape": build.reshape, "slice": build.slice_, "squeeze": build.squeeze,
    "stack": build.stack, "transpose": build.transpose, "tril": build.tril, "triu": build.triu,
    "unsqueeze": build.unsqueeze,
    # reductions and scans
    "all": build.all_, "any": build.any_, "argmax": build.argmax, "argmin": build.argmin, "cumsum": build.cumsum,
    "logsumexp": build.logsumexp, "max": build.max_, "mean": build.mean, "min": build.min_, "prod": build.prod,
    "std": build.std, "sum": build.sum_, "var": build.var, "var_mean": build.var_mean,
    # gathers, scatters, products, random numbers
    "embedding": build.embedding, "gather": build.gather, "index_select": build.index_select,
    "scatter_sum": build.scatter_sum, "take_along_axis": build.take_along_axis, "addmm": build.addmm,
    "baddbmm": build.baddbmm, "linear": build.linear, "matmul": build.matmul, "dropout": build.dropout,
    "uniform": build.uniform,
    # composites
    "cross_entropy": build.cross_entropy, "gelu": build.gelu, "layer_norm": build.layer_norm,
    "log_softmax": build.log_softmax, "rms_norm": build.rms_norm, "silu": build.silu, "softmax": build.softmax,
}
# fmt: on

# Names in the wire format of parameters that `build` calls otherwise.
_ATTRIBUTE_NAMES = {"sizes": "shape", "out_dtype": "dtype"}
TENSOR_KINDS = ("tensor", "operand", "tensors")


def build_node(
    place: str,
    op: str,
    args: Sequence[Node],
    attrs: Mapping[str, object],
    operands: Callable[[], str] = lambda: "",
) -> tuple[Node, ...]:
    """The results of one node of the wire. Raises FormatError below `place`, the node's JSON pointer.

    `op` may be an alias. `operands` gives what a message says of them where the op's rules refuse them.
    """
    if op not in OPS and op not in WIRE_OPS:
        op = OP_ALIASES.get(op, op)
    row = OPS.get(op)
    function = WIRE_OPS.get(op)
    if row is None and function is None:
        raise FormatError(f"{place}/op", f"unknown op {excerpt(op)}{op_hint(op, {*OPS, *WIRE_OPS})}")
    if row is not None and attrs.keys() == row.attrs.keys():
        try:
            strict = {
                name: _strict(f"{place}/attrs/{name}", kind, attrs[name], args) for name, kind in row.attrs.items()
            }
            return (make(op, args, strict),)
        except FormatError:
            if function is None:
                raise
        except ValueError as error:
            if function is None:
                raise FormatError(place, f"{error}{operands()}") from None
    if function is None:
        expected = sorted(row.attrs if row else ())
        raise FormatError(f"{place}/attrs", f"{op} takes attributes {expected}, got {_keys(attrs)}")
    return _call(place, op, function, args, attrs, operands)


def attribute_name(parameter: Parameter) -> str:
    """The name of a parameter in the wire format."""
    return _ATTRIBUTE_NAMES.get(parameter.name, parameter.name)


def _call(
    place: str,
    op: str,
    function: Callable[..., object],
    args: Sequence[Node],
    attrs: Mapping[str, object],
    operands: Callable[[], str],
) -> tuple[Node, ...]:
    """`function` with tensors from `args` and the rest from `attrs`."""
    values: dict[str, object] = {}
    tensors = list(args)
    rest = {attribute_name(p): p for p in parameters(function)}
    for name, parameter in list(rest.items()):
        if parameter.kind == "tensors":
            values[parameter.name], tensors = tuple(tensors), []
            del rest[name]
        elif parameter.kind in TENSOR_KINDS and tensors:
            values[parameter.name] = tensors.pop(0)
            del rest[name]
    if tensors:
        most = counted(len(args) - len(tensors), "operand")
        raise FormatError(f"{place}/args", f"{op} takes at most {most}, got {len(args)}")
    for name, value in attrs.items():
        if name not in rest:
            known = [n for n, p in rest.items() if p.kind != "tensor"]
            reason = f"{op} has no attribute {excerpt(name)}, expected {known}{attribute_hint(name, known)}"
            raise FormatError(f"{place}/attrs/{excerpt_key(name)}", reason)
        parameter = rest.pop(name)
        values[parameter.name] = _loose(f"{place}/attrs/{name}", parameter, value)
    for name, parameter in rest.items():
        if parameter.required:
            what = "operand" if parameter.kind in TENSOR_KINDS else "attribute"
            got = counted(len(args), "operand")
            raise FormatError(place, f"{op}: {what} {name} is missing, got {got} and {_keys(attrs)}")
    try:
        result = function(**values)
    except (ValueError, OverflowError) as error:
        reason = str(error) if str(error).startswith(op) else f"{op}: {error}"
        raise FormatError(place, f"{reason}{operands()}") from None
    return cast("tuple[Node, ...]", result) if isinstance(result, tuple) else (cast(Node, result),)


def _keys(attrs: Mapping[str, object]) -> str:
    return f"attributes {[excerpt_key(k) for k in sorted(attrs)[:20]]}"


# Values


def _strict(place: str, kind: AttrKind, value: object, args: Sequence[Node]) -> Attr:
    """An attribute of a row of `OPS`; axes may count from the end."""
    match kind:
        case "int":
            return _int(place, value)
        case "ints":
            return _ints(place, value)
        case "axis":
            return _from_front(_int(place, value), args)
        case "axes":
            return tuple(sorted(_from_front(axis, args) for axis in _ints(place, value)))
        case "shape":
            extents = _ints(place, value)
            check_sizes(place, extents)
            return shape_of(extents)
        case "bool":
            return _bool(place, value)
        case "str":
            return _str(place, value, ())
        case "dtype":
            return _dtype(place, value)
        case "scalar":
            return _scalar(place, value, args[0].dtype if args else None)


def _loose(place: str, parameter: Parameter, value: object) -> object:
    """A parameter of a function of `fusion_ir.building`."""
    if value is None and parameter.nullable:
        return None
    match parameter.kind:
        case "int":
            return _int(place, value)
        case "ints" | "sizes":
            return _ints(place, value)
        case "axes":
            return _int(place, value) if isinstance(value, int) else _ints(place, value)
        case "number" | "float" | "operand":
            return _number(place, value)
        case "bool":
            return _bool(place, value)
        case "str":
            return _str(place, value, parameter.choices)
        case "dtype":
            return _dtype(place, value)
        case _:
            raise FormatError(place, f"{parameter.name} is a tensor: name it among args")


def _from_front(axis: int, args: Sequence[Node]) -> int:
    return axis + args[0].rank if axis < 0 and args else axis


def _int(place: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise FormatError(place, f"expected an integer, got {_shown(value)}")
    if not -(2**63) <= value < 2**63:
        raise FormatError(place, f"expected a 64-bit integer, got {_shown(value)}")
    return value


def _ints(place: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise FormatError(place, f"expected a list of integers, got {_shown(value)}")
    items = cast("list[object]", value)
    if len(items) > 64:
        raise FormatError(place, f"expected at most 64 integers, got {len(items)}")
    return tuple([_int(f"{place}/{i}", item) for i, item in enumerate(items)])


def _bool(place: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise FormatError(place, f"expected true or false, got {_shown(value)}")
    return value


def _str(place: str, value: object, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or (choices and value not in choices):
        expected = f"one of {list(choices)}" if choices else "a string"
        raise FormatError(place, f"expected {expected}, got {_shown(value)}")
    return value


def _dtype(place: str, value: object) -> DType:
    name = DTYPE_ALIASES.get(value, value) if isinstance(value, str) else ""
    if name not in DTYPES:
        hint = dtype_hint(name, DTYPES)
        raise FormatError(place, f"expected a dtype ({', '.join(DTYPES)}), got {_shown(value)}{hint}")
    return DTYPES[name]


def _shown(value: object) -> str:
    """A JSON value as a message may show it; strings in quotes alone."""
    return excerpt(value) if isinstance(value, str) else describe(value)


def _number(place: str, value: object) -> int | float | bool:
    """A number, a truth value, or a constant by its bits, whose value is taken."""
    if isinstance(value, str) and ":" in value:
        return _scalar(place, value, None).value
    if not isinstance(value, int | float):
        raise FormatError(place, f"expected a number, got {_shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise FormatError(
            place, f"expected a finite number, got {value} (write infinity by its bits, 'f32:0x7f800000')"
        )
    return value if isinstance(value, float | bool) else _int(place, value)


def _scalar(place: str, value: object, dtype: DType | None) -> Scalar:
    """A constant by its bits ("f32:0x3f800000"), or a number where the dtype is known."""
    try:
        if isinstance(value, str):
            return Scalar.parse(value)
        number = _number(place, value)
        if dtype is None:
            raise FormatError(place, f"expected a constant by its bits, such as 'f32:0x3f800000', got {_shown(value)}")
        return Scalar.of(number, dtype)
    except (ValueError, OverflowError) as error:
        raise error if isinstance(error, FormatError) else FormatError(place, str(error)) from None
