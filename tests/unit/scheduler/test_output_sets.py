"""Pieces of graphs with alternatives: whatever covers they are put together to, the outputs are the graph's own."""

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import interpret
from scheduler.bitset import bits
from scheduler.rewrites.alternatives import find_alternatives
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rule import Alternative
from scheduler.segments.atoms import Atoms, atoms_of
from scheduler.segments.enumeration import Candidates
from scheduler.segments.output_sets import computing_again, pieces_of
from scheduler.segments.segment_mask import SegmentMask
from testing.random_graphs import Seeded, any_graph
from tests.support.whole import WHOLE, some
from tests.unit.scheduler.alternative_graphs import OFFERS, random_cover, searched
from tests.unit.scheduler.fakes import random_inputs, same_bits


def run(atoms: Atoms, found: Candidates, cover: list[SegmentMask], inputs: list[np.ndarray]) -> list[np.ndarray]:
    values = {n: inputs[n.attr("position", int)] for n in atoms.tensors if n.op == "input"}
    for piece in cover:
        segment = found.accepted[piece].segment
        reads, writes = segment.arguments
        results = interpret(segment.canonical.graph, [values[n] for n in reads])
        values.update(zip(writes, results, strict=True))
    return [values[o.node] for o in atoms.graph.outputs]


@pytest.mark.soak
def test_whatever_cover_is_chosen_it_computes_the_graph() -> None:
    runs = again = others = cyclic = 0
    for seed in some(range(80), 14):
        rng = random.Random(seed)
        atoms, found = searched(prepare(any_graph(Seeded(seed), steps=10), offers=OFFERS))
        inputs = random_inputs(atoms.graph, seed)
        expected = interpret(atoms.graph, inputs)
        for _ in range(6):
            cover = random_cover(atoms, found, rng)
            if cover is None:
                cyclic += 1
                continue
            runs += 1
            members = [a for piece in cover for a in bits(piece.members)]
            again += len(members) > len(set(members))
            others += any(a >= atoms.given for a in members)
            for got, value in zip(run(atoms, found, cover, inputs), expected, strict=True):
                assert same_bits(got, value), seed
    assert runs > (200 if WHOLE else 30)
    assert again > (50 if WHOLE else 0), "some compute a tensor twice"
    assert others > (50 if WHOLE else 0), "some by an alternative"
    assert cyclic or not WHOLE, "not everything goes together"


SPEC = InputSpec(shape_of((4, 8)), f32, (8, 1))
X, Y = make_input(0, SPEC), make_input(1, SPEC)


def graph_of(*outputs: Node) -> Graph:
    return Graph((SPEC, SPEC), tuple(OutputSpec(o, dense_strides(o.sizes)) for o in outputs))


def place(atoms: Atoms, node: Node) -> int:
    return atoms.nodes.index(node)


def test_a_producer_that_needs_its_own_tensor_is_left_out() -> None:
    """a = neg b, b = neg a: either may stand for the other, not both."""
    one = make("exp", [X])
    other = make("mul", [one, Y])

    def each_other(node: Node, _: GraphQueries) -> Iterator[Node]:
        if node is one:
            yield make("div", [other, Y])
        if node is other:
            yield make("mul", [Y, one])

    found = find_alternatives(graph_of(other), (Alternative("each-other", "", "exact", each_other),), "exact")
    assert list(found.producers) == [other], "exp x cannot come of what it is needed for"
    assert found.tensor(make("mul", [Y, one])) is other


def test_looser_offers_are_not_asked() -> None:
    offer = replace(OFFERS[1], numerics="reassociate")
    graph = graph_of(make("add", [X, Y]))
    assert not find_alternatives(graph, (offer,), "exact").producers
    assert find_alternatives(graph, (offer,), "reassociate").producers


def test_what_no_longer_has_a_use_need_not_be_written() -> None:
    """(x + y) - z, offered as x - (z - y): with that, nobody needs x + y."""
    total = make("add", [X, Y])
    last = make("sub", [total, make("exp", [Y])])
    other = make("sub", [X, make("sub", [make("exp", [Y]), Y])])

    def sooner(node: Node, _: GraphQueries) -> Iterator[Node]:
        if node is last:
            yield other

    atoms, _ = searched(
        prepare(graph_of(last, make("neg", [total])), offers=(Alternative("sooner", "", "exact", sooner),))
    )
    members = 1 << place(atoms, total) | 1 << place(atoms, make("neg", [total]))
    assert {p.writes for p in pieces_of(atoms, members)} == {members}, "last may still want it"
    with_other = members | 1 << place(atoms, other)
    kept, dropped = pieces_of(atoms, with_other)
    assert kept.writes & ~dropped.writes == 1 << place(atoms, total)


def test_an_exponential_that_is_summed_and_divided_by_its_sum_is_never_written() -> None:
    e = make("exp", [X])
    total = make("sum", [e], {"axes": (1,)})
    graph = graph_of(build.div(e, build.broadcast_in_dim(total, (4, 8), [0])))
    atoms = atoms_of(graph)
    [div] = [1 << a for a in bits(atoms.outputs)]
    both = SegmentMask(1 << place(atoms, e) | div, div)
    assert list(computing_again(atoms, SegmentMask(div, div))) == [both]
    assert not atoms.is_convex(both.members)
    assert atoms.is_possible(both)
    assert not atoms.is_possible(atoms.piece(both.members)), "it would wait for the sum of what it writes"


def test_what_is_dear_to_read_again_is_not_computed_again() -> None:
    wide = make("add", [build.exp(X), build.mul(X, build.add(Y, 1.0))])
    graph = graph_of(make("neg", [wide]), make("exp", [wide]))
    atoms = atoms_of(graph)
    reader = 1 << place(atoms, make("neg", [wide]))
    assert not list(computing_again(atoms, SegmentMask(reader, reader)))
