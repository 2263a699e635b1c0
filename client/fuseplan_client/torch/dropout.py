"""Dropout in training, split into the draw of its mask and pointwise ops that plans may compute.

    native_dropout(x, p, True) -> mask = drawn with 1 - p; x (mask scale); scale = 1 / (1 - p)

PyTorch's kernel for the CPU does these steps, and rounds the scale to x's dtype, so that bits and the generator's state
afterwards are those of eager (`draws`). The order of draws in a tensor that is not contiguous depends on its layout,
which is that of `empty_like(x)`.
"""

import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from fuseplan_client.torch.decompositions import fake_mode_of
from fuseplan_client.torch.draws import drawn_mask, drawn_mask_like
from fuseplan_client.torch.symbols import is_symbolic

aten = torch.ops.aten


def split_dropout(graph: Graph) -> int:
    """Replaces each dropout in training on a CPU, in place. Returns the number of these."""
    found = [n for n in graph.nodes if n.op == "call_function" and n.target is aten.native_dropout.default]
    split = [n for n in found if n.args[2] is not False and _on_cpu(n.args[0])]
    for node in split:
        _split(graph, node)
    return len(split)


def _on_cpu(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _split(graph: Graph, node: Node) -> None:
    x, probability, _ = node.args
    mode = fake_mode_of([x.meta["val"]])  # type: ignore[union-attr]

    def call(target: Any, *args: Any, **kwargs: Any) -> Node:
        made = graph.call_function(target, args, kwargs)
        fake_args = map_arg(args, lambda n: n.meta["val"])
        with torch.no_grad(), mode:
            made.meta["val"] = target(*fake_args, **kwargs)
        return made

    kept = 1.0 - float(probability)  # type: ignore[arg-type]
    with graph.inserting_before(node):
        mask = _mask(graph, x, kept, mode)  # type: ignore[arg-type]
        ones = call(aten._to_copy.default, mask, dtype=x.meta["val"].dtype)  # type: ignore[union-attr]
        out = call(aten.mul.Tensor, x, call(aten.mul.Scalar, ones, 0.0 if kept == 0.0 else 1.0 / kept))
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with((out, mask)[user.args[1]])  # type: ignore[index]
            graph.erase_node(user)
    if not node.users:
        graph.erase_node(node)


def _mask(graph: Graph, x: Node, kept: float, mode: Any) -> Node:
    """The draw, which depends on x only where its sizes are not known."""
    value = x.meta["val"]
    with torch.no_grad(), mode:
        mask = torch.empty_like(value, dtype=torch.bool)
    if is_symbolic(value):
        node = graph.call_function(drawn_mask_like, (x, kept))
    else:
        node = graph.call_function(drawn_mask, (tuple(mask.shape), tuple(mask.stride()), kept))
    node.meta["val"] = mask
    return node
