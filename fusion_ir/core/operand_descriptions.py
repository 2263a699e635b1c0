"""Descriptions of an op's operands in messages, as their sender knows them: name, type, and where they come from."""

from collections.abc import Iterable

from fusion_ir.core.node import Node

_SHOWN = 4
_NAME_CHARS = 40


def describe_operands(operands: Iterable[tuple[str, Node, str]]) -> str:
    """ " (x is f32[3], line 2; w is f32[4], line 5)" of names, nodes and places, each once; "" where there is none.

    A place is "line:column" or a JSON pointer, or empty where it is not known.
    """
    shown = list(
        dict.fromkeys(f"{_name(name)} is {describe_type(node)}{_where(place)}" for name, node, place in operands)
    )
    more = [f"and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return f" ({'; '.join([*shown[:_SHOWN], *more])})" if shown else ""


def describe_type(node: Node) -> str:
    """`f32[4, 8]`."""
    return f"{node.dtype}{list(node.sizes)}"


def _where(place: str) -> str:
    if not place:
        return ""
    return f", line {place.partition(':')[0]}" if place[0].isdigit() else f", {place}"


def _name(name: str) -> str:
    """The name on one line, cut after `_NAME_CHARS` characters."""
    shown = repr(name)[1:-1] if not name.isprintable() else name
    return shown if len(shown) <= _NAME_CHARS else f"{shown[:_NAME_CHARS]}..."
