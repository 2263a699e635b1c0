"""Updates in place, as AOTAutograd has them at a graph's end: a new value is computed, and copied to where an input is.

    p = ...; group: p_new = p - 0.1 g;  ...;  copy_(p, p_new)    ->    group, which leaves p_new in p

A group that makes the copies itself may have a plan that writes there at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fuseplan_client.torch.export import root_of
from fuseplan_client.torch.symbols import is_symbolic

aten = torch.ops.aten
RUNNING, IN_TRAINING = (3, 4), 7  # arguments of `native_batch_norm_backward`


@dataclass(frozen=True)
class Update:
    """A group's output that belongs into the memory of one of its inputs, which has the same layout."""

    output: int
    input: int


def take_updates(module: GraphModule, groups: Sequence[str]) -> Mapping[str, tuple[Update, ...]]:
    """The updates that each group can make itself; their copies go from the graph. An input that is read after the
    group stays as it is until its copy."""
    nodes = list(module.graph.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    readers: dict[Node, list[Node]] = {}
    for node in nodes:
        for root in {root_of(n) for n in node.all_input_nodes}:
            readers.setdefault(root, []).append(node)
    found: dict[str, list[Update]] = {name: [] for name in groups}
    for node in nodes:
        made = _update(node)
        if made is None:
            continue
        call, item, target = made
        later = [n for n in readers[target] if place[n] > place[call] and n is not node]
        updates, position = found.get(str(call.target)), call.args.index(target)
        if updates is not None and not later and all(u.input != position for u in updates):
            updates.append(Update(int(item.args[1]), position))  # type: ignore[arg-type]
            module.graph.erase_node(node)
            module.graph.erase_node(item)
    return {name: tuple(updates) for name, updates in found.items()}


def drop_statistics(joint: GraphModule) -> None:
    """Running statistics from backward passes of batch norms in training, in place: kernels do not read them there.
    Nobody but their copies reads the new ones then, and groups can make these."""
    for node in joint.graph.nodes:
        if node.target is aten.native_batch_norm_backward.default and node.args[IN_TRAINING] is True:
            for place in RUNNING:
                node.update_arg(place, None)


def _update(node: Node) -> tuple[Node, Node, Node] | None:
    """(the call of a group, the item of what it gives, the input of the graph) of a copy that nobody else reads."""
    if node.target is not aten.copy_.default or node.users or node.kwargs or len(node.args) != 2:
        return None
    target, item = node.args
    if not isinstance(target, Node) or target.op != "placeholder" or not isinstance(item, Node):
        return None
    call = item.args[0] if item.args and len(item.users) == 1 else None
    if not isinstance(call, Node) or call.op != "call_module" or target not in call.args:
        return None
    if any(root_of(a) is target for a in call.args if isinstance(a, Node) and a is not target):
        return None  # by a view, which is another input of the group, it may read what was overwritten
    return (call, item, target) if _layout(target) == _layout(item) else None


def _layout(node: Node) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or any(map(is_symbolic, (*value.shape, *value.stride()))):
        return node  # equal to no other
    return value.dtype, tuple(value.shape), tuple(value.stride())


def updating(call: Callable[[Sequence[Any]], Any], updates: Sequence[Update]) -> Callable[[Sequence[Any]], Any]:
    """A call that copies what it computes to where it belongs."""
    if not updates:
        return call

    def updated(args: Sequence[Any]) -> Any:
        found = call(args)
        for update in updates:
            args[update.input].copy_(found[update.output])
        return found

    return updated


def apart(args: Sequence[Any], updates: Sequence[Update]) -> Sequence[Any]:
    """The arguments with copies of those that a call updates, which are left as they are."""
    copies = list(args)
    for update in updates:
        copies[update.input] = args[update.input].clone()
    return copies
