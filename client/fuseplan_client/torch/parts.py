"""The other way to compute a group: its products of matrices by PyTorch, what lies between them by plans."""

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

aten = torch.ops.aten
PRODUCTS = frozenset(
    {
        aten.mm.default,
        aten.bmm.default,
        aten.addmm.default,
        aten.baddbmm.default,
        aten.linear.default,
        aten.matmul.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    }
)


@dataclass(frozen=True)
class Parts:
    """A group's module with groups of its own, between products. Each of these is judged by itself on live calls."""

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


def parts_of(module: GraphModule, least_ops: int, place: Callable[[GraphModule, str], PlannedGroup]) -> Parts | None:
    """The parts of a group's module; None where it has no products, or nothing between them. place: puts a group in the
    place of a submodule."""
    if not any(node.target in PRODUCTS for node in module.graph.nodes):
        return None
    graph, support = copied(module.graph), Support(PRODUCTS)
    split_bias(graph, support)
    found = partition(GraphModule(module, graph), support, least_ops)
    if not found.groups:
        return None
    groups = [place(found.module, name) for name in found.groups]
    found.module.recompile()
    return Parts(found.module, groups)
