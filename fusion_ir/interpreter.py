"""The meaning of a graph: evaluates it on NumPy arrays, rounding every value to its node's dtype.

Views are NumPy views, values go when their last reader is done, and a pointwise op whose operands all repeat along an
axis is computed once along it. So full-size graphs (tens of millions of elements) take seconds.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from fusion_ir.dtype import DType
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.numerics import round_to, widen
from fusion_ir.ops import OPS, OpKind

# Replaces the value of a node, given its operands; None leaves it to the interpreter.
Override = Callable[[Node, tuple[np.ndarray, ...]], "np.ndarray | None"]

# Elements of a pointwise op that are computed at a time: operands and temporaries stay in the second-level cache.
_BLOCK_ELEMENTS = 1 << 15


class InputError(ValueError):
    """An array does not fit the graph's input; the message gives expected and actual."""


def interpret(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs, in order, dense and row-major, in the dtypes of their nodes. Raises InputError.

    Strides of `inputs` are as they please: only shapes and dtypes must match. Outputs share no memory with inputs.
    """
    values = evaluate(graph, inputs)
    passed_on = [o.node.op == "input" for o in graph.outputs]
    return [np.array(v, order="C") if given else dense(v) for v, given in zip(values, passed_on, strict=True)]


def dense(value: np.ndarray) -> np.ndarray:
    """`value` as a dense row-major array that owns its memory; a copy unless it already is one."""
    owned = value.flags.c_contiguous and value.flags.owndata and value.flags.writeable
    return value if owned else np.array(value, order="C", copy=True)


def evaluate(graph: Graph, inputs: Sequence[np.ndarray], override: Override | None = None) -> list[np.ndarray]:
    """The outputs as the interpreter holds them: any strides (0 where they repeat), possibly views of `inputs`.

    `override` may replace values as they are made (`fusion_ir.tolerance` perturbs them). Raises InputError.
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


def evaluate_node(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The value of one node, which is no input, in its dtype and shape; strides may be 0 where it repeats."""
    row = OPS[node.op]
    if row.kind is OpKind.POINTWISE:
        return pointwise(node, operands, node.dtype)
    with np.errstate(all="ignore"):
        return row.reference(node, *operands)


def pointwise(node: Node, operands: Sequence[np.ndarray], dtype: DType) -> np.ndarray:
    """The value of a pointwise node rounded to `dtype`, computed once along axes on which all operands repeat."""
    repeats = [all(x.strides[axis] == 0 for x in operands) and n > 1 for axis, n in enumerate(node.sizes)]
    once = tuple(slice(1) if r else slice(None) for r in repeats)
    small = [x[once] for x in operands]
    # Memory order of the largest operand, so that permuted tensors are read and written along their rows.
    leader = max(small, key=lambda x: x.size - sum(x.shape[a] for a in range(x.ndim) if x.strides[a] == 0))
    order = sorted(range(leader.ndim), key=lambda a: -abs(leader.strides[a]) if leader.shape[a] > 1 else 0)
    moved = [x.transpose(order) for x in small]
    result = np.empty(moved[0].shape, dtype.numpy)
    reference = OPS[node.op].reference
    with np.errstate(all="ignore"):
        for block in blocks(result.shape):
            value = reference(node, *(widen(x[block]) for x in moved))
            result[block] = round_to(np.asarray(value), dtype)
    back = result.transpose(np.argsort(order))
    return np.broadcast_to(back, node.sizes) if any(repeats) else back


def blocks(shape: Sequence[int]) -> Iterator[tuple[slice | int, ...]]:
    """Indices that cut a tensor into pieces of at most about `_BLOCK_ELEMENTS`, each contiguous if the tensor is."""
    axis = next((a for a in range(len(shape)) if prod(shape[a + 1 :]) <= _BLOCK_ELEMENTS), None)
    if axis is None or prod(shape) <= _BLOCK_ELEMENTS:
        yield (...,)  # type: ignore[misc]
        return
    step = max(1, _BLOCK_ELEMENTS // max(prod(shape[axis + 1 :]), 1))
    for outer in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis], step):
            yield (*outer, slice(start, start + step))
