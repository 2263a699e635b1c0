"""The meaning of a graph: evaluates it on NumPy arrays, rounding every value to its node's dtype.

Views are NumPy views, values go when their last reader is done, a pointwise op whose operands all repeat along an axis
is computed once along it, and large graphs are computed in pieces that stay in cache. So full-size graphs (tens of
millions of elements) take tenths of a second.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.reference.chunking import cut
from fusion_ir.reference.evaluation import Evaluation, EvaluationSchedule
from fusion_ir.reference.node_value import evaluate_node

# Replaces the value of a node, given its operands; None leaves it to the interpreter.
Override = Callable[[Node, tuple[np.ndarray, ...]], "np.ndarray | None"]


class InputError(ValueError):
    """An array does not fit the graph's input; the message gives expected and actual."""


def interpret(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs, in order, dense and row-major, in the dtypes of their nodes. Raises InputError.

    Strides of `inputs` are as they please: only shapes and dtypes must match. Outputs share no memory with inputs.
    """
    check_inputs(graph, inputs)
    values = Evaluation(EvaluationSchedule(cut(graph)), inputs).outputs()
    passed_on = [o.node.op == "input" for o in graph.outputs]
    return [np.array(v, order="C") if given else dense(v) for v, given in zip(values, passed_on, strict=True)]


def dense(value: np.ndarray) -> np.ndarray:
    """`value` as a dense row-major array that owns its memory; a copy unless it already is one."""
    owned = value.flags.c_contiguous and value.flags.owndata and value.flags.writeable
    return value if owned else np.array(value, order="C", copy=True)


def evaluate(graph: Graph, inputs: Sequence[np.ndarray], override: Override | None = None) -> list[np.ndarray]:
    """The outputs as the interpreter holds them: any strides (0 where they repeat), possibly views of `inputs`.

    Every node is computed whole. `override` may replace values as they are made. Raises InputError.
    """
    check_inputs(graph, inputs)
    readers = {node: len(users) for node, users in graph.users.items()}
    for output in graph.outputs:
        readers[output.node] += 1
    values: dict[Node, np.ndarray] = {}
    for node in graph.nodes:
        if node.op == "input":
            values[node] = inputs[node.attr("position", int)]
            continue
        operands = tuple(values[a] for a in node.args)
        value = override(node, operands) if override else None
        values[node] = evaluate_node(node, operands) if value is None else value
        for arg in dict.fromkeys(node.args):
            readers[arg] -= 1
            if not readers[arg]:
                del values[arg]
    return [values[output.node] for output in graph.outputs]


def check_inputs(graph: Graph, inputs: Sequence[np.ndarray]) -> None:
    """Raises InputError unless there is one array per input, of its shape and dtype."""
    if len(inputs) != len(graph.inputs):
        raise InputError(f"the graph has {len(graph.inputs)} inputs, got {len(inputs)} arrays")
    for position, (spec, array) in enumerate(zip(graph.inputs, inputs, strict=True)):
        if array.shape != spec.sizes or array.dtype != spec.dtype.numpy:
            raise InputError(
                f"input {position} is {spec.dtype}{list(spec.sizes)}, got {array.dtype}{list(array.shape)}"
            )
