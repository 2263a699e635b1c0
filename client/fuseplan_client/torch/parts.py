"""The other ways to compute a group: its products of matrices by PyTorch, or its attention alone, what lies between
them by plans."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from fuseplan_client.torch.bias import split_bias
from fuseplan_client.torch.group import PlannedGroup
from fuseplan_client.torch.partition import copied, partition
from fuseplan_client.torch.slot import Progress, Slot
from fuseplan_client.torch.support import Support
from fuseplan_client.torch.tolerant import tolerant

aten = torch.ops.aten
# Of these PyTorch keeps the scores in a cache, and skips what a causal mask leaves out.
ATTENTION = frozenset(
    {
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    }
)
PRODUCTS = ATTENTION | frozenset(
    {
        aten.mm.default,
        aten.bmm.default,
        aten.addmm.default,
        aten.baddbmm.default,
        aten.linear.default,
        aten.matmul.default,
    }
)
# By their names, what each way leaves to PyTorch.
WAYS = {"products": PRODUCTS, "attention": ATTENTION}


@dataclass(frozen=True)
class Parts:
    """A group's module with groups of its own, between what is `left` to PyTorch. Each of these is judged by itself on
    live calls."""

    left: str
    module: GraphModule
    groups: Sequence[PlannedGroup]

    def __call__(self, args: Sequence[Any]) -> Any:
        return self.module.forward(*args)

    @property
    def slots(self) -> list[Slot]:
        """The slots of all groups that were called."""
        return [slot for group in self.groups for slot in group.slots.values()]

    def progress(self) -> Progress:
        """How far the plans are: `slot.OfParts`."""
        slots = self.slots
        if len(slots) < len(self.groups) or any(slot.is_open for slot in slots):
            return "asking"
        if any(slot.is_judging for slot in slots):
            return "judging"
        return "ready" if any(slot.accepted is not None for slot in slots) else "useless"


def ways_of(module: GraphModule) -> list[str]:
    """Ways of `WAYS` that leave something of a group's module to PyTorch, each something else."""
    found = {way: frozenset(n for n in module.graph.nodes if n.target in left) for way, left in WAYS.items()}
    return [way for k, (way, nodes) in enumerate(found.items()) if nodes and nodes not in list(found.values())[:k]]


def parts_of(
    module: GraphModule, way: str, device: str, least_ops: int, place: Callable[[GraphModule, str, int], PlannedGroup]
) -> Parts | None:
    """The parts of a group's module by a way of `ways_of`; None where there is nothing but what that leaves. device:
    that its tensors are on. place: puts a group in the place of a submodule, of so many of this way."""
    graph, support = copied(module.graph), Support(device, WAYS[way])
    if WAYS[way] is PRODUCTS:
        split_bias(graph, support)
    found = partition(GraphModule(module, graph), support, least_ops)
    if not found.groups:
        return None
    groups = [place(found.module, name, len(found.groups)) for name in found.groups]
    return Parts(way, tolerant(found.module), groups)
