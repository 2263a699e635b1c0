"""Values of the names in an nvFuser definition, and the binding of a call's arguments to a function's parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusion_ir.core.aliases import attribute_hint, dtype_hint
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.errors import FormatError, counted, excerpt, nearest
from fusion_ir.formats.numbers import Number, number
from fusion_ir.formats.nvfuser.python_text import Argument, Member, Name, PythonCall
from fusion_ir.formats.signature import Kind, Parameter

NVFUSER_DTYPES: dict[str, str] = {
    "Double": "f64",
    "Float": "f32",
    "Half": "f16",
    "BFloat16": "bf16",
    "Float8_e4m3fn": "f8e4m3",
    "Float8_e5m2": "f8e5m2",
    "Char": "i8",
    "Short": "i16",
    "Int32": "i32",
    "Int": "i64",
    "Index": "i64",
    "Byte": "u8",
    "Bool": "bool",
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the text. `stride_order[i]` is the rank of axis i's stride, largest outermost; None: not chosen."""

    node: Node
    stride_order: tuple[int, ...] | None = None


# The value of a name or an argument; None is also `DataType.Null`.
Value = Tensor | DType | Number | bool | int | float | list["Value"] | None
Values = Mapping[str, Value]


def bind(call: PythonCall, expected: Sequence[Parameter]) -> list[tuple[Parameter, Argument]]:
    """Arguments with their parameters, positional ones first. Raises FormatError for unknown or missing ones."""
    what = f"fd.{call.path}"
    if len(call.args) > len(expected):
        raise FormatError(
            call.args[len(expected)].place, f"{what} takes {counted(len(expected), 'argument')}, got {len(call.args)}"
        )
    bound = list(zip(expected, call.args, strict=False))
    given = {parameter.name for parameter, _ in bound}
    by_name = {parameter.name: parameter for parameter in expected}
    for name, argument in call.keywords.items():
        if name not in by_name:
            wanted = f"expected {list(by_name)}{attribute_hint(name, by_name)}"
            raise FormatError(argument.place, f"{what} has no argument {excerpt(name)}, {wanted}")
        if name in given:
            raise FormatError(argument.place, f"{what}: argument {name} is given twice")
        bound.append((by_name[name], argument))
        given.add(name)
    for parameter in expected:
        if parameter.required and parameter.name not in given:
            raise FormatError(call.place, f"{what}: argument {parameter.name} is missing")
    return bound


def resolve(values: Values, argument: Argument) -> Value:
    """The value of the argument. Raises FormatError for a name that is not defined yet or an unknown DataType."""
    match argument.value:
        case Name(name=name):
            if name not in values:
                near = nearest(name, [n for n in values if not n.startswith("%")])
                raise FormatError(argument.place, f"{excerpt(name)} is not defined before this line{near}")
            return values[name]
        case Member(owner=owner, name=name):
            if owner != "DataType" or (name not in NVFUSER_DTYPES and name != "Null"):
                written, ours = f"{owner}.{name}", {f"DataType.{n}": dtype for n, dtype in NVFUSER_DTYPES.items()}
                expected = f"expected one of {', '.join((*ours, 'DataType.Null'))}{dtype_hint(written, ours, ours)}"
                raise FormatError(argument.place, f"unknown {excerpt(written)}, {expected}")
            return None if name == "Null" else DTYPES[NVFUSER_DTYPES[name]]
        case list(items):
            return [resolve(values, item) for item in items]
        case value:
            return value


def convert(values: Values, argument: Argument, parameter: Parameter) -> object:
    """The argument as its parameter's kind: nodes for tensors, tuples for lists. Raises FormatError."""
    value = resolve(values, argument)
    if value is None and parameter.nullable:
        return None
    result = _as_kind(value, parameter.kind)
    if result is None:
        expected = EXPECTED[parameter.kind] + (" or None" if parameter.nullable else "")
        raise FormatError(argument.place, f"argument {parameter.name}: expected {expected}, got {describe(value)}")
    return result


def integers(values: Values, argument: Argument, name: str) -> tuple[int, ...]:
    """The argument as integers. Raises FormatError."""
    value = resolve(values, argument)
    if not isinstance(value, list):
        raise FormatError(argument.place, f"argument {name}: expected a list of integers, got {describe(value)}")
    found = [_integer(item) for item in value]
    for item, known in zip(value, found, strict=True):
        if known is None:
            raise FormatError(argument.place, f"argument {name}: expected integers, got {describe(item)}")
    return tuple(item for item in found if item is not None)


def _integer(value: Value) -> int | None:
    """An integer of the text, or a scalar of an integer dtype; no truth values."""
    if isinstance(value, Number):
        return int(value.value) if value.dtype.is_integer else None
    return value if type(value) is int else None


def describe(value: Value) -> str:
    """The value as an error message shows it."""
    match value:
        case Tensor(node=node):
            return f"a tensor {node.dtype}{list(node.sizes)}"
        case Number():
            return f"{excerpt(value.value)}, a scalar of {value.dtype}"
        case list():
            return f"a list of {len(value)}"
        case _:
            return excerpt(value)


def _as_kind(value: Value, kind: Kind) -> object:
    """The value as a parameter's kind, None where it is of another kind. Truth values are no integers, but 0 and 1
    serve as truth values."""
    match kind, value:
        case ("tensor" | "given", Tensor(node=node)):
            return node
        case ("given" | "scalar number", Number()):
            return value
        case ("given" | "scalar number", bool() | int() | float()):
            return number(value)
        case ("float", bool() | int() | float()):
            return value
        case ("float", Number()):
            return value.value
        case ("tensors", list()) if all(isinstance(v, Tensor) for v in value):
            return tuple(v.node for v in value if isinstance(v, Tensor))
        case ("ints" | "axes" | "reduced", list()):
            found = [_integer(v) for v in value]
            return None if None in found else tuple(found)
        case ("bools", list()) if all(isinstance(v, bool) for v in value):
            return tuple(value)
        case ("int" | "axes" | "reduced", int() | Number()):
            return _integer(value)
        case ("bool", bool() | 0 | 1):
            return bool(value)
        case ("dtype" | "reduced", DType()):
            return value
        case _:
            return None


EXPECTED: dict[Kind, str] = {
    "tensor": "a tensor",
    "given": "a tensor or a number",
    "scalar number": "a number",
    "axes": "an integer or a list of integers",
    "reduced": "axes or a DataType",
    "tensors": "a list of tensors",
    "ints": "a list of integers",
    "bools": "a list of truth values",
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "dtype": "a DataType",
}
