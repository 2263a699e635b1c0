"""JSON from outside, strictly: UTF-8, no key twice, no node beyond the limit is ever held in memory."""

import json
from typing import cast

from fusion_ir.core.limits import LIMITS, check_body, check_count
from fusion_ir.errors import FormatError, excerpt, line_and_column


class _Repeating(dict[str, object]):
    """An object with a key twice, kept to be found again."""

    key: str = ""


def decode(body: bytes) -> str:
    """The text of `body`. Raises FormatError for what is no UTF-8, with line and column."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        before = body[: error.start].decode(errors="replace")
        reason = f"byte 0x{body[error.start]:02x} is not UTF-8"
        raise FormatError(line_and_column(before, len(before)), reason) from None


def load_json(text: str) -> object:
    """The value. Raises FormatError for syntax errors, repeated keys, and more objects with an "op" than nodes allowed.

    Numbers and strings are left to the models; NaN and Infinity, which Python reads, are refused there by value.
    """
    check_body(text)
    check_count("", "commas", text.count(","), LIMITS.json_marks)
    nodes = objects = repeating = 0

    def pairs_hook(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal nodes, objects, repeating
        result = dict(pairs)
        repeating += len(result) != len(pairs)
        objects += 1
        if "op" in result:
            nodes += 1
            if nodes > LIMITS.nodes:
                raise FormatError("/nodes", f"more than {LIMITS.nodes:,} nodes")
        if objects > 2 * LIMITS.nodes + LIMITS.inputs + LIMITS.outputs + 1:
            raise FormatError("", "more JSON objects than the largest graph has")
        return result

    try:
        value = cast(object, json.loads(text, object_pairs_hook=pairs_hook))
    except json.JSONDecodeError as error:
        end = " (the text ends here)" if error.pos >= len(text.rstrip()) else ""
        raise FormatError(f"{error.lineno}:{error.colno}", f"not JSON: {error.msg}{end}") from None
    except RecursionError:
        raise FormatError("1:1", "not read: brackets are nested too deeply") from None
    except FormatError:
        raise
    except ValueError:  # Python's own limit on the digits of an integer
        raise FormatError("1:1", "not read: an integer has thousands of digits") from None
    if repeating:
        raise _repeated_key(text)
    return value


def pointer(path: "tuple[str | int, ...]") -> str:
    """JSON pointer (RFC 6901) of a path of keys and indices, cut where a key is very long."""
    return "".join("/" + excerpt_key(str(key)).replace("~", "~0").replace("/", "~1") for key in path)


def excerpt_key(key: str) -> str:
    """A key as a message may show it, on one line."""
    printable = repr(key)[1:-1] if not key.isprintable() else key
    return printable if len(printable) <= 80 else printable[:80] + "..."


def _repeated_key(text: str) -> FormatError:
    """Reads once more, marking objects with repeated keys, and finds the first of them."""

    def mark(pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        marked = _Repeating(result)
        seen: set[str] = set()
        marked.key = next(key for key, _ in pairs if key in seen or seen.add(key))
        return marked

    stack: list[tuple[tuple[str | int, ...], object]] = [((), json.loads(text, object_pairs_hook=mark))]
    while stack:
        path, value = stack.pop()
        if isinstance(value, _Repeating):
            return FormatError(pointer(path), f"key {excerpt(value.key)} is given twice")
        if isinstance(value, dict):
            children = list(cast(dict[str, object], value).items())
            stack.extend(((*path, key), child) for key, child in reversed(children))
        elif isinstance(value, list):
            items = list(enumerate(cast(list[object], value)))
            stack.extend(((*path, i), child) for i, child in reversed(items))
    return FormatError("", "a key is given twice")
