"""Gradients with memory of their own.

    g = ...;  return g, view(g, [24])    ->    g = ...;  return g, clone(view(g, [24]))

PyTorch keeps the first gradient of a leaf as it comes where nobody else has the tensor, and adds the next ones to it in
place. Two views of one tensor are two tensors: what is added to one is added to the other (PyTorch 2.13: with
`aot_eager`, where one leaf's gradient is a view of the other's; in eager mode where both are views).
"""

import torch
from torch.fx import GraphModule, Node

from fuseplan_client.torch.export import root_of
from fuseplan_client.torch.symbols import is_symbolic

aten = torch.ops.aten


def apart_gradients(backward: GraphModule) -> GraphModule:
    """The graph, in place, whose results do not overlap; one that is given twice is one tensor, which PyTorch sees."""
    graph = backward.graph
    output = graph.output_node()
    given = list(dict.fromkeys(output.all_input_nodes))
    kept: dict[Node, list[Node]] = {}
    for node in given:
        others = kept.setdefault(root_of(node), [])
        if not any(_overlap(node, other) for other in others):
            others.append(node)
            continue
        with graph.inserting_before(output):
            copy = graph.call_function(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
        copy.meta = {**node.meta, "val": node.meta["val"].clone(memory_format=torch.contiguous_format)}
        copy.meta.pop("tensor_meta", None)
        output.replace_input_with(node, copy)
    backward.recompile()
    return backward


def _overlap(one: Node, other: Node) -> bool:
    """Whether two views of one tensor may have an element in common."""
    first, second = _span(one), _span(other)
    return first is None or second is None or (first[0] < second[1] and second[0] < first[1])


def _span(node: Node) -> tuple[int, int] | None:
    """The first element of its memory that a view has, and the one behind the last; None where sizes vary."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or is_symbolic(value):
        return None
    start = int(value.storage_offset())
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return (start, start + int(last) + 1) if value.numel() else (start, start)
