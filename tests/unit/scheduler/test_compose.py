"""Steps back to graphs: what was assembled is composed again, node for node; what does not fit is named."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from codegen.families import FAMILIES
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.errors import FormatError
from fusion_ir.keys.graph_key import canonical_segment
from fusion_ir.ops import make, make_input
from fusion_ir.records import Plan, Ref, Search
from fusion_ir.text.printing import parse_graph, print_graph
from scheduler.bitset import bits
from scheduler.cost.model import CostModel
from scheduler.cost.traffic import traffic_of
from scheduler.plans import compose as composing
from scheduler.plans.assemble import Choice, assemble
from scheduler.plans.compose import StepGraph, compose
from scheduler.rewrites.prepare import Prepared, prepare
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.segments.atoms import atoms_of
from scheduler.segments.segment import Segment, extract
from testing.random_graphs import Seeded, any_graph
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.kernels import dense, graph_of
from tests.support.products import einsum_graph
from tests.support.small_graphs import random_graph
from tests.support.whole import WHOLE, some
from tests.unit.scheduler.alternative_graphs import OFFERS, random_cover, searched


def ref(text: str) -> Ref:
    place = text.rstrip("0123456789")
    return Ref.model_validate({"place": place, "index": int(text[len(place) :])})


def steps_of(prepared: Prepared) -> list[StepGraph]:
    """Every atom a step."""
    atoms = atoms_of(prepared.graph)
    return steps_from(prepared, [extract(atoms, atoms.piece(1 << a)) for a in range(len(atoms))])


def steps_from(prepared: Prepared, segments: Sequence[Segment]) -> list[StepGraph]:
    """Every segment a step, by way of its text, its tensors by number."""
    places = {
        o.node: Ref(place="out", index=slot) for o, slot in zip(prepared.graph.outputs, prepared.slots, strict=True)
    }
    steps: list[StepGraph] = []
    count = 0
    for segment in segments:
        reads, writes = segment.arguments
        for node in writes:
            if node not in places:
                places[node], count = Ref(place="tmp", index=count), count + 1

        def place(node: Node) -> Ref:
            return Ref(place="in", index=node.attr("position", int)) if node.op == "input" else places[node]

        graph = parse_graph(print_graph(segment.canonical.graph)).graph
        steps.append(StepGraph(graph, tuple(map(place, reads)), tuple(map(place, writes))))
    return steps


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_come_back(seed: int) -> None:
    """Recognised as what the rewrites made: so the same nodes, slots and aliases."""
    given = random_graph(seed, 10)
    prepared = prepare(given, composing.split_tasks(CPU_DEVICE), offers=ALTERNATIVES)
    composed = compose(given, steps_of(prepared), prepared.aliases, CPU_DEVICE, "reassociate")
    assert composed.recognised
    assert [o.node for o in composed.prepared.graph.outputs] == [o.node for o in prepared.graph.outputs]
    assert composed.prepared.origin == prepared.origin


def test_contractions_whose_axes_were_put_in_order_come_back() -> None:
    given = einsum_graph("mkz", "knz", "mnz", {"z": 4, "m": 128, "k": 64, "n": 128})
    prepared = prepare(given, composing.split_tasks(CPU_DEVICE), takes=CostModel(CPU_DEVICE, FAMILIES).acceptor.shares)
    assert prepared.rewrites == ("axes-in-order",)
    composed = compose(given, steps_of(prepared), prepared.aliases, CPU_DEVICE, "exact")
    assert composed.recognised
    assert composed.prepared.origin == prepared.origin


@pytest.mark.soak
def test_covers_with_alternatives_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The segments of a random cover, whichever alternatives they hold, compose to the graph that they are made for.
    Of 60 covers 13 hold any."""
    monkeypatch.setattr(composing, "ALTERNATIVES", OFFERS)
    others = 0
    for seed in some(range(60), 15):
        given, rng = any_graph(Seeded(seed), steps=10), random.Random(seed)
        prepared = prepare(given, composing.split_tasks(CPU_DEVICE), offers=OFFERS)
        atoms, found = searched(prepared)
        cover = random_cover(atoms, found, rng)
        if cover is None or sum(p.writes.bit_count() for p in cover) > len({t for p in cover for t in bits(p.writes)}):
            continue  # a plan writes each tensor once
        segments = [found.accepted[p].segment for p in cover]
        composed = compose(given, steps_from(prepared, segments), prepared.aliases, CPU_DEVICE, "reassociate")
        assert composed.recognised, seed
        assert [o.node for o in composed.prepared.graph.outputs] == [o.node for o in prepared.graph.outputs]
        for one, other in zip(composed.segments, segments, strict=True):
            assert set(one.cone) == set(other.cone), seed
            others += any(n in prepared.alternatives.found_by for n in one.cone)
    assert others > 10 or not WHOLE


def test_equal_kernels_make_equal_plans_however_segments_list_their_tensors() -> None:
    """A searched segment lists them as the graph does, a composed one as the kernel does."""
    x = make_input(0, spec := dense(64, 64))
    one, other = (make(op, [x]) for op in ("exp", "neg"))
    prepared = prepare(graph_of((spec,), make("mul", [one, other])))
    atoms = atoms_of(prepared.graph)
    two = sum(1 << a for a, node in enumerate(atoms.nodes) if node.op in ("exp", "neg"))
    first, second = extract(atoms, atoms.piece(two)), extract(atoms, atoms.piece((1 << len(atoms)) - 1 - two))
    turned = replace(first, writes=first.writes[::-1], graph=replace(first.graph, outputs=first.graph.outputs[::-1]))
    family, made = FAMILIES["pointwise"], list[Plan]()
    for segments in ((first, second), (turned, second)):
        graphs = [s.canonical.graph for s in segments]
        kernels = [family.emit(g, family.space(g, CPU_DEVICE)[0], CPU_DEVICE) for g in graphs]
        choices = [Choice(s, traffic_of(s.graph), k, None, None) for s, k in zip(segments, kernels, strict=True)]
        search = Search(seconds=0.0, candidates=0, measured=0, complete=False, seed=0)
        made.append(assemble(prepared, CPU_DEVICE, choices, search))
    assert len(made[0].buffers) == 2
    assert made[0] == made[1]


SPEC = dense(64, 64)
X = make_input(0, SPEC)
EXP = make("exp", [X])
CHAIN = graph_of((SPEC,), make("neg", [EXP]))
FIRST, SECOND = (canonical_segment(graph_of((dense(64, 64),), make(op, [X]))).graph for op in ("exp", "neg"))
STEPS = [StepGraph(FIRST, (ref("in0"),), (ref("tmp0"),)), StepGraph(SECOND, (ref("tmp0"),), (ref("out0"),))]


def with_step(k: int, **changes: object) -> Callable[[list[StepGraph]], list[StepGraph]]:
    return lambda steps: [replace(s, **changes) if i == k else s for i, s in enumerate(steps)]  # pyright: ignore


def test_two_steps() -> None:
    composed = compose(CHAIN, STEPS, (), CUDA_DEVICE, "exact")
    assert composed.recognised
    assert [s.writes for s in composed.segments] == [(EXP,), (CHAIN.outputs[0].node,)]
    assert composed.prepared.graph.outputs[0].node is CHAIN.outputs[0].node


STRIDED = dense(64, 64, strides=(1, 64))
ALIGNED = Graph((replace(SPEC, alignment_bytes=128),), (OutputSpec(EXP, dense_strides((64, 64))),))
MISFITS: dict[str, tuple[Callable[[list[StepGraph]], list[StepGraph]], str]] = {
    "too few reads": (with_step(0, reads=()), "/steps/0/reads: expected 1 tensors, as the segment has, got 0"),
    "too many writes": (with_step(1, writes=(ref("out0"),) * 2), "/steps/1/writes: expected 1"),
    "not written yet": (lambda s: s[::-1], "/steps/0/reads/0: expected an input, or a tensor that an earlier step"),
    "other shape": (
        with_step(1, graph=graph_of((dense(64, 32),), make("neg", [make_input(0, dense(64, 32))]))),
        r"/steps/1/reads/0: expected f32\[64, 32\].*got tmp0, which is f32\[64, 64\]",
    ),
    "other layout": (
        with_step(1, graph=graph_of((STRIDED,), make("neg", [make_input(0, STRIDED)]))),
        r"/steps/1/reads/0: expected .* strides \[1, 64\], as the segment reads, got tmp0",
    ),
    "more alignment": (with_step(0, graph=ALIGNED), "expected alignment of 128 bytes, got in0 with 16"),
    "written twice": (with_step(1, writes=(ref("tmp0"),)), "/steps/1/writes/0: expected a place that is not written"),
    "an input": (with_step(0, writes=(ref("in0"),)), "/steps/0/writes/0: expected one of 1 outputs or a temporary"),
    "no such output": (with_step(1, writes=(ref("out1"),)), "/steps/1/writes/0: expected one of 1 outputs"),
    "output missing": (lambda s: s[:1], "/steps: expected a step that writes out0, got none"),
    "computed twice": (lambda s: [s[0], replace(s[0], writes=(ref("tmp1"),)), s[1]], "/steps/1/writes/0: .*there yet"),
    "a copy": (
        with_step(0, graph=graph_of((SPEC,), X)),
        "/steps/0/writes/0: expected a tensor that is not there yet, got an input",
    ),
    "other graph, exactly": (with_step(1, graph=FIRST), "/steps: expected what exact rewrites of this version make"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_misfits(name: str) -> None:
    change, message = MISFITS[name]
    with pytest.raises(FormatError, match=message):
        compose(CHAIN, change(STEPS), (), CUDA_DEVICE, "exact")


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ([(1, "in0"), (1, "out0")], "/aliases/1: expected an output that no step writes, once, got out1"),
        ([(0, "in0")], "/aliases/0: expected an output that no step writes"),
        ([(2, "in0")], "/aliases/0: expected an output that no step writes, once, got out2"),
        ([(-1, "in0")], "/aliases/0: expected an output"),
        ([(1, "tmp0")], "/aliases/0: expected an input or an output that a step writes, got tmp0"),
        ([(1, "out1")], "/aliases/0: expected an input or an output that a step writes, got out1"),
        ([(1, "in1")], r"/aliases/0: expected f32\[64, 64\] .* for out1, got in1, which is f32\[8\]"),
        ([], "/steps: expected a step that writes out1"),
    ],
)
def test_aliases_that_are_none(aliases: list[tuple[int, str]], message: str) -> None:
    given = graph_of((SPEC, dense(8)), make("neg", [EXP]), X)
    with pytest.raises(FormatError, match=message):
        compose(given, STEPS, [(slot, ref(to)) for slot, to in aliases], CUDA_DEVICE, "reassociate")


def test_steps_of_other_rewrites_are_not_recognised() -> None:
    """Equal in the real numbers, as far as anybody says: the caller has to check."""
    composed = compose(CHAIN, with_step(1, graph=FIRST)(STEPS), (), CUDA_DEVICE, "reassociate", ["theirs"])
    assert not composed.recognised
    assert (composed.prepared.numerics, composed.prepared.rewrites) == ("reassociate", ("theirs",))
    assert composed.prepared.origin[EXP] == (1,)
