"""Limits on the size of a graph from outside. Readers check them before they build anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from fusion_ir.errors import FormatError


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """One limit per field, all inclusive."""

    body_bytes: int = 16 * 2**20  # the text of one graph
    nodes: int = 20_000  # nodes as written, and again after composite ops are taken apart
    inputs: int = 4_096
    outputs: int = 4_096
    operands: int = 4_096  # of one node
    made: int = 60_000  # nodes made while a graph is read: those that are dropped or made again count, too
    made_operands: int = 400_000  # of all these
    json_marks: int = 1_000_000  # commas of a JSON text: its values, about
    tokens: int = 1_000_000  # of a dump
    lines: int = 200_000  # of a text, blank ones included
    line_chars: int = 2_000_000  # of one line: names of as many operands as a node may have
    rank: int = 12
    elements: int = 2**40  # of one tensor; also the span of its strides
    name_chars: int = 256  # of a tensor's name, and of a constant's version
    python_marks: int = 150_000  # characters of a Python text that are in no word: some 5,000 nodes


LIMITS = GraphLimits()


def check_body(text: str | bytes) -> None:
    """Raises FormatError for a body over the limit (characters count as bytes here: readers decode afterwards)."""
    if len(text) > LIMITS.body_bytes:
        raise FormatError("", f"the body has {len(text):,} bytes, at most {LIMITS.body_bytes:,} are read")


def check_lines(text: str) -> None:
    """Raises FormatError for more lines, or a longer line, than the largest graph has."""
    if (count := text.count("\n")) >= LIMITS.lines:
        raise FormatError("", f"the text has {count + 1:,} lines, at most {LIMITS.lines:,} are read")
    begin = 0
    for number in range(1, count + 2):
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        if end - begin > LIMITS.line_chars:
            length = f"the line has {end - begin:,} characters"
            raise FormatError(f"{number}:1", f"{length}, at most {LIMITS.line_chars:,} are read")
        begin = end + 1


def check_sizes(place: str, sizes: Sequence[int]) -> None:
    """Raises FormatError for extents below 0, a rank above the limit, or more elements than the limit."""
    if len(sizes) > LIMITS.rank:
        raise FormatError(place, f"rank {len(sizes)} is above the limit of {LIMITS.rank}")
    for axis, size in enumerate(sizes):
        if size < 0:
            raise FormatError(place, f"axis {axis} has extent {size}, expected 0 or more")
    # Extents of 0 do not excuse the others: kernels multiply them in 64 bits.
    if (elements := prod(max(size, 1) for size in sizes)) > LIMITS.elements:
        raise FormatError(place, f"shape {list(sizes)} has {elements} elements, at most {LIMITS.elements} are allowed")


def check_name(place: str, name: str) -> None:
    """Raises FormatError for a name that is empty, too long, or holds a lone surrogate."""
    if not 0 < len(name) <= LIMITS.name_chars:
        raise FormatError(place, f"a name has 1 to {LIMITS.name_chars} characters, got {len(name)}")
    check_text(place, name)


def check_text(place: str, text: str) -> None:
    """Raises FormatError for a lone surrogate, which no encoding can write."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = f"\\u{ord(text[error.start]):04x}"
        raise FormatError(place, f"lone surrogate {surrogate} at character {error.start + 1}") from None


def check_count(place: str, what: str, count: int, limit: int) -> None:
    """Raises FormatError where `count` of `what` exceed `limit`."""
    if count > limit:
        raise FormatError(place, f"{count:,} {what}, at most {limit:,} are allowed")
