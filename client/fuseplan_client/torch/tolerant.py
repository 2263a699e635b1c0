"""Graphs as PyTorch runs them op by op, whatever layouts its kernels give.

AOTAutograd traces with fake tensors, and some of these lie otherwise than what a kernel gives in the end. A `view` that
was one in the trace may be none of the real tensor, `as_strided` would read other elements, and kernels of norms take
operands for what they are not: `native_group_norm` raises, and its backward kernel gives wrong gradients (PyTorch
2.13). The model itself, op by op, has none of these problems; nor do graphs that are `tolerant`."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.fx import Graph, GraphModule, Node

from fuseplan_client.torch.kernel_values import VIEWS, steps
from fuseplan_client.torch.symbols import is_symbolic

aten = torch.ops.aten

# Operands that kernels take to be dense, in one of PyTorch's memory formats; by the operand whose format it is.
DENSE: Mapping[Any, Mapping[int, int]] = {
    aten.native_group_norm.default: {0: 0},
    aten.native_group_norm_backward.default: {0: 1, 1: 1},
    aten.native_batch_norm_backward.default: {0: 0, 1: 1},
}
STRIDED = (aten.as_strided.default, aten.as_strided_.default)


def is_tolerant(graph: Graph) -> bool:
    """Whether nothing in a graph depends on layouts."""
    return not any(node.target in (*VIEWS, *DENSE, *STRIDED) for node in graph.nodes)


def tolerant(module: GraphModule) -> GraphModule:
    """The graph, changed in place so that it computes the same of tensors of any layout."""
    given = module.graph.output_node().all_input_nodes
    for node in list(module.graph.nodes):
        if node.target is aten._unsafe_view.default and node in given:
            node.target = reshaped
        elif node.target in VIEWS:
            node.target = aten.reshape.default
        elif node.target in DENSE:
            operands = list(node.args)
            for place, like in DENSE[node.target].items():
                _before(node, place, dense, (operands[like],))
        elif node.target in STRIDED and not is_symbolic(node.args[0].meta.get("val")):
            _before(node, 0, laid_out, (tuple(node.args[0].meta["val"].stride()),))
    module.recompile()
    return module


def reshaped(value: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The tensor with other sizes, no view to autograd, which lets nobody write over views that a graph gives."""
    return aten._unsafe_view.default(value.reshape(sizes), sizes)


def dense(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor as it is, where its elements lie as `suggest_memory_format` has it for `like`; else a copy."""
    form = suggest_memory_format(like)
    if not like.is_contiguous(memory_format=form):
        form = torch.contiguous_format
    return value.contiguous(memory_format=form)


def laid_out(value: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The tensor as it is, where its strides are these, but for axes of one element; else a copy with these."""
    expected = [stride for n, stride in zip(value.shape, strides, strict=True) if n != 1]
    if not value.numel() or [*steps(value)] == expected:
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)


def _before(node: Node, place: int, function: Any, args: tuple[Any, ...]) -> None:
    """Puts a function in front of an operand of a node."""
    operand: Any = node.args[place]
    with node.graph.inserting_before(node):
        made = node.graph.call_function(function, (operand, *args))
    made.meta = {"val": operand.meta.get("val")}
    node.update_arg(place, made)
