"""The verifier: whether a graph is well formed, whatever built it. Passes take and leave graphs that it accepts."""

from collections.abc import Sequence

from fusion_ir.core.extent import sizes
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.layout import check_alignment, check_donation, check_strides
from fusion_ir.core.limits import check_sizes
from fusion_ir.core.node import Node
from fusion_ir.errors import FormatError
from fusion_ir.ops import OPS, RuleError, make, make_input


class VerifyError(ValueError):
    """{place}: {reason}

    `place` is "input 2", "output 0", or "node 7 (add)": its position in `graph.nodes`.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason


def verify(graph: Graph) -> None:
    """Raises VerifyError for the first fault, naming the input, output or node.

    Checked: ranks and sizes within `fusion_ir.core.limits`; strides non-negative, no two elements of a tensor at one
    address (axes of stride 0 may repeat in inputs); alignments; input nodes agree with the specs at their positions;
    every other node is what its op's rules make of its operands and attributes; outputs that take over an input's
    buffer fit it.
    """
    try:
        for i, spec in enumerate(graph.inputs):
            place = f"input {i}"
            check_sizes("", spec.sizes)
            check_strides("", spec.sizes, spec.strides, written=False)
            check_alignment("", spec.alignment_bytes, spec.dtype)
        for i, node in enumerate(graph.nodes):
            place = f"node {i} ({node.op})"
            check_sizes("", sizes(node.shape))
            _check_node(node, graph.inputs)
        for i, output in enumerate(graph.outputs):
            place = f"output {i}"
            check_strides("", output.node.sizes, output.strides, written=True)
            if output.donates is not None and not 0 <= output.donates < len(graph.inputs):
                raise FormatError("", f"donates input {output.donates} of {len(graph.inputs)}")
            check_donation("", output, graph.inputs, [o for j, o in enumerate(graph.outputs) if j != i])
    except (FormatError, RuleError) as error:
        raise VerifyError(place, str(error)) from None  # pyright: ignore[reportPossiblyUnboundVariable]


def _check_node(node: Node, inputs: Sequence[InputSpec]) -> None:
    """Makes the node again from its parts: equal nodes are one object."""
    if node.op == "input":
        position = node.attr("position", int)
        if not 0 <= position < len(inputs):
            raise RuleError(f"reads input {position} of {len(inputs)}")
        again = make_input(position, inputs[position])
    elif node.op not in OPS:
        raise RuleError(f"there is no op {node.op!r}")
    else:
        again = make(node.op, node.args, dict(node.attrs))
    if again is not node:
        raise RuleError(f"is {node!r}, its parts make {again!r}{_difference(node, again)}")


def _difference(node: Node, again: Node) -> str:
    """The attributes in which two nodes of one op differ."""
    other = dict(again.attrs)
    differing = [
        f"{name} {value!r}, expected {other.get(name)!r}" for name, value in node.attrs if other.get(name) != value
    ]
    return f" ({'; '.join(differing)})" if differing else ""
