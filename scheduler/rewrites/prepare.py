"""The graph as the search sees it: simplified, and every output a tensor of its own that some kernel has to write."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.layout import normal_strides
from fusion_ir.core.node import Node
from fusion_ir.ops import make
from fusion_ir.records import NUMERICS, Numerics, Ref
from scheduler.rewrites.alternatives import Alternatives, find_alternatives
from scheduler.rewrites.rule import Alternative, Rule
from scheduler.rewrites.rules import RULES
from scheduler.rewrites.rules.identities import commuting
from scheduler.rewrites.rules.matrix_axes import AxesInOrder, Takes
from scheduler.rewrites.rules.narrow_operands import NARROW
from scheduler.rewrites.rules.slice_pushdown import Sinking
from scheduler.rewrites.rules.split_halves import Halves, halves
from scheduler.rewrites.rules.split_reduction import CONTRACTION, Tasks, split_offers, splitting
from scheduler.rewrites.simplify import simplify

MOST_PASSES = 8  # of slices that sink behind one another


@dataclass(frozen=True)
class Prepared:
    """`graph`: the inputs of the graph given, outputs that are neither inputs nor equal to each other.

    slots:    position, among the outputs given, of each output of `graph`.
    aliases:  outputs given that are an input or another output as it is: (position, what it equals).
    origin:   for each node of `graph`, positions in `given.nodes` of the nodes that it stands for.
    rewrites: names of the rules that matched.
    numerics: the loosest class of these.
    alternatives: other producers of the tensors of `graph`.
    tensors:  for each node of `graph` that is a tensor of the graph given, positions of all nodes that it equals.
    halves:   by position of a node given, the halves that it was split into.
    """

    given: Graph
    graph: Graph
    slots: tuple[int, ...]
    aliases: tuple[tuple[int, Ref], ...]
    origin: Mapping[Node, tuple[int, ...]]
    rewrites: tuple[str, ...]
    numerics: Numerics
    alternatives: Alternatives
    tensors: Mapping[Node, tuple[int, ...]] = field(default_factory=dict[Node, tuple[int, ...]])
    halves: Mapping[int, tuple[Halves, ...]] = field(default_factory=dict[int, tuple[Halves, ...]])


def prepare(
    graph: Graph,
    tasks: Tasks | None = None,
    numerics: Numerics = "reassociate",
    offers: Sequence[Alternative] = (),
    takes: Takes | None = None,
    is_late: Callable[[], bool] = lambda: False,
) -> Prepared:
    """Simplifies, lets slices sink, orders axes of contractions that no family `takes` (None: of none), splits
    reductions among `tasks` (None: none is), resolves outputs that need no work, and finds alternatives by `offers`
    and, where there are any, by what may be split among the tasks; all by rules of class `numerics` or a stricter one.
    is_late: asked often; from when it says so on, no more is rewritten, and no more alternatives are sought.

    An output that repeats an input or another output in the same layout is an alias; in another layout it becomes a
    copy, written as a reshape to the same shape:

        out0: %5, out1: %5, out2: %5 strides [1, 8]  ->  out0: %5, out2: reshape(%5) strides [1, 8]; out1 = out0
    """
    rewritten = _rewritten(graph, tasks, numerics, takes, is_late)
    origin: dict[Node, list[int]] = {}
    tensors: dict[Node, list[int]] = {}
    for node, position, is_whole in rewritten.stands:
        for found in (origin, tensors) if is_whole else (origin,):
            if position not in found.setdefault(node, []):
                found[node].append(position)
    outputs: list[OutputSpec] = []
    slots: list[int] = []
    aliases: list[tuple[int, Ref]] = []
    places: dict[tuple[Node, tuple[int, ...]], Ref] = {}
    for slot, output in enumerate(graph.outputs):
        value = node = rewritten.image[output.node]
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
        tensors.setdefault(node, list(tensors.get(value, ())))
        outputs.append(OutputSpec(node, strides, output.donates))
        slots.append(slot)
    prepared = Graph(graph.inputs, tuple(outputs))
    if offers and tasks:
        offers = (*offers, *split_offers(tasks))
    alternatives = find_alternatives(prepared, offers, numerics, is_late)
    for node, tensor in alternatives.serves.items():
        origin.setdefault(node, origin.get(tensor, []))
    split = dict(rewritten.halves)
    for producer, tensor in alternatives.stands_for.items():
        if alternatives.found_by[producer].name == CONTRACTION[0]:
            found = halves(tensor, producer, alternatives.givens)
            if found is not None:
                split |= {p: (*split.get(p, ()), found) for p in tensors.get(tensor, ())}
    return Prepared(
        graph,
        prepared,
        tuple(slots),
        tuple(aliases),
        {n: tuple(p) for n, p in origin.items()},
        tuple(rule.name for rule in rewritten.rules),
        NUMERICS[max((rule.looseness for rule in rewritten.rules), default=0)],
        alternatives,
        {n: tuple(p) for n, p in tensors.items()},
        split,
    )


class _Rewriting:
    """A graph on its way through several passes of rules. image: what became of each output. stands: nodes, with the
    positions of those given that they stand for, and whether as a whole. halves: what nodes given were split into.
    rules: those that matched."""

    def __init__(self, graph: Graph, allowed: int) -> None:
        self.graph, self._allowed = graph, allowed
        self.image = {o.node: o.node for o in graph.outputs}
        self.stands = [(node, position, True) for position, node in enumerate(graph.nodes)]
        self.halves: dict[int, tuple[Halves, ...]] = {}
        self.rules: tuple[Rule, ...] = ()

    def apply(self, rules: Sequence[Rule], made: Mapping[Node, Node], *, splits: bool = False) -> bool:
        """Applies rules in one pass. made: by node that they made of a part of another, that other node. splits:
        whether they cut reductions. Returns whether any matched."""
        allowed = [rule for rule in rules if rule.looseness <= self._allowed]
        found = simplify(self.graph, allowed)
        if not found.rules:
            return False
        self.image = {given: found.image[node] for given, node in self.image.items()}
        of = {node: position for node, position, _ in self.stands}
        if splits:
            self._note_halves(found.image)
        self.stands = [(found.image.get(node, node), position, whole) for node, position, whole in self.stands]
        self.stands += [(part, of[whole], False) for part, whole in made.items() if whole in of]
        outputs = tuple(replace(o, node=found.image[o.node]) for o in self.graph.outputs)
        self.graph = Graph(self.graph.inputs, outputs)
        self.rules = tuple(dict.fromkeys((*self.rules, *found.rules)))
        return True

    def _note_halves(self, image: Mapping[Node, Node]) -> None:
        """Notes the halves into which a pass split nodes that are whole given ones: each half stands for one too."""
        known = {*image, *image.values()}
        for node, position, is_whole in list(self.stands):
            new = image.get(node, node)
            found = halves(node, new, known) if is_whole and new is not node else None
            if found is not None:
                self.halves[position] = (found,)
                self.stands += [(made, position, False) for made in (*found.first, *found.second) if made is not new]


def _rewritten(
    graph: Graph, tasks: Tasks | None, numerics: Numerics, takes: Takes | None, is_late: Callable[[], bool]
) -> _Rewriting:
    """The graph after all passes: it is simplified, then slices sink, then axes are ordered, then reductions are split
    that slices left."""
    rewriting = _Rewriting(graph, NUMERICS.index(numerics))
    rewriting.apply((*RULES, commuting(), NARROW), {})
    for _ in range(MOST_PASSES):
        if is_late():
            break
        sinking = Sinking(rewriting.graph)
        if not rewriting.apply((*RULES, *sinking.rules()), sinking.made):
            break
    if takes:
        ordering = AxesInOrder(takes)
        rewriting.apply((*RULES, ordering.rule()), ordering.made)
    if tasks and not is_late():
        rewriting.apply((*RULES, *splitting(tasks.among(rewriting.graph))), {}, splits=True)
    return rewriting
