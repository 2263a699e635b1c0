"""Graphs as text: the canonical form that keys are made of and people read, and its exact inverse.

    fuseplan.graph 1
    in0: bf16[64, 32] align 16
    in1 bias: bf16[32] align 16 constant "v7"
    %0 = in0: bf16[64, 32]
    %1 = full() {shape=[64, 32], value=bf16:0x4000}: bf16[64, 32]  # value 2.0
    %2 scaled = mul(%0, %1): bf16[64, 32]
    out0: %2

One line per input, node and output; a node's number is its position in `graph.nodes`. Only what is not the default is
printed of strides (dense) and `donates`. Names stand after in0, %0 and out0 of a `NamedGraph`, quoted as JSON strings
where they are no identifiers; the text of a `Graph` has none. Comments run from # to the end of the line.
"""

import json
import re
from collections.abc import Mapping

from fusion_ir.core.extent import Extent, dense_strides
from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.core.node import Attr, Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType
from fusion_ir.text.reading import parse_graph

__all__ = ["HEADER", "name_text", "node_text", "parse_graph", "print_graph", "type_text"]

HEADER = "fuseplan.graph 1"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def print_graph(graph: Graph | NamedGraph) -> str:
    """The text; of a `Graph` the canonical one, which `graph_key` hashes. Ends with a newline."""
    named = graph if isinstance(graph, NamedGraph) else None
    plain = graph.graph if isinstance(graph, NamedGraph) else graph
    lines = [HEADER]
    for i, spec in enumerate(plain.inputs):
        line = f"in{i}{name_text(named.input_names[i]) if named else ''}: {type_text(spec.dtype, spec.sizes)}"
        if spec.strides != dense_strides(spec.sizes):
            line += f" strides {list(spec.strides)}"
        line += f" align {spec.alignment_bytes}"
        if spec.constant is not None:
            line += f" constant {json.dumps(spec.constant)}"
        lines.append(line)
    numbers: dict[Node, int] = {}
    names = named.node_names if named else ()
    for node in plain.nodes:
        lines.append(node_text(node, numbers, names[len(numbers)] if names else ""))
        numbers[node] = len(numbers)
    for i, spec in enumerate(plain.outputs):
        line = f"out{i}{name_text(named.output_names[i]) if named else ''}: %{numbers[spec.node]}"
        if spec.strides != dense_strides(spec.node.sizes):
            line += f" strides {list(spec.strides)}"
        if spec.donates is not None:
            line += f" donates in{spec.donates}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def node_text(node: Node, numbers: Mapping[Node, int], name: str = "") -> str:
    """The line of one node; `numbers` knows its operands, and the node gets the next number."""
    head = f"%{len(numbers)}{name_text(name) if name else ''} = "
    if node.op == "input":
        return f"{head}in{node.attr('position', int)}: {type_text(node.dtype, node.sizes)}"
    operands = ", ".join([f"%{numbers[a]}" for a in node.args])
    attrs = ", ".join([f"{name}={_attr_text(value)}" for name, value in node.attrs])
    braces = f" {{{attrs}}}" if attrs else ""
    comment = ", ".join([f"{name} {value.value!r}" for name, value in node.attrs if isinstance(value, Scalar)])
    line = f"{head}{node.op}({operands}){braces}: {type_text(node.dtype, node.sizes)}"
    return f"{line}  # {comment}" if comment else line


def type_text(dtype: DType, extents: tuple[int, ...]) -> str:
    """`bf16[64, 32]`."""
    return f"{dtype}{list(extents)}"


def name_text(name: str) -> str:
    """A name as it stands behind in0, %0 or out0, with a blank before it."""
    return f" {name}" if _IDENTIFIER.match(name) else f" {json.dumps(name)}"


def _attr_text(value: Attr) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | DType() | Scalar():
            return repr(value)
        case str():
            return json.dumps(value)
        case tuple():
            return str([e.value if isinstance(e, Extent) else e for e in value])
        case None:
            return "none"
