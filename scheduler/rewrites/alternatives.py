"""Other ways to produce the tensors of a graph: nodes of equal value beside those given, for the search to choose from.

    %3 = contract(%1, %2)       one producer of the tensor %4
    %4 = contract(%3, w)
    %5 = contract(%2, w)        needed by the other one alone
    %6 = contract(%1, %5)       the other producer of %4

A tensor is known by the node that stands for it: the one of the graph as given. Whoever reads it may read what any of
its producers wrote. A producer that needs, by whatever way, the tensor that it would produce is left out: then no
choice of producers closes a cycle.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops.contract import products
from fusion_ir.ops.value_preserving import is_free
from fusion_ir.records import NUMERICS, Numerics, Reason
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.reachability import Reachability
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules import RULES
from scheduler.rewrites.simplify import simplify

MOST_EACH = 6  # of one tensor
MOST = 600  # of a graph
MOST_NODES = 2_000  # of a graph: beyond, they take the search longer than they are worth
MOST_NODES_AGAIN = 150  # of one whose alternatives get alternatives
MOST_WORK = 8  # times the multiplications that it makes needless: what takes more is not looked at


@dataclass(frozen=True)
class Alternatives:
    """Producers that the rules offer for tensors of `graph`. producers: by tensor, those other than its own node.
    found_by: by such producer, the rule that gave it. through: by producer that is another way to an offered producer,
    the rules that had given that one."""

    graph: Graph
    producers: Mapping[Node, tuple[Node, ...]] = field(default_factory=dict[Node, tuple[Node, ...]])
    found_by: Mapping[Node, Alternative] = field(default_factory=dict[Node, Alternative])
    through: Mapping[Node, tuple[Alternative, ...]] = field(default_factory=dict[Node, tuple[Alternative, ...]])
    reasons: tuple[Reason, ...] = ()

    def rules_of(self, node: Node) -> tuple[Alternative, ...]:
        """The rules by which a producer came to be one, in order; () for the graph's own nodes."""
        return (*self.through.get(node, ()), self.found_by[node]) if node in self.found_by else ()

    @cached_property
    def stands_for(self) -> Mapping[Node, Node]:
        """By producer that the rules offer, its tensor."""
        return {p: tensor for tensor, producers in self.producers.items() for p in producers}

    def tensor(self, node: Node) -> Node:
        """The tensor that the node produces, as the node that stands for it."""
        return self.stands_for.get(node, node)

    @cached_property
    def added(self) -> tuple[Node, ...]:
        """Nodes that are not in the graph, operands first."""
        return tuple(n for n in _with_producers(self.graph, self.stands_for).nodes if n not in self.givens)

    @cached_property
    def givens(self) -> frozenset[Node]:
        """Nodes of the graph."""
        return frozenset(self.graph.nodes)

    @cached_property
    def serves(self) -> Mapping[Node, Node]:
        """By added node, a tensor of the graph that it is there for."""
        found: dict[Node, Node] = {}
        for tensor, producers in self.producers.items():  # those of the graph come before those that they added
            stack = list(producers)
            while stack:
                node = stack.pop()
                if node not in self.givens and node not in found:
                    found[node] = found.get(tensor, tensor)
                    stack.extend(node.args)
        return found

    @cached_property
    def folded(self) -> frozenset[Node]:
        """Added nodes that depend on constants alone, while something that reads them does not."""
        if not self.producers:
            return frozenset()
        whole = _with_producers(self.graph, self.stands_for)
        is_constant = GraphQueries(whole).is_constant
        read = {a for n in whole.nodes if not is_constant(n) for a in n.args} | self.stands_for.keys()
        return frozenset(n for n in self.added if n in read and is_constant(n))


def find_alternatives(
    graph: Graph, offers: Sequence[Alternative], numerics: Numerics, is_late: Callable[[], bool] = lambda: False
) -> Alternatives:
    """Alternatives for the nodes of a simplified graph by those of `offers` that are of class `numerics` or a stricter
    one; then for the nodes that each alternative adds, seen as if there were no other way to its tensor. is_late: asked
    often; once it is true, no more are sought."""
    allowed = [o for o in offers if o.looseness <= NUMERICS.index(numerics)]
    if not allowed:
        return Alternatives(graph)
    if len(graph.nodes) > MOST_NODES:
        text = f"alternatives are sought in graphs of up to {MOST_NODES} nodes, this one has {len(graph.nodes)}"
        return Alternatives(graph, reasons=(Reason(kind="cap", text=text),))
    search = _Search(graph, is_late)
    search.add(graph.nodes, GraphQueries(graph), allowed)
    if len(graph.nodes) <= MOST_NODES_AGAIN:
        for producer in list(search.stands_for):
            if is_late():
                break
            alone = GraphQueries(Graph(graph.inputs, (OutputSpec(producer, dense_strides(producer.sizes)),)))
            search.add([n for n in alone.graph.nodes if n not in search.given], alone, allowed)
    else:
        search.limits.append(f"alternatives of alternatives are sought in graphs of up to {MOST_NODES_AGAIN} nodes")
    if is_late():
        search.limits.append("alternatives: no more were sought when their share of the budget was spent")
    return search.found()


class _Search:
    def __init__(self, graph: Graph, is_late: Callable[[], bool]) -> None:
        self.graph = graph
        self._is_late = is_late
        self.given = frozenset(graph.nodes)
        self.producers: dict[Node, list[Node]] = {}
        self.stands_for: dict[Node, Node] = {}
        self.found_by: dict[Node, Alternative] = {}
        self.through: dict[Node, tuple[Alternative, ...]] = {}
        self._within: dict[Node, list[tuple[Node, Node]]] = {}  # tensors and their producers that an added node is for
        self._reach = Reachability(graph.nodes)
        self.left_out = 0
        self.too_much = 0
        self.limits: list[str] = []

    def add(self, nodes: Iterable[Node], around: GraphQueries, offers: Sequence[Alternative]) -> None:
        """Takes in the producers that rules offer for these nodes."""
        offered: list[tuple[Node, Node, Alternative]] = []
        for node in nodes:
            if self._is_late():
                break
            offered += [(node, other, offer) for offer in offers for other in offer.of(node, around)]
        image = simplify(_with_producers(around.graph, [other for _, other, _ in offered]), RULES).image
        for node, other, offer in offered:
            if _work(image[other], around) > MOST_WORK * _saved(node, around):
                self.too_much += 1
                continue
            for own, producer in _stored(node, image[other], around):
                self._take(own, producer, offer)
            if self._is_late():
                break

    def _take(self, node: Node, producer: Node, offer: Alternative) -> None:
        """Adds a producer to those of the node's tensor, unless it is known, closes a cycle, or is one too many."""
        tensor = self.stands_for.get(node, node)
        if producer is tensor or producer in self.stands_for or producer in self.producers or producer.op == "input":
            return
        if producer in self.given or self._needs(producer.args, tensor):
            return
        # What has the producer inside will read the tensor.
        self.stands_for[producer] = tensor
        closes = any(self._needs(p.args, t) for t, p in self._within.get(producer, ()))
        del self.stands_for[producer]
        if closes:
            return
        own = self.producers.setdefault(tensor, [])
        if len(own) >= MOST_EACH or len(self.stands_for) >= MOST:
            self.left_out += 1
            return
        own.append(producer)
        self.stands_for[producer] = tensor
        self.found_by[producer] = offer
        if node in self.found_by:
            self.through[producer] = (*self.through.get(node, ()), self.found_by[node])
        inside, stack = set[Node](), [producer]
        while stack:
            node = stack.pop()
            if node not in inside:
                inside.add(node)
                if node not in self.given:
                    self._within.setdefault(node, []).append((tensor, producer))
                    stack += node.args
        self._reach.add(tensor, inside & self.given)

    def _needs(self, nodes: Sequence[Node], tensor: Node) -> bool:
        """Whether some way to produce these nodes' tensors needs the tensor given."""
        seen: set[Node] = set()
        stack = list(nodes)
        while stack:
            node = stack.pop()
            node = self.stands_for.get(node, node)
            if node is tensor:
                return True
            if node not in seen and not self._reach.is_out_of(node, tensor):
                seen.add(node)
                stack += node.args
                for other in self.producers.get(node, ()):
                    stack += other.args
        return False

    def found(self) -> Alternatives:
        """All alternatives, built over the nodes that stand for tensors: an operand that became another producer of a
        tensor is replaced by the tensor, which only this search knows."""
        normal: dict[Node, Node] = {}
        for node in _with_producers(self.graph, self.stands_for).nodes:
            same = node.over(tuple([self.stands_for.get(a, normal[a]) for a in node.args]))
            normal[node] = same
        limits = (
            (self.left_out, f"beyond {MOST_EACH} of a tensor or {MOST} in all"),
            (self.too_much, f"that take over {MOST_WORK} times the multiplications"),
        )
        texts = [f"alternatives: kept {len(self.stands_for)}, left out {n} {why}" for n, why in limits if n]
        texts += self.limits if self.stands_for else []
        reasons = tuple(Reason(kind="cap", text=text) for text in texts)
        producers: dict[Node, tuple[Node, ...]] = {}
        taken: set[Node] = set(self.given)
        for tensor, found in self.producers.items():
            own = [p for p in dict.fromkeys(normal[p] for p in found) if p not in taken and p is not normal[tensor]]
            taken.update(own)
            if own:
                producers[normal[tensor]] = tuple(own)
        found_by = {normal[p]: by for p, by in self.found_by.items() if normal[p] in taken}
        through = {normal[p]: rules for p, rules in self.through.items() if normal[p] in found_by}
        return Alternatives(self.graph, producers, found_by, through, reasons)


def _stored(node: Node, other: Node, around: GraphQueries) -> Iterator[tuple[Node, Node]]:
    """The node and its other producer; where nobody stores the node, each stored node made of it, and another producer
    of that one.

    %1 = permute(%0); %2 = exp(%1)       another way to %1 gives another way to %2
    """
    if not is_free(node) or around.is_output(node):
        yield node, other
    if is_free(node):
        for reader in around.readers(node):
            again = reader.over(tuple([other if a is node else a for a in reader.args]))
            yield from _stored(reader, again, around)


def _work(producer: Node, around: GraphQueries) -> int:
    """Multiplications that a producer adds to every run."""
    added: set[Node] = set()
    stack = [producer]
    while stack:
        node = stack.pop()
        if node not in added and node not in around.places and node.op != "input":
            added.add(node)
            stack.extend(node.args)
    return sum(_multiplications(n) for n in added if not around.is_constant(n))


def _saved(tensor: Node, around: GraphQueries) -> int:
    """Multiplications of what nothing but this tensor needs."""
    alone: set[Node] = set()
    stack = [tensor]
    while stack:
        node = stack.pop()
        alone.add(node)
        for a in node.args:
            if a not in alone and not around.is_output(a) and alone.issuperset(around.readers(a)):
                stack.append(a)
    return sum(_multiplications(n) for n in alone if not around.is_constant(n))


def _multiplications(node: Node) -> int:
    return node.elements * products(node) if node.op == "contract" else 0


def _with_producers(graph: Graph, nodes: Iterable[Node]) -> Graph:
    """The graph with these nodes as further outputs."""
    more: Iterator[OutputSpec] = (OutputSpec(n, dense_strides(n.sizes)) for n in dict.fromkeys(nodes))
    return Graph(graph.inputs, (*graph.outputs, *more))
