"""The graph as the search sees it: simplified, and every output a tensor of its own that some kernel has to write."""

from collections.abc import Mapping
from dataclasses import dataclass

from fusion_ir.graph import Graph, OutputSpec
from fusion_ir.layout import normal_strides
from fusion_ir.node import Node
from fusion_ir.ops import make
from fusion_ir.records import NUMERICS, Numerics, Ref
from scheduler.rewrites import RULES, simplify
from scheduler.rewrites.split import Tasks, splitting


@dataclass(frozen=True)
class Prepared:
    """`graph`: the inputs of the graph given, outputs that are neither inputs nor equal to each other.

    slots:    position, among the outputs given, of each output of `graph`.
    aliases:  outputs given that are an input or another output as it is: (position, what it equals).
    origin:   for each node of `graph`, positions in `given.nodes` of the nodes that it stands for.
    rewrites: names of the rules that matched.
    numerics: the loosest class of these.
    """

    given: Graph
    graph: Graph
    slots: tuple[int, ...]
    aliases: tuple[tuple[int, Ref], ...]
    origin: Mapping[Node, tuple[int, ...]]
    rewrites: tuple[str, ...]
    numerics: Numerics


def prepare(graph: Graph, tasks: Tasks | None = None, numerics: Numerics = "reassociate") -> Prepared:
    """Simplifies, splits reductions among `tasks` (None: none is), and resolves outputs that need no work, by rules of
    class `numerics` or a stricter one.

    An output that repeats an input or another output in the same layout is an alias; in another layout it becomes a
    copy, written as a reshape to the same shape:

        out0: %5, out1: %5, out2: %5 strides [1, 8]  ->  out0: %5, out2: reshape(%5) strides [1, 8]; out1 = out0
    """
    rules = (*RULES, *splitting(tasks.among(graph))) if tasks else RULES
    simplified = simplify(graph, [rule for rule in rules if rule.looseness <= NUMERICS.index(numerics)])
    origin: dict[Node, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        origin.setdefault(simplified.image[node], []).append(position)
    outputs: list[OutputSpec] = []
    slots: list[int] = []
    aliases: list[tuple[int, Ref]] = []
    places: dict[tuple[Node, tuple[int, ...]], Ref] = {}
    for slot, output in enumerate(graph.outputs):
        value = node = simplified.image[output.node]
        strides = normal_strides(node.sizes, output.strides)
        if node.op == "input":
            position = node.attr("position", int)
            given = normal_strides(node.sizes, graph.inputs[position].strides)
            places.setdefault((node, given), Ref(place="in", index=position))
        known = places.get((value, strides))
        if known is not None:
            aliases.append((slot, known))
            continue
        places[value, strides] = Ref(place="out", index=slot)
        while node.op == "input" or any(o.node is node for o in outputs):
            node = make("reshape", [node], {"shape": node.shape})
        origin.setdefault(node, list(origin[value]))
        outputs.append(OutputSpec(node, strides, output.donates))
        slots.append(slot)
    return Prepared(
        graph,
        Graph(graph.inputs, tuple(outputs)),
        tuple(slots),
        tuple(aliases),
        {n: tuple(p) for n, p in origin.items()},
        tuple(rule.name for rule in simplified.rules),
        NUMERICS[max((rule.looseness for rule in simplified.rules), default=0)],
    )
