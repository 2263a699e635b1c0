"""The parts of a graph that plans can compute: as large as they can be without one part waiting for itself.

Nodes get levels: the number of changes from PyTorch's own ops to a plan on the way to them. Nodes of plans on one level
are one group: a way out of a group and back in leads through an op of PyTorch's, behind which the level is higher. This
takes one pass over the edges. Then nodes sink to the level of their readers where less is stored so; a cast of a weight
belongs to where it is read.
"""

import heapq
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves

from fuseplan_client.torch.aten.constants import CONSTANTS
from fuseplan_client.torch.draws import DRAWS
from fuseplan_client.torch.dropout import split_dropout
from fuseplan_client.torch.export import is_view, root_of
from fuseplan_client.torch.support import Support
from fuseplan_client.torch.symbols import hint

MOST_STEPS = 8  # back from a node that may sink
PREFIX = "fuseplan_"
SEVERAL_STEPS = 3  # ops of the wire format: of one or two, PyTorch's kernels are as fast as memory
MANY_BYTES = 1 << 15  # of results: some 20 us of such an op, several times what a call of a plan costs
MOST_GROUP_NODES = 4_000  # a wire graph has 20,000 at most, of which an op may take several


@dataclass(frozen=True)
class Partitioned:
    """module: the graph with a submodule for each group. groups: the names of these submodules, in order."""

    module: GraphModule
    groups: tuple[str, ...]


def partition(
    module: GraphModule, support: Support | None = None, least_ops: int = 2, most_nodes: int = MOST_GROUP_NODES
) -> Partitioned:
    """Groups of nodes that plans can compute, as submodules, each of which gives a tuple. Dropout in training is split.

    least_ops: of a group, views and constants aside: a single op of PyTorch's is as fast by itself. One of many
    elements that takes several ops of the wire format, as a softmax or a GELU does, counts for as many. The module
    itself is left as it is; nodes of the new one keep their `meta`.
    """
    graph = copied(module.graph)
    split_dropout(graph)
    nodes = list(graph.nodes)
    support = support or Support()
    said = {node for node in nodes if support.verdict(node).said}
    after = _orders(nodes)
    levels = _levels(nodes, said, after)
    _sink(nodes, said, levels, after)
    groups = _groups(nodes, said, levels, most_nodes)
    ops = Counter[int]()
    for node, group in groups.items():
        ops[group] += _ops(node, support)
    groups = {node: group for node, group in groups.items() if ops[group] >= least_ops}
    for node in reversed(nodes):
        if is_view(node) or _is_item_of_view(node) or node.target in CONSTANTS:
            _peel(graph, node, groups)
    members: dict[int, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node in groups:
            members[groups[node]].append(node)
    return _assembled(module, graph, members)


def copied(graph: Graph) -> Graph:
    """A copy of a graph, to be changed."""
    copy = Graph()
    values: dict[Node, Node] = {}
    result = copy.graph_copy(graph, values)
    copy.output(result)
    outputs = next(n for n in graph.nodes if n.op == "output")
    next(n for n in copy.nodes if n.op == "output").meta = dict(outputs.meta)
    return copy


def _is_free(node: Node) -> bool:
    """Whether a node takes no time in PyTorch, or next to none."""
    return node.target is operator.getitem or is_view(node) or node.target in CONSTANTS


def _ops(node: Node, support: Support) -> int:
    """Ops that a node counts for in its group."""
    if _is_free(node):
        return 0
    steps = support.verdict(node).steps
    return steps if steps >= SEVERAL_STEPS and _bytes(node) >= MANY_BYTES else 1


def _is_item_of_view(node: Node) -> bool:
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, Node) and is_view(source)


def _orders(nodes: Sequence[Node]) -> Mapping[Node, list[Node]]:
    """Nodes that each node comes after though it does not read them: ops with effects stay in order, and what is
    written over is read before."""
    after: dict[Node, list[Node]] = defaultdict(list)
    readers: dict[Node, list[Node]] = defaultdict(list)  # of the memory of a node
    writers: dict[Node, Node] = {}  # the last one
    last: Node | None = None
    for node in nodes:
        if node.op != "call_function":
            continue
        roots = dict.fromkeys(root_of(n) for n in node.all_input_nodes)
        for root in roots:
            if root in writers:
                after[node].append(writers[root])
        for root in _written_over(node):
            after[node] += readers[root]
            readers[root] = []
            writers[root] = node
        for root in roots:
            readers[root].append(node)
        if _has_effect(node):
            if last is not None:
                after[node].append(last)
            last = node
    return after


def _written_over(node: Node) -> Iterable[Node]:
    """Roots of the operands that an op mutates."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return (
            () if node.target is operator.getitem or node.target in DRAWS else _roots(node) if _has_effect(node) else ()
        )
    if not schema.is_mutable:
        return ()
    named = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
    mutated = [named.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [root_of(v) for v in tree_leaves((mutated,)) if isinstance(v, Node)]


def _roots(node: Node) -> list[Node]:
    return [root_of(n) for n in node.all_input_nodes]


def _has_effect(node: Node) -> bool:
    """Whether calls of an op must stay in order: it draws random numbers, mutates, or is none of aten's."""
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        return not (callable(target) and getattr(target, "__module__", "") in ("_operator", "math", "torch"))
    tags = getattr(target, "tags", ())
    return schema.is_mutable or torch.Tag.nondeterministic_seeded in tags or target.namespace not in ("aten", "prims")


def _levels(nodes: Sequence[Node], said: set[Node], after: Mapping[Node, list[Node]]) -> dict[Node, int]:
    """The level of each node, as low as can be; inputs are on level -1."""
    levels: dict[Node, int] = {}
    for node in nodes:
        level = 0 if node in said else -1
        for source in (*node.all_input_nodes, *after.get(node, ())):
            level = max(level, levels[source] + (node in said and source not in said))
        levels[node] = level
    return levels


def _sink(nodes: Sequence[Node], said: set[Node], levels: dict[Node, int], after: Mapping[Node, list[Node]]) -> None:
    """Moves nodes to the level of their readers, from the last one on, where that stores no more."""
    later: dict[Node, list[Node]] = defaultdict(list)
    for node, earlier in after.items():
        for source in earlier:
            later[source].append(node)
    stored: set[Node] = set()  # tensors that cross a level already
    for node in reversed(nodes):
        if node not in said or node.target is operator.getitem:
            continue
        highest = _level_of_readers(node, levels, later)
        if highest is not None and highest > levels[node]:
            moved, needed = _moved(node, highest, said, levels, later, stored)
            for other in moved:
                levels.update(dict.fromkeys((other, *_items(other)), highest))
            stored.update(needed)
        crossing = (n for n in (node, *_items(node)) if any(levels[u] != levels[n] or u not in said for u in n.users))
        stored.update(crossing)


def _items(node: Node) -> list[Node]:
    """The results of an op that has several, which stay with it."""
    return [u for u in node.users if u.target is operator.getitem]


def _level_of_readers(node: Node, levels: Mapping[Node, int], later: Mapping[Node, list[Node]]) -> int | None:
    items = _items(node)
    readers = [r for n in (node, *items) for r in (*n.users, *later.get(n, ())) if r not in items]
    return min((levels[r] for r in readers), default=None)


def _moved(
    node: Node,
    level: int,
    said: set[Node],
    levels: Mapping[Node, int],
    later: Mapping[Node, list[Node]],
    stored: set[Node],
) -> tuple[list[Node], list[Node]]:
    """(nodes to move to `level`, tensors that they then read from before it): the node, and where these would be more
    bytes than its own, what they are made of as well; nothing where that does not help within a few steps."""
    moved = [node]

    def needed() -> list[Node]:
        sources = dict.fromkeys(s for n in moved for s in n.all_input_nodes)
        return [s for s in sources if s in said and levels[s] < level and s not in stored and s not in moved]

    for _ in range(MOST_STEPS):
        read = needed()
        if sum(map(_bytes, read)) <= _bytes(node):
            return moved, read
        alone = [
            s
            for s in read
            if s.target is not operator.getitem
            and not later.get(s)
            and all(u in moved or levels[u] >= level for u in s.users)
        ]
        if not alone:
            break
        moved.append(max(alone, key=_bytes))
    return [], []


def _bytes(node: Node) -> int:
    """Bytes of a node's results, at the sizes that it was traced with."""
    tensors = [v for v in tree_leaves((node.meta.get("val"),)) if isinstance(v, torch.Tensor)]
    return sum(prod(map(hint, t.shape)) * t.element_size() for t in tensors)


def _groups(nodes: Sequence[Node], said: set[Node], levels: Mapping[Node, int], most: int) -> dict[Node, int]:
    """The number of each said node's group: a level, or a stretch of `most` nodes of one, in the graph's order."""
    numbers: dict[Node, int] = {}
    current: dict[int, tuple[int, int]] = {}  # level -> its last group, nodes in it
    count = 0
    for node in nodes:
        if node not in said:
            continue
        group, size = current.get(levels[node], (-1, most))
        if size >= most:
            group, size, count = count, 0, count + 1
        current[levels[node]] = group, size + 1
        numbers[node] = group
    return numbers


def _peel(graph: Graph, node: Node, groups: dict[Node, int]) -> None:
    """A view that leaves its group is made outside, of what it is a view of: a microsecond there, and no tensor of its
    own inside. Its readers were looked at before."""
    group = groups.get(node)
    if group is None:
        return
    outside = [u for u in node.users if groups.get(u) != group]
    if not outside:
        if not node.users:
            del groups[node]
        return
    if len(outside) == len(node.users):
        del groups[node]
        return
    with graph.inserting_after(node):
        copy = graph.node_copy(node, lambda n: n)
    leave = set(outside)
    node.replace_all_uses_with(copy, delete_user_cb=leave.__contains__)


def _assembled(module: GraphModule, graph: Graph, members: Mapping[int, list[Node]]) -> Partitioned:
    """The graph anew: groups as calls of submodules, everything in an order that keeps to the old one."""
    group_of = {node: group for group, found in members.items() for node in found}
    order = _order(list(graph.nodes), group_of)
    result = Graph()
    values: dict[Node, Any] = {}
    root: dict[str, Any] = {}
    names: list[str] = []
    for unit in order:
        if isinstance(unit, Node):
            values[unit] = result.node_copy(unit, values.__getitem__)
            if unit.op == "get_attr":
                root[str(unit.target)] = _attribute(module, str(unit.target))
            continue
        inner, inputs, outputs = _extracted(members[unit])
        if not outputs:  # which nobody reads
            continue
        name = f"{PREFIX}{len(names)}"
        names.append(name)
        root[name] = inner
        call = result.call_module(name, tuple(values[n] for n in inputs))
        call.meta["val"] = tuple(n.meta.get("val") for n in outputs)
        for i, node in enumerate(outputs):
            values[node] = result.call_function(operator.getitem, (call, i))
            values[node].meta = dict(node.meta)
    return Partitioned(GraphModule(root, result), tuple(names))


def _attribute(module: GraphModule, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _order(nodes: Sequence[Node], group_of: Mapping[Node, int]) -> list[Node | int]:
    """Single nodes and groups, each after what it needs, otherwise by the place of a group's last member."""
    after = _orders(nodes)
    unit_of: dict[Node, Node | int] = {n: group_of.get(n, n) for n in nodes}
    place: dict[Node | int, int] = {}
    for i, node in enumerate(nodes):
        place[unit_of[node]] = i
    waits: dict[Node | int, set[Node | int]] = {unit: set() for unit in place}
    readers: dict[Node | int, list[Node | int]] = defaultdict(list)
    for node in nodes:
        unit = unit_of[node]
        for source in (*node.all_input_nodes, *after.get(node, ())):
            other = unit_of[source]
            if other != unit and other not in waits[unit]:
                waits[unit].add(other)
                readers[other].append(unit)
    # Groups are as early as can be: their inputs go, and what they give may be waited for.
    ready = [(place[unit], i, unit) for i, unit in enumerate(place) if not waits[unit]]
    heapq.heapify(ready)
    missing = {unit: len(found) for unit, found in waits.items()}
    order: list[Node | int] = []
    count = len(place)
    while ready:
        unit = heapq.heappop(ready)[2]
        order.append(unit)
        for reader in readers[unit]:
            missing[reader] -= 1
            if not missing[reader]:
                count += 1
                heapq.heappush(ready, (place[reader], count, reader))
    if len(order) != len(place):
        raise AssertionError(f"groups wait for each other: {len(order)} of {len(place)} are in order")
    return order


def _extracted(members: Sequence[Node]) -> tuple[GraphModule, list[Node], list[Node]]:
    """A module of these nodes, the nodes that it reads, and those of its own that others read."""
    inside = set(members)
    inner = Graph()
    values: dict[Node, Node] = {}
    inputs = list(dict.fromkeys(s for n in members for s in n.all_input_nodes if s not in inside))
    for i, source in enumerate(inputs):
        values[source] = inner.placeholder(f"i{i}")
        values[source].meta = dict(source.meta)
    for node in members:
        values[node] = inner.node_copy(node, values.__getitem__)
    outputs = [n for n in members if any(u not in inside for u in n.users)]
    inner.output(tuple(values[n] for n in outputs))
    return GraphModule({}, inner), inputs, outputs
