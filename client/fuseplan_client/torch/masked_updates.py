"""Updates under a mask (`x[mask] = value`) as choices between two values, before gradients are traced.

AOTAutograd cannot trace the gradient of such a value: PyTorch picks the rows that the mask names, whose number is not
known, and the whole graph would stay PyTorch's. Where the value is the same wherever the mask is true, the choice says
the same, and its gradient is a sum under the mask."""

import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fuseplan_client.torch.partition import copied


def with_choices(module: GraphModule) -> GraphModule:
    """A graph of Dynamo's with such updates as choices; itself where it has none."""
    if not any(_is_masked(node) for node in module.graph.nodes):
        return module
    graph = copied(module.graph)
    for node in graph.nodes:
        if _is_masked(node):
            _choose(graph, node)
    found = GraphModule(module, graph)
    found.meta = dict(module.meta)
    return found


def _choose(graph: Graph, node: Node) -> None:
    """x[index] = value as x.copy_(where(index, value, x)): what sees x sees the update, as in eager mode."""
    x, mask, value = node.args[0], _mask_of(node.args[1]), node.args[2]
    rest = _example(x).dim() - _example(mask).dim()
    with graph.inserting_before(node):
        for _ in range(rest):
            mask = graph.call_method("unsqueeze", (mask, -1))
        if _example(value).dim() > rest:
            value = graph.call_method("squeeze", (value, 0))
        chosen = graph.call_function(torch.where, (mask, value, x))
        update = graph.call_method("copy_", (x, chosen))
    for made in (chosen, update):
        made.meta = {k: v for k, v in node.meta.items() if k == "stack_trace"}
    graph.erase_node(node)


def _is_masked(node: Node) -> bool:
    """Whether a node updates under a mask, by one value for all places."""
    if node.target is not operator.setitem or len(node.args) != 3 or node.kwargs:
        return False
    x, mask, value = (_example(a) for a in (node.args[0], _mask_of(node.args[1]), node.args[2]))
    if not all(isinstance(t, torch.Tensor) for t in (x, mask, value)) or mask.dtype != torch.bool:
        return False
    if x.dtype != value.dtype or not (mask.device == value.device == x.device):
        return False
    rest = x.dim() - mask.dim()
    return mask.dim() > 0 and rest >= 0 and (value.dim() <= rest or (value.dim() == rest + 1 and value.shape[0] == 1))


def _mask_of(index: Any) -> Any:
    return index[0] if isinstance(index, tuple) and len(index) == 1 else index


def _example(arg: Any) -> Any:
    return arg.meta.get("example_value") if isinstance(arg, Node) else None
