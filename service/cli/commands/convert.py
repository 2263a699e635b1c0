"""`fuseplan convert`: a graph in another of the formats."""

import sys
from typing import Annotated, Literal

import typer

from fusion_ir.formats.json.wire import to_wire
from fusion_ir.text.printing import print_graph
from service.cli.graph_argument import read_graph
from service.cli.options import Format, Graph, Shapes
from service.cli.terminal import print_json


def convert(
    graph: Graph,
    to: Annotated[Literal["json", "text"], typer.Option("--to", help="json: the wire format; text: Fuseplan's own.")],
    format_: Format = None,
    shapes: Shapes = None,
) -> None:
    """Read a graph in any format and print it in another; checks it on the way."""
    named = read_graph(graph, format_, shapes)
    if to == "json":
        print_json(to_wire(named))
    else:
        sys.stdout.write(print_graph(named))
