"""The one error of everything that reads a graph from outside, and how its messages show what was found."""

from collections.abc import Collection
from difflib import get_close_matches


class FormatError(ValueError):
    """{place}: {reason}

    `place` is a JSON pointer ("/nodes/3/args/0"), "line:column" counted from 1, or the name of what was given beside
    the text ("sizes"); empty where the whole is meant. `reason` says what was expected and what was found.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.place = place
        self.reason = reason


def excerpt(value: object, limit: int = 60) -> str:
    """`value` as an error message may show it: its `repr`, cut to `limit` characters; only the kind of containers."""
    if isinstance(value, list | tuple | dict):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str | bytes):
        value = value[: limit + 1]
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


def counted(number: int, noun: str) -> str:
    """ "1 operand", "3 operands"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def nearest(name: str, known: Collection[str]) -> str:
    """A hint such as "; did you mean 'add'?", or "" where nothing is near. Long names and lists are not searched."""
    if len(name) > 40 or len(known) > 500:
        return ""
    near = get_close_matches(name, known, 1)
    return f"; did you mean {excerpt(near[0])}?" if near else ""


def line_and_column(text: str, offset: int) -> str:
    """ "line:column", both from 1, of the character at `offset`."""
    before = text[:offset]
    return f"{before.count(chr(10)) + 1}:{offset - (before.rfind(chr(10)) + 1) + 1}"
