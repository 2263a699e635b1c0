"""Readers of graphs, in one table. Each is a pure function from text to `NamedGraph` and raises only FormatError."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.json_text import decode
from fusion_ir.formats.json_wire import read_json
from fusion_ir.formats.nvfuser import read_nvfuser
from fusion_ir.limits import check_body
from fusion_ir.named import NamedGraph
from fusion_ir.text import HEADER, parse_graph

__all__ = ["READERS", "Reader", "Sizes", "read"]

Sizes = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Reader:
    """One format. `sniff` looks at the text without its leading space; `read` gets sizes of inputs by name, or None."""

    name: str
    doc: str
    suffixes: tuple[str, ...]
    sniff: Callable[[str], bool]
    read: Callable[[str, Sizes | None], NamedGraph]


def _without_sizes(read_: Callable[[str], NamedGraph]) -> Callable[[str, Sizes | None], NamedGraph]:
    def reader(text: str, sizes: Sizes | None) -> NamedGraph:
        if sizes:
            raise FormatError("sizes", "this format states all sizes itself")
        return read_(text)

    return reader


# nvFuser prints "def nvfuser_fusion_id0(fd : FusionDefinition) -> None :", people paste imports and comments before it.
_DEFINITION = re.compile(r"^\s*def\s+\w+\s*\(", re.MULTILINE)

READERS: tuple[Reader, ...] = (
    Reader(
        "text",
        "Fuseplan's own text, which `fuseplan convert` prints",
        (".fuseplan",),
        lambda text: text.startswith(HEADER.split()[0]),
        _without_sizes(parse_graph),
    ),
    Reader(
        "json",
        "Fuseplan's wire format, which clients send",
        (".json",),
        lambda text: text.startswith(("{", "[")),
        _without_sizes(read_json),
    ),
    Reader(
        "nvfuser",
        "nvFuser's Python definition, older and newer spelling",
        (".nvfuser.py", ".py"),
        lambda text: _DEFINITION.search(text[:65536]) is not None,
        lambda text, sizes: read_nvfuser(text, sizes),
    ),
)


def read(
    text: str | bytes, format: str | None = None, filename: str | None = None, sizes: Sizes | None = None
) -> NamedGraph:
    """The graph in `text`.

    The format is the one named, else what the text looks like, else what the suffix of `filename` says. `sizes` gives
    the extents of inputs that the text leaves symbolic. Raises FormatError, also for an unknown or unrecognised format.
    """
    check_body(text)
    decoded = decode(text) if isinstance(text, bytes) else text
    return _reader(decoded, format, filename).read(decoded, sizes)


def _reader(text: str, format: str | None, filename: str | None) -> Reader:
    if format is not None:
        for reader in READERS:
            if reader.name == format:
                return reader
        raise FormatError("format", f"unknown format {excerpt(format)}, expected one of {[r.name for r in READERS]}")
    start = text.lstrip()
    for reader in READERS:
        if reader.sniff(start):
            return reader
    for reader in READERS:
        if filename is not None and filename.endswith(reader.suffixes):
            return reader
    known = "; ".join(f"{r.name}: {r.doc}" for r in READERS)
    raise FormatError("1:1", f"the format is not recognised from {excerpt(start, 30)}, expected one of these: {known}")
