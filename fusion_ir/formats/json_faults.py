"""What pydantic finds wrong with a JSON value, in our words: where, what was expected, what was found."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from fusion_ir.aliases import dtype_hint
from fusion_ir.dtype import DTYPES
from fusion_ir.errors import FormatError, excerpt, nearest
from fusion_ir.formats.json_text import pointer
from fusion_ir.formats.members import known_members

Path = tuple[str | int, ...]

# By pydantic's types of faults; the rest are those with a limit in them (`_expected`).
_EXPECTED: Mapping[str, str] = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_parsing_size": "a 64-bit integer",
    "int_type": "an integer",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "a string",
    "string_unicode": "a string without lone surrogates",
}


def first_error(error: ValidationError, model: type[BaseModel], value: object) -> FormatError:
    """The first complaint of pydantic about `value`, which is no `model`.

    Where a value may be of several kinds, and is of none, all of these are said.
    """
    faults = cast("list[dict[str, Any]]", error.errors(include_url=False))
    first = faults[0]
    path = _path(first, value)
    match first["type"]:
        case "missing":
            reason = "is missing"
        case "extra_forbidden":
            known = known_members(model, first["loc"])
            reason = f"unknown field, expected one of {', '.join(known)}{nearest(str(path[-1]), known)}"
        case _:
            kinds = [_expected(fault) for fault in faults if _path(fault, value) == path]
            reason = f"expected {' or '.join(dict.fromkeys(kinds))}, got {_found(first)}"
            if path and path[-1] in ("dtype", "out_dtype") and isinstance(first["input"], str):
                reason += dtype_hint(first["input"], DTYPES)
    return FormatError(pointer(path), reason)


def describe(value: object) -> str:
    """A JSON value as a message may show it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {excerpt(value)}"
        case _:
            return excerpt(value)


def _expected(fault: Mapping[str, Any]) -> str:
    kind, limits = str(fault["type"]), cast("Mapping[str, Any]", fault.get("ctx", {}))
    match kind:
        case "literal_error" | "enum":
            return str(limits["expected"])
        case "too_long":
            return f"at most {limits['max_length']} {'members' if isinstance(fault['input'], dict) else 'items'}"
        case "too_short":
            return f"at least {limits['min_length']} {'members' if isinstance(fault['input'], dict) else 'items'}"
        case "string_too_long":
            return f"a name of at most {limits['max_length']} characters"
        case "string_too_short":
            return f"a name of at least {limits['min_length']} character"
        case "greater_than_equal":
            return f"{limits['ge']} or more"
        case "greater_than":
            return f"more than {limits['gt']}"
        case "less_than_equal":
            return f"at most {limits['le']}"
        case "less_than":
            return f"less than {limits['lt']}"
        case _:
            return _EXPECTED.get(kind, "another value")


def _found(fault: Mapping[str, Any]) -> str:
    found = fault["input"]
    if fault["type"] in ("too_long", "too_short"):
        return str(len(found))
    return f"{len(found)}" if fault["type"] == "string_too_long" else describe(found)


def _path(fault: Mapping[str, Any], value: object) -> Path:
    """The keys and indices down to the fault: pydantic's location, less what it adds for the kinds of a union and for
    keys of an object, which are in no JSON."""
    location = cast("Sequence[str | int]", fault["loc"])
    path: Path = ()
    for part in location:
        if isinstance(value, dict) and part in value:
            value = cast("dict[object, object]", value)[part]
        elif isinstance(value, list) and isinstance(part, int) and part < len(cast("list[object]", value)):
            value = cast("list[object]", value)[part]
        elif fault["type"] == "missing" and isinstance(value, dict):
            return (*path, part)
        else:
            break
        path = (*path, part)
    return path
