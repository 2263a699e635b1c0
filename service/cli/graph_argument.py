"""GRAPH arguments: a file, or - for standard input, in any format that `fusion_ir.formats` reads."""

import sys
from pathlib import Path

from fusion_ir.core.limits import LIMITS
from fusion_ir.core.named import NamedGraph
from fusion_ir.errors import FormatError
from fusion_ir.formats import read
from fusion_ir.formats.side_file import NOTHING, SHAPES, SideFile
from service.cli.errors import bad_input, in_file
from service.cli.near_files import near_files
from service.cli.plan_key import PREFIX
from service.cli.terminal import say


def read_graph(argument: str, format_: str | None = None, shapes: str | None = None) -> NamedGraph:
    """The graph in the file, read as `format_` or as what it looks like; `shapes` is the side file's name.

    What the reader took for granted is said on stderr. Raises CommandError naming file and place.
    """
    name = "standard input" if argument == "-" else argument
    if PREFIX.match(argument) and not Path(argument).exists():
        raise bad_input(
            f"{argument}: no file of that name; a plan's key goes with explain, run, source, trials and plans show, "
            "not here"
        )
    body = read_bytes(argument, LIMITS.body_bytes)
    if len(body) > LIMITS.body_bytes:
        raise bad_input(f"{name}: has more than {LIMITS.body_bytes:,} bytes, the limit for one graph")
    beside = NOTHING if shapes is None else _side_file(shapes)
    try:
        named = read(body, format_, None if argument == "-" else argument, beside)
    except FormatError as error:
        if shapes is not None and error.place.startswith(f"{SHAPES}/"):
            raise in_file(shapes, FormatError(error.place.removeprefix(SHAPES), error.reason)) from error
        raise in_file(name, error) from error
    for assumption in named.notes:
        say(f"note: {assumption}")
    return named


def _side_file(argument: str) -> SideFile:
    from fusion_ir.formats.side_json import read_side_file  # noqa: PLC0415  most graphs come without one

    try:
        return read_side_file(read_bytes(argument, LIMITS.body_bytes))
    except FormatError as error:
        raise in_file(argument, error) from error


def read_bytes(argument: str, limit: int) -> bytes:
    """The file's bytes, at most one more than `limit`, so that a file over it can be told from one at it."""
    try:
        if argument == "-":
            return sys.stdin.buffer.read(limit + 1)
        with Path(argument).open("rb") as file:
            return file.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        near = near_files(argument) if isinstance(error, FileNotFoundError) else ""
        raise bad_input(f"{argument}: {reason}{near}") from error
