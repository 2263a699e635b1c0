"""The prologue, which computes once what depends on constants alone: its atoms, their place in covers, and its steps in
plans."""

import random
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from pydantic import ValidationError

from fusion_ir import building as build
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.ops import make, make_input
from fusion_ir.records import Buffer, Plan, Ref
from fusion_ir.reference.interpreter import interpret
from scheduler.bitset import bits
from scheduler.budget import Budget
from scheduler.cover.oracle import CoverOracle
from scheduler.deadline import Deadline
from scheduler.plans import assemble
from scheduler.plans.buffers import Lifetime, share_buffers
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.matrix_chain import CHAINS
from scheduler.segments.atoms import atoms_of
from scheduler.segments.segment_mask import SegmentMask
from scheduler.settings import TuneSettings
from scheduler.tune import tune
from testing.random_graphs import Seeded, any_graph
from tests.support.constants import with_constants
from tests.support.cover_problems import Problem, cheapest
from tests.support.whole import WHOLE, some
from tests.unit.scheduler.fakes import DEVICE, FakeBench, Memory, families, random_inputs, run_plan, same_bits
from tests.unit.scheduler.test_optimistic import DEVICES, searched
from tests.unit.scheduler.test_tune import ALL, unmeasured_segments


def drawn(seed: int, steps: int = 14) -> Graph:
    """A random graph, about half of whose inputs are constants."""
    graph, rng = any_graph(Seeded(seed), steps=steps), random.Random(seed)
    return with_constants(graph, {i: f"w{i}" for i in range(len(graph.inputs)) if rng.random() < 0.5})


def depends_on_constants_alone(node: Node, written: set[Node]) -> bool:
    """By definition, from the operands up. written: outputs that readers stop at, which are written at every run."""
    if node.op == "input":
        return node.attr("constant", object) is not None
    return all(a not in written and depends_on_constants_alone(a, written) for a in node.args)


def test_constant_atoms_are_those_whose_cone_has_constants_alone() -> None:
    constant = 0
    for seed in range(200):
        graph = prepare(drawn(seed)).graph
        atoms, outputs = atoms_of(graph), {o.node for o in graph.outputs}
        if all(spec.constant is None for spec in graph.inputs):
            assert not atoms.constants
            continue
        for t, node in enumerate(atoms.tensors):
            expected = node not in outputs and depends_on_constants_alone(node, outputs - atoms.through)
            assert bool(atoms.constants >> t & 1) == expected, (seed, node)
            assert atoms.is_constant(1 << t) == expected
            constant += expected and node.op != "input"
    assert constant > 100


@pytest.mark.soak
def test_the_cheapest_cover_by_weights_computes_constants_in_the_prologue() -> None:
    """Against enumeration: a segment of constants counts a thousandth; no other one writes any."""
    several = 0
    for seed in some(range(300), 100, "weights"):
        ledger, atoms, found = searched(drawn(seed, steps=8), DEVICES[0])
        if len(atoms) > 7 or not atoms.constants & atoms.all:
            continue
        estimate = ledger.model.predictions
        covers = CoverOracle(atoms, found, ledger, Deadline(60.0, 0.0, None, time.monotonic), 10.0)
        chosen = covers.cheapest(estimate)
        costs: dict[SegmentMask, float] = {}
        for piece, candidate in found.accepted.items():
            members, writes = piece
            constant = sum(1 << a for a in bits(members) if atoms.constants >> a & 1)
            once = constant == members
            assert candidate.is_prologue == once
            if once or not constant & writes:
                costs[piece] = (1e-3 if once else 1.0) * estimate.us(candidate)
        expected = cheapest(Problem(atoms.hypergraph, costs))
        assert sum(costs[c.segment.piece] for c in chosen) == pytest.approx(expected, rel=1e-9), seed
        first = [c.is_prologue for c in chosen]
        assert first == sorted(first, reverse=True), "the prologue comes first"
        several += any(first)
    assert several > 5 or not WHOLE


def search(
    graph: Graph, seed: int, seconds: float = 30.0, offers: Sequence[Alternative] = ALTERNATIVES, **kwargs: object
) -> tuple[Plan, FakeBench]:
    bench = FakeBench(seed=seed)
    plan = tune(
        graph, DEVICE, Budget(seconds, seed=3), Memory(), bench, families=families(kinds=ALL, **kwargs),
        settings=TuneSettings(), clock=bench.clock, offers=offers,
    )  # fmt: skip
    return plan, bench


@pytest.mark.soak
def test_plans_with_a_prologue_compute_their_graphs_at_every_run() -> None:
    """Also at the second run, which finds what the first left, and with other values after the prologue ran again."""
    several = 0
    for seed in some(range(60), 20, "plans"):
        graph = drawn(seed)
        plan, bench = search(graph, seed, most=3)
        Plan.model_validate_json(plan.model_dump_json())
        segments = bench.segments | unmeasured_segments(graph, most=3)
        held = [bytearray(b.bytes) for b in plan.buffers]
        for run, values in enumerate((seed, seed, seed + 1)):
            inputs = random_inputs(graph, values)
            got = run_plan(plan, segments, inputs, held, prologue=run != 1)
            for array, expected in zip(got, interpret(graph, inputs), strict=True):
                assert same_bits(array, expected), (seed, run)
        several += bool(plan.prologue)
    assert several > 10 or not WHOLE


def test_what_is_kept_shares_its_buffer_with_nothing() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        tensors = [
            Lifetime(first, first + rng.randint(0, 4), rng.randint(0, 100), kept=rng.random() < 0.3)
            for first in (rng.randint(0, 10) for _ in range(rng.randint(0, 12)))
        ]
        buffer_of, _ = share_buffers(tensors)
        for i, tensor in enumerate(tensors):
            assert not tensor.kept or buffer_of.count(buffer_of[i]) == 1, seed


def chain() -> Graph:
    """x @ (w1 @ w2), and the exponential of that: w1 and w2 are weights."""
    specs = [
        InputSpec(shape_of(s), f32, (s[1], 1), 64, c)
        for s, c in (((64, 256), None), ((256, 512), "a@1"), ((512, 256), "b@1"))
    ]
    x, w1, w2 = (make_input(i, spec) for i, spec in enumerate(specs))
    inner = build.matmul(w1, w2)
    out = make("exp", [build.matmul(x, inner)])
    return Graph(tuple(specs), (OutputSpec(out, (256, 1)),))


def chain_plan() -> Plan:
    plan, _ = search(chain(), 0, most=1)
    return plan


def test_the_plan_of_a_chain() -> None:
    plan = chain_plan()
    assert [s.prologue for s in plan.steps] == [True, False, False]
    assert plan.constants == (1, 2)
    (kept,) = plan.steps[0].writes
    assert [b.kept for b in plan.buffers] == [i == kept.index for i in range(len(plan.buffers))]
    assert plan.kept_bytes == 256 * 256 * 4
    assert plan.temporary_bytes == plan.kept_bytes + 64 * 256 * 4, "what is kept counts against a limit of memory"
    assert plan.prologue_us == plan.steps[0].time_us
    every_run = [s.time_us for s in plan.steps[1:]]
    assert plan.time_us == pytest.approx(sum(us or 0.0 for us in every_run), rel=0.05)
    assert plan.copy_us == pytest.approx((64 * 256 * 2 + 256 * 256) * 4 / 50e3), "of x, what is kept, and the output"
    again = Plan.model_validate_json(plan.model_dump_json())
    assert again == plan
    assert again.plan_key == plan.plan_key


def test_what_runs_every_time_is_measured_first() -> None:
    plan, bench = search(chain(), 0, most=1, offers=())
    assert [s.prologue for s in plan.steps] == [True, False, False]
    assert list(bench.segments)[-1] == plan.steps[0].segment_key


def test_the_bound_is_of_what_the_plan_computes() -> None:
    """(x @ w1) @ w2 computes more than the plan that folds, or that only multiplies in the other order."""
    specs = [InputSpec(shape_of(s), f32, (s[1], 1), 64) for s in ((512, 512), (512, 512), (512, 1))]
    x, w1, w2 = (make_input(i, spec) for i, spec in enumerate(specs))
    given = Graph(tuple(specs), (OutputSpec(build.matmul(build.matmul(x, w1), w2), (1, 1)),))
    bounds = list[float]()
    for graph, offers in ((given, ()), (given, CHAINS), (with_constants(given, {1: "a@1", 2: "b@1"}), CHAINS)):
        plan, _ = search(graph, 0, most=1, offers=offers)
        assert plan.time_us is not None
        assert plan.time_us >= plan.lower_bound_us > 0
        bounds.append(plan.lower_bound_us)
    assert bounds[0] == pytest.approx(2 * 512 * 512 * (512 + 1) / 100e3)  # the others are bound by their bytes
    assert bounds[1] == pytest.approx((2 * 512 * 512 + 2 * 512) * 4 / 60e3, rel=0.02)
    assert bounds[2] == pytest.approx((512 * 512 + 2 * 512) * 4 / 60e3, rel=0.02)


def test_without_constants_nothing_of_it_is_in_a_plan() -> None:
    graph = with_constants(chain(), {})
    plan, _ = search(graph, 0, most=1)
    assert plan.prologue == ()
    assert not any(word in plan.model_dump_json() for word in ("prologue", "kept"))


def test_a_kept_buffer_that_is_shared_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded fault: buffers as if everything were written anew at every run."""

    def share_all(tensors: list[Lifetime]) -> object:
        return share_buffers([replace(t, kept=False) for t in tensors])

    monkeypatch.setattr(assemble, "share_buffers", share_all)
    failed = 0
    for seed in range(60):
        try:
            search(drawn(seed), seed, most=1)
        except ValidationError as error:
            failed += "which is kept for another tensor" in str(error)
            if failed > 3:
                return
    raise AssertionError(f"{failed} plans of 60 are refused for it")


def changed(plan: Plan, step: int, **update: object) -> dict[str, object]:
    steps = list(plan.steps)
    steps[step] = steps[step].model_copy(update=update)
    return plan.model_copy(update={"steps": tuple(steps)}).model_dump()


def test_prologues_that_are_none() -> None:
    plan = chain_plan()
    kept, other = plan.steps[0].writes[0], plan.steps[1].writes[0]
    x, out = Ref(place="in", index=0), Ref(place="out", index=0)
    refused = {
        "behind one that is not": changed(plan, 2, prologue=True),
        "reads in0, which is no constant": changed(plan, 0, reads=(x, *plan.steps[0].reads)),
        "reads out0, which is no constant": changed(plan, 0, reads=(out,)),
        "is of the prologue and writes out0": changed(plan, 0, writes=(out,)),
        f"writes {kept}, which is kept": changed(plan, 1, writes=(kept,)),
        f"step 2 writes {kept}, which is kept": changed(plan, 2, scratch=kept),
        f"reads {other}, where nothing is": changed(plan, 1, reads=(other,)),
        f"reads {kept}, where nothing is": {
            **plan.model_dump(), "buffers": tuple(b.model_copy(update={"kept": False}) for b in plan.buffers)
        },
        "tmp2 is kept, and no step": {**plan.model_dump(), "buffers": (*plan.buffers, Buffer(bytes=8, kept=True))},
    }  # fmt: skip
    for text, fields in refused.items():
        with pytest.raises(ValidationError, match=text):
            Plan.model_validate(fields)
    Plan.model_validate(plan.model_dump())
