"""Graphs that are called as they are, without what AOTAutograd does around each call.

Around a graph without gradients AOTAutograd's code looks for results that are inputs or views of them, for updates that
are left to it, for inputs that came twice, and more; in most graphs there is nothing to find, and looking takes a dozen
calls of Python."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from fuseplan_client.torch.export import root_of

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)

Call = Callable[..., Any]


def is_direct(model: GraphModule, examples: Sequence[Any], graph: GraphModule) -> bool:
    """Whether a graph of AOTAutograd's without gradients takes exactly what Dynamo's `model` does, and gives the same:
    tensors that are no subclasses, and results in memory of their own, each in another."""
    taken = [n for n in graph.graph.nodes if n.op == "placeholder"]
    given, asked = _results(graph), _results(model)
    if len(taken) != len(examples) or len(given) != len(asked):
        return False
    if not all(type(e) in _PLAIN for e in examples) or any(map(_writes, graph.graph.nodes)):
        return False
    values = [n for n in given if isinstance(n, Node)]
    roots = {root_of(n) for n in values}
    return len(roots) == len(given) and all(root.op == "call_function" for root in roots)


def directly(graph: Callable[[], Call], otherwise: Call) -> Call:
    """Calls a graph that `is_direct`, as AOTAutograd would: without gradients. otherwise: what AOTAutograd made, for
    calls within which gradients are on."""

    def call(*args: Any) -> Any:
        return otherwise(*args) if torch.is_grad_enabled() else graph()(*args)

    return call


def _writes(node: Node) -> bool:
    """Whether an op updates its operands."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _results(module: GraphModule) -> Sequence[Any]:
    """Results of a graph, whatever they are nested in."""
    return tree_leaves(next(n for n in reversed(module.graph.nodes) if n.op == "output").args)
