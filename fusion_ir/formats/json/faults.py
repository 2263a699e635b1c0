"""Messages for the faults that pydantic finds in a JSON value: where, what was expected, what was found."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from fusion_ir.core.aliases import dtype_hint
from fusion_ir.dtype import DTYPES
from fusion_ir.errors import FormatError, counted, excerpt, nearest
from fusion_ir.formats.json.members import known_members
from fusion_ir.formats.json.strict_json import pointer

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
NO_SYMBOLS = "; JSON has no symbolic sizes: write each size out, in a graph for each of several shapes"


def first_error(error: ValidationError, model: type[BaseModel], value: object) -> FormatError:
    """The first complaint of pydantic about `value`, which is no `model`.

    Where a value may be of several kinds, and is of none, the message names all of them.
    """
    faults = cast("list[dict[str, Any]]", error.errors(include_url=False))
    first = faults[0]
    path = _path(first, value)
    match first["type"]:
        case "missing":
            reason = "is missing" + _instead(path, faults, value)
        case "extra_forbidden":
            known = known_members(model, first["loc"])
            reason = f"unknown field, expected one of {', '.join(known)}{nearest(str(path[-1]), known)}"
        case _:
            kinds = [_expected(fault) for fault in faults if _path(fault, value) == path]
            reason = f"expected {' or '.join(dict.fromkeys(kinds))}, got {_found(first)}"
            if path and path[-1] in ("dtype", "out_dtype") and isinstance(first["input"], str):
                reason += dtype_hint(first["input"], DTYPES)
            if "shape" in path[-2:] and not _is_size(first["input"]):
                reason += NO_SYMBOLS
    return FormatError(pointer(path), reason)


def _instead(path: Path, faults: Sequence[Mapping[str, Any]], value: object) -> str:
    """The unknown member beside a missing one that may have been meant for it, or ""."""
    beside = [_path(fault, value) for fault in faults if fault["type"] == "extra_forbidden"]
    unknown = [str(other[-1]) for other in beside if other[:-1] == path[:-1]]
    if not unknown:
        return ""
    near = get_close_matches(str(path[-1]), unknown, 1)
    meant = f", which may be meant for it: write {path[-1]}" if near else ""
    return f", and there is an unknown field {excerpt(near[0] if near else unknown[0])}{meant}"


def _is_size(value: object) -> bool:
    """Whether a value in a shape cannot be meant as a symbolic size: a bool, a float, a list, an object, or an integer
    of 0 or more."""
    return isinstance(value, bool | float | list | dict) or (isinstance(value, int) and value >= 0)


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
            return f"at most {counted(limits['max_length'], 'member' if isinstance(fault['input'], dict) else 'item')}"
        case "too_short":
            return f"at least {counted(limits['min_length'], 'member' if isinstance(fault['input'], dict) else 'item')}"
        case "string_too_long":
            return f"a name of at most {counted(limits['max_length'], 'character')}"
        case "string_too_short":
            return f"a name of at least {counted(limits['min_length'], 'character')}"
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
