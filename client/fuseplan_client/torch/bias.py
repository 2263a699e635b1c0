"""Products with a bias whose result goes on in pointwise ops, split into the product and the sum with the bias.

    gelu(addmm(bias, x, w)) -> gelu(mm(x, w) + bias)

PyTorch's kernel for f32 writes the bias to the result first, in a pass of its own; a plan adds it while it reads the
product anyway. Of narrower types that would round once more: they stay whole.
"""

from typing import Any

import torch
from torch.fx import Graph, Node

from fuseplan_client.torch.export import is_view
from fuseplan_client.torch.support import Support

aten = torch.ops.aten
SPLIT = (torch.float32, torch.float64)


def split_bias(graph: Graph, support: Support) -> int:
    """Splits such products in place. support: of the ops that go into plans, products not among them. Returns the
    number of those that were split."""
    found = [node for node in graph.nodes if node.target is aten.addmm.default and _fits(node, support)]
    for node in found:
        bias, x, w = node.args
        with graph.inserting_before(node):
            product = graph.call_function(aten.mm.default, (x, w))
            total = graph.call_function(aten.add.Tensor, (product, bias))
        product.meta["val"] = total.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(total)
        graph.erase_node(node)
    return len(found)


def _fits(node: Node, support: Support) -> bool:
    value: Any = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in SPLIT or any(v != 1 for v in node.kwargs.values()):
        return False
    readers = list(_readers(node))
    return bool(readers) and all(support.verdict(reader).said for reader in readers)


def _readers(node: Node) -> Any:
    """Who reads the elements, by way of views or not."""
    for user in node.users:
        if is_view(user):
            yield from _readers(user)
        else:
            yield user
