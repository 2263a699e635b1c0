"""Regions of a graph of Dynamo's that PyTorch has ops of their own for, as eager mode has them.

Checkpoints (`torch.utils.checkpoint`) and regions that are compiled once (`torch.compiler.nested_compile_region`) are
ops that are made to be traced, and may not be run as they are. The one of a checkpoint keeps no state of the
generators, since whoever traces it writes what is drawn into the backward pass: it would draw other masks of dropout
where it computes the forward pass again, and give gradients of another function. The other one has no backward pass."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint, noop_context_fn

from fuseplan_client.torch.partition import copied

CONTEXT = "_checkpoint_context_fn"  # where Dynamo notes what a program passes as `context_fn`


def with_eager_regions(module: GraphModule) -> GraphModule:
    """The graph with such regions run as eager mode runs them; itself where it has none."""
    bodies = [m for m in module.modules() if isinstance(m, GraphModule)]
    if not any(node.target in REGIONS for body in bodies for node in body.graph.nodes):
        return module
    graph = copied(module.graph)
    for node in graph.nodes:
        node.target = REGIONS.get(node.target, node.target)
    found = GraphModule(module, graph)
    found.meta = dict(module.meta)
    for name, child in list(found.named_children()):
        if isinstance(child, GraphModule):
            setattr(found, name, with_eager_regions(child))
    return found


def _checkpointed(body: GraphModule, *args: Any, **kwargs: Any) -> Any:
    """A checkpoint as the program asked for it. What needs no gradient is no argument of it: the body may update it,
    such as running statistics, which in the program it has from elsewhere."""
    own = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.requires_grad]

    def computed(*given: Any) -> Any:
        found = list(args)
        for i, value in zip(own, given, strict=True):
            found[i] = value
        return body(*found)

    options: dict[str, Any] = {"context_fn": body.meta.get(CONTEXT, noop_context_fn), **kwargs, "use_reentrant": False}
    return checkpoint(computed, *(args[i] for i in own), **options)


def _called(body: GraphModule, name: str | None, *args: Any) -> Any:
    """A region that is compiled once, by what it is made of."""
    return body(*args)


REGIONS: Mapping[Any, Callable[..., Any]] = {tag_activation_checkpoint: _checkpointed, invoke_subgraph: _called}
