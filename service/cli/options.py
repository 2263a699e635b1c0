"""Options that several commands share, each declared once."""

import re
from pathlib import Path
from typing import Annotated

import typer

from fusion_ir.records import Numerics
from service.settings import TARGET, TARGET_WORDS
from service.wording.formatting import parse_size


def _target(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(TARGET, value):
        raise typer.BadParameter(f"expected {TARGET_WORDS}, got {value!r}", param_hint="--target")
    return value


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Db = Annotated[str | None, typer.Option(metavar="URL", help="Database: sqlite:///PATH or a PostgreSQL URL.")]
Cache = Annotated[str | None, typer.Option(metavar="FOLDER", help="Folder for compiled objects and device facts.")]
Target = Annotated[str | None, typer.Option(metavar="TARGET", help=f"{TARGET_WORDS}.", callback=_target)]
Seconds = Annotated[float | None, typer.Option(metavar="S", help="Seconds of search where there is no plan yet.")]
Again = Annotated[
    bool,
    typer.Option(
        "--continue",
        help="Search on for --seconds, also where there is a plan; what was timed before is not timed anew.",
    ),
]
NumericsClass = Annotated[
    Numerics,
    typer.Option(metavar="CLASS", help="Loosest rewrites to use: exact, reassociate or approximate."),
]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        parser=_size,
        help="Most memory for the plan's temporaries: bytes, or with a unit as in 64MiB, 8GiB, 2GB.",
    ),
]
Server = Annotated[str | None, typer.Option(metavar="URL", help="Ask this running server instead of planning here.")]
Format = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="Format of GRAPH, where its look is not enough.")
]
Shapes = Annotated[
    str | None,
    typer.Option("--shapes", metavar="FILE", help="JSON file with sizes and strides that GRAPH leaves open."),
]
Graph = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH", help="File with an nvFuser definition or dump, JSON or Fuseplan text; - is standard input."
    ),
]
Graphs = Annotated[
    list[str],
    typer.Argument(
        metavar="GRAPH...",
        help="Files with a graph each, in any format, or folders with such files; - is standard input.",
    ),
]
PlanKey = Annotated[str, typer.Argument(metavar="PLAN_KEY", help="A plan's key, or the beginning of one.")]
Inputs = Annotated[Path, typer.Option("--inputs", metavar="FILE", help="safetensors file with the inputs.")]
Outputs = Annotated[Path, typer.Option("--outputs", metavar="FILE", help="safetensors file to write.")]
