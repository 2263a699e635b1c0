"""Readers of graphs, in one table. Each is a pure function from text to `NamedGraph` and raises only FormatError.

A reader of a format that others print is imported when the first such text is read: most read one format only.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from fusion_ir.core.limits import check_body
from fusion_ir.core.named import NamedGraph
from fusion_ir.core.node_quota import limited
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.json.strict_json import decode, excerpt_key
from fusion_ir.formats.json.wire import read_json
from fusion_ir.formats.migraphx.lines import is_dump
from fusion_ir.formats.side_file import NOTHING, SideFile
from fusion_ir.text.printing import HEADER, parse_graph

__all__ = ["READERS", "Reader", "SideFile", "load_readers", "looks_like", "read"]


@dataclass(frozen=True, slots=True)
class Reader:
    """One format. `sniff` looks at the text without its leading space.

    `beside` names the members of a side file that the format takes; `read` gets no others.
    """

    name: str
    doc: str
    suffixes: tuple[str, ...]
    sniff: Callable[[str], bool]
    read: Callable[[str, SideFile], NamedGraph]
    beside: tuple[str, ...] = ()


_LATER = ("kernel_math", "nvfuser", "migraphx")  # modules, each with a function `read_<module>`


def _imported(module: str) -> Callable[..., NamedGraph]:
    return getattr(import_module(f"{__name__}.{module}.reader"), f"read_{module}")


def load_readers() -> None:
    """Imports all readers: for a process that reads many graphs, or forks others that do."""
    for module in _LATER:
        _imported(module)


# nvFuser prints "def nvfuser_fusion_id0(fd : FusionDefinition) -> None :", people paste it with the module around it,
# or write "with FusionDefinition() as fd:".
_DEFINITION = re.compile(r"^[ \t]*(def[ \t]+\w+[ \t]*\(|with[ \t][^\n]*\bFusionDefinition\()", re.MULTILINE)

# A dump may stand in a log, which begins as it likes: so this is looked for before brackets and definitions.
_KERNEL_MATH = re.compile(r"^[ \t]*%kernel(_math)?[ \t]*\{|^Inputs:[ \t]*\r?\n[ \t]+T\d+_", re.MULTILINE)

READERS: tuple[Reader, ...] = (
    Reader(
        "text",
        "Fuseplan's own text, which `fuseplan convert` prints",
        (".fuseplan",),
        lambda text: text.startswith(HEADER.split()[0]),
        lambda text, _: parse_graph(text),
    ),
    Reader(
        "kernel_math",
        "nvFuser's %kernel_math dump, as people paste it into issues",
        (".kernel_math.txt", ".kernel_math"),
        lambda text: _KERNEL_MATH.search(text[:65536]) is not None,
        lambda text, beside: _imported("kernel_math")(text, beside),
        beside=("extents", "values", "inputs", "outputs"),
    ),
    Reader(
        "json",
        "Fuseplan's wire format, which clients send",
        (".json",),
        lambda text: text.startswith(("{", "[")),
        lambda text, _: read_json(text),
    ),
    Reader(
        "nvfuser",
        "nvFuser's Python definition, older and newer spelling",
        (".nvfuser.py", ".py"),
        lambda text: _DEFINITION.search(text[:65536]) is not None,
        lambda text, beside: _imported("nvfuser")(text, beside.shapes, beside.strides, beside.values),
        beside=("inputs", "values"),
    ),
    Reader(
        "migraphx",
        "MIGraphX's program dump, whole or an excerpt",
        (".migraphx.txt", ".migraphx"),
        is_dump,
        lambda text, beside: _imported("migraphx")(text, beside),
        beside=("inputs", "outputs"),
    ),
)


def read(
    text: str | bytes, format: str | None = None, filename: str | None = None, beside: SideFile = NOTHING
) -> NamedGraph:
    """The graph in `text`.

    The format is the one named, else what the text looks like, else what the suffix of `filename` says. `beside` says
    what the text leaves open. Raises FormatError, also for an unknown or unrecognised format, and with the place
    "shapes/..." for what is wrong in `beside`.
    """
    check_body(text)
    decoded = decode(text) if isinstance(text, bytes) else text
    reader = _reader(decoded, format, filename)
    for member in beside.members:
        if member not in reader.beside:
            takes = f"only {', '.join(reader.beside)}" if reader.beside else "nothing, as it states all sizes itself"
            raise FormatError(f"shapes/{member}", f"format {reader.name} takes {takes} beside it")
    with limited():
        named = reader.read(decoded, beside)
    known = {n: spec.dtype for n, spec in zip(named.input_names, named.graph.inputs, strict=True)}
    for name, dtype in beside.dtypes.items():
        if known.get(name) != dtype:
            found = f"the text says {known[name]}" if name in known else f"the inputs are {[*known]}"
            raise FormatError(f"shapes/inputs/{excerpt_key(name)}/dtype", f"{dtype} is given, but {found}")
    return named


def looks_like(text: str) -> Reader | None:
    """The reader that recognises the text, whatever its file is called."""
    start = text.lstrip()
    return next((reader for reader in READERS if reader.sniff(start)), None)


def _reader(text: str, format: str | None, filename: str | None) -> Reader:
    if format is not None:
        for reader in READERS:
            if reader.name == format:
                return reader
        raise FormatError("format", f"unknown format {excerpt(format)}, expected one of {[r.name for r in READERS]}")
    recognised = looks_like(text)
    if recognised is not None:
        return recognised
    for reader in READERS:
        if filename is not None and filename.endswith(reader.suffixes):
            return reader
    known = "; ".join(f"{r.name}: {r.doc}" for r in READERS)
    raise FormatError(
        "1:1", f"the format is not recognised from {excerpt(text.lstrip(), 30)}, expected one of these: {known}"
    )
