"""JSON from a server: one object, without repeated members, NaN or infinities; and the text of each of its members."""

import json
import re
from typing import Any, NoReturn

from fuseplan_client.server.errors import BadAnswer, shown

_SPACE = re.compile(r"[ \t\n\r]*")
SHOWN_BYTES = 120


def object_in(body: bytes, media_type: str) -> dict[str, Any]:
    """The object in a body. media_type: that of the answer, for the message. Raises BadAnswer."""
    return {name: value for name, (value, _) in members(body, media_type).items()}


def members(body: bytes, media_type: str = "application/json") -> dict[str, tuple[Any, bytes]]:
    """Members of the object in a body: each value with the bytes that it stands in the body as. Raises BadAnswer."""
    try:
        text = body.decode("utf-8")
        return _members(text)
    except (ValueError, RecursionError) as e:  # UnicodeDecodeError, JSONDecodeError and integers of too many digits
        begin = shown(body[:SHOWN_BYTES].decode("utf-8", "replace"))
        kind = media_type.partition(";")[0].strip() or "no media type"
        raise BadAnswer(
            f"the answer is no JSON object ({kind[:60]}, begins {begin!r}): {shown(str(e))}; does another program "
            "answer at this address?"
        ) from e


def _members(text: str) -> dict[str, tuple[Any, bytes]]:
    """Raises ValueError, RecursionError."""
    found: dict[str, tuple[Any, bytes]] = {}
    at = _take(text, _skip(text, 0), "{")
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            name, at = _DECODER.raw_decode(text, at)
            if not isinstance(name, str):
                raise ValueError(f"expected the name of a member, got {name!r:.40}")
            if name in found:
                raise ValueError(f"member {name!r:.40} stands there twice")
            at = _take(text, _skip(text, at), ":")
            value, end = _DECODER.raw_decode(text, at)
            found[name] = value, text[at:end].encode()
            at = _skip(text, end)
            if text[at : at + 1] == "}":
                at += 1
                break
            at = _take(text, at, ",")
    if _skip(text, at) != len(text):
        raise ValueError("something stands behind the object")
    return found


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _take(text: str, at: int, expected: str) -> int:
    """The place behind a sign and the space that follows it."""
    if text[at : at + 1] != expected:
        raise ValueError(f"expected {expected!r} at character {at}, got {text[at : at + 1]!r}")
    return _skip(text, at + 1)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member stands twice in an object")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
