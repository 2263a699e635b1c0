"""Graphs of Dynamo's with calls of graphs inside, as eager mode makes these.

Some of the ops that Dynamo has for such calls are to be traced by AOTAutograd, and do something else where they are run
(PyTorch 2.13). A checkpoint (`torch.utils.checkpoint`) does not put the generators back before it computes anew: masks
of dropout are others, and gradients are wrong. A region (`torch.compiler.nested_compile_region`) has no gradients."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from fuseplan_client.tensors import version
from fuseplan_client.torch.partition import copied

CONTEXT = "_checkpoint_context_fn"  # where Dynamo keeps that of a selective checkpoint: in the graph's `meta`


def in_eager_mode(module: GraphModule) -> GraphModule:
    """The graph with such calls replaced, also in graphs that it calls; itself where there are none."""
    children = {name: child for name, child in module.named_children() if isinstance(child, GraphModule)}
    changed = {name: made for name, child in children.items() if (made := in_eager_mode(child)) is not child}
    if not changed and not any(node.target in CALLS for node in module.graph.nodes):
        return module
    found = GraphModule(module, copied(module.graph))
    found.meta = dict(module.meta)
    for name, child in changed.items():
        setattr(found, name, child)
    for node in found.graph.nodes:
        node.target = CALLS.get(node.target, node.target)
    found.recompile()
    return found


def _checkpointed(module: GraphModule, *operands: Any, **how: Any) -> Any:
    """how: arguments of the program's own call. Dynamo passes buffers as operands, too, which the module may update:
    what its first run left as it was has to be so still where it is computed anew."""
    if CONTEXT in module.meta:
        how["context_fn"] = module.meta[CONTEXT]
    known: dict[int, int] = {}

    def run(*_: Any) -> Any:
        if any(version(operands[i]) != expected for i, expected in known.items()):
            raise RuntimeError("a tensor that a checkpoint computes anew of has been modified by an inplace operation")
        before = {i: version(t) for i, t in enumerate(operands) if isinstance(t, torch.Tensor)}
        found = module(*operands)
        known.update((i, count) for i, count in before.items() if version(operands[i]) == count)
        return found

    # Of what it is given, `checkpoint` looks for devices, and counts writes.
    given = [t.data if isinstance(t, torch.Tensor) else t for t in operands]
    return checkpoint(run, *given, **{**how, "use_reentrant": False})


def _region(module: GraphModule, _: str, *operands: Any) -> Any:
    return module(*operands)


CALLS: Mapping[Any, Callable[..., Any]] = {tag_activation_checkpoint: _checkpointed, invoke_subgraph: _region}
