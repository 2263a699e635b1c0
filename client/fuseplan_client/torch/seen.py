"""Results of a group's ops as they were when they ran, where a trace foresaw something else.

Fake tensors are a guess at what PyTorch's kernels give. Where a group's results lie otherwise, or its inputs do, its
ops run once one by one, and a plan is asked for with the layouts that were seen."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves, tree_map

from fuseplan_client.torch.kernel_values import described
from fuseplan_client.torch.partition import copied
from fuseplan_client.torch.tensor_layout import Seen, layout_of
from fuseplan_client.torch.tolerant import tolerant


def seen(module: GraphModule, args: Sequence[Any]) -> Seen | None:
    """Runs a group's ops on a call's arguments. None where some result cannot be said so: it is conjugate, or negative,
    when it is read."""
    copy = copied(module.graph)
    own = dict(zip(copy.nodes, module.graph.nodes, strict=True))
    watch = _Watch(tolerant(GraphModule(module, copy)))
    with torch.no_grad():
        watch.run(*args)
    if watch.is_unsaid:
        return None
    values = {own[node]: value for node, value in watch.values.items() if node in own}
    return Seen(values, frozenset(own[node] for node in watch.copies if node in own))


def is_as_foreseen(module: GraphModule, results: Any) -> bool:
    """Whether results of a call are those that the module's output foresaw, in dtypes and layouts."""
    (foreseen,) = next(n for n in module.graph.nodes if n.op == "output").args
    values = tree_map(lambda v: v.meta.get("val") if isinstance(v, Node) else v, foreseen)
    return list(described(results)) == list(described(values))


class _Watch(Interpreter):
    """Runs a graph and notes what its nodes give."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.values: dict[Node, Any] = {}
        self.copies: set[Node] = set()
        self.is_unsaid = False

    def run_node(self, n: Node) -> Any:
        """The node's result."""
        found = super().run_node(n)
        self.values[n] = tree_map(self._layout, found)
        first = self.env.get(n.args[0]) if n.args and isinstance(n.args[0], Node) else None
        if isinstance(first, torch.Tensor):
            memory = {t.untyped_storage().data_ptr() for t in tree_leaves(found) if isinstance(t, torch.Tensor)}
            if first.untyped_storage().data_ptr() not in memory:
                self.copies.add(n)
        return found

    def _layout(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        self.is_unsaid = self.is_unsaid or value.is_conj() or value.is_neg() or value.layout != torch.strided
        return None if self.is_unsaid else layout_of(value)
