"""Plans judged step by step: right ones pass, whatever their outputs; what is computed or read wrongly is found."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from codegen.workbench.step_check import Meanings, judge_steps
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.arithmetic.conversions import ulp
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.ops import make, make_input
from fusion_ir.records import Plan, Search, Status
from scheduler.plans.assemble import Choice, assemble, meanings_of
from scheduler.plans.whole_time import BY_STEPS
from scheduler.rewrites.prepare import prepare
from scheduler.tune import unfused_segments
from scheduler.tuning.trials import Ledger
from testing.random_graphs import Seeded, any_graph
from tests.support.constants import with_constants
from tests.unit.scheduler.fakes import (
    DEVICE,
    FakeBench,
    Memory,
    Timing,
    families,
    random_inputs,
    run_plan,
)
from tests.unit.scheduler.test_large_graphs import Compiling, chain, stretched
from tests.unit.scheduler.test_tune import ALL, WRONG, diamond, search

Array = np.ndarray
SEARCH = Search(seconds=0, candidates=0, measured=0, complete=False)


def unfused(graph: Graph) -> tuple[Plan, Meanings, dict[str, Graph]]:
    """A plan with a step for each op, what these compute, and their segments by key."""
    prepared = prepare(graph)
    ledger = Ledger(DEVICE, families(kinds=frozenset(ALL)), Memory(), None, 0)
    cover = unfused_segments(prepared.graph, ledger)
    choices = [
        Choice(c.segment, ledger.model.traffic(c), ledger.kernel(c, variant), None, 1.0)
        for c in cover
        if (variant := ledger.choice(c))
    ]
    segments = [c.segment for c in cover]
    plan = assemble(prepared, DEVICE, choices, SEARCH)
    return plan, meanings_of(prepared, segments), {s.key: s.canonical.graph for s in segments}


def runner(segments: dict[str, Graph]) -> Callable[[Plan, Sequence[Array]], list[Array]]:
    return lambda plan, inputs: run_plan(plan, segments, inputs)


def drawn(seed: int) -> Graph:
    graph, rng = any_graph(Seeded(seed), steps=14), random.Random(seed)
    return with_constants(graph, {i: f"w{i}" for i in range(len(graph.inputs)) if rng.random() < 0.3})


def test_right_plans_pass_with_the_outputs_that_they_have() -> None:
    prologues = 0
    for seed in range(60):
        graph = drawn(seed)
        plan, meanings, segments = unfused(graph)
        inputs = random_inputs(graph, seed)
        problem, outputs = judge_steps(plan, meanings, inputs, runner(segments))
        assert not problem, (seed, problem)
        assert compare(outputs, reference(graph, inputs)).ok, seed
        prologues += bool(plan.prologue)
    assert prologues > 3


def test_a_step_that_is_given_another_tensor_is_found() -> None:
    """A step that reads another place than it should, an input, a buffer or an output of any shape, is reported,
    whether or not that place ever held the right tensor."""
    tried = 0
    for seed in range(40):
        graph = drawn(seed)
        plan, meanings, segments = unfused(graph)
        places = {ref for step in plan.steps for ref in (*step.reads, *step.writes)}
        for i, step in enumerate(plan.steps):
            for ref in sorted(places - set(step.reads[:1]), key=str) if step.reads else ():
                moved = step.model_copy(update={"reads": (ref, *step.reads[1:])})
                faulty = plan.model_copy(update={"steps": (*plan.steps[:i], moved, *plan.steps[i + 1 :])})
                problem, _ = judge_steps(faulty, meanings, random_inputs(graph, seed), runner(segments))
                assert problem.startswith(f"step {i} reads {ref}, which holds"), (seed, problem)
                tried += 1
    assert tried > 300


def test_a_step_that_computes_something_else_is_found() -> None:
    graph = diamond()
    plan, meanings, segments = unfused(graph)
    inputs = random_inputs(graph, 0)
    for i, meaning in enumerate(meanings.steps):
        node = meaning.graph.outputs[0].node
        other = make("add", [node, make("mul", [node, make("mul", [node, node])])])
        wrong = replace(meaning.graph, outputs=(replace(meaning.graph.outputs[0], node=other),))
        segments[plan.steps[i].segment_key] = wrong
        problem, _ = judge_steps(plan, meanings, inputs, runner(segments))
        assert problem.startswith(f"step {i}, "), problem
        assert "out0[" in problem
        segments[plan.steps[i].segment_key] = meaning.graph


def test_a_tensor_that_is_overwritten_too_early_is_found() -> None:
    """The plan's outputs differ from those of its steps run one by one, where nothing is overwritten."""
    graph = diamond()
    plan, meanings, segments = unfused(graph)
    inputs = random_inputs(graph, 0)

    def run(asked: Plan, arrays: Sequence[Array]) -> list[Array]:
        outputs = run_plan(asked, segments, arrays)
        if asked is plan:
            outputs[0] = outputs[0] + np.float32(1)
        return outputs

    problem, _ = judge_steps(plan, meanings, inputs, run)
    assert problem.startswith("other outputs than its steps have one by one: out0[")


def amplifying() -> Graph:
    """sin of exp, a thousand times as large, five times over."""
    spec = InputSpec(shape_of((4, 64)), f32, (64, 1))
    x: Node = make_input(0, spec)
    thousand = make("broadcast_in_dim", [make_input(1, InputSpec((), f32, ()))], {"shape": spec.shape, "dims": ()})
    for _ in range(5):
        x = make("sin", [make("mul", [make("exp", [x]), thousand])])
    return Graph((spec, InputSpec((), f32, ())), (OutputSpec(x, dense_strides(x.sizes)),))


def test_what_no_step_made_is_not_held_against_a_plan() -> None:
    """Kernels whose exp is off by an ulp: within what each may be off by, and far from the outputs of the graph."""
    graph = amplifying()
    plan, meanings, segments = unfused(graph)
    inputs = random_inputs(graph, 0)
    inputs[1] = np.array(1000.0, np.float32)
    exact = run_plan(plan, segments, inputs)
    keys = {key for key, g in segments.items() if g.outputs[0].node.op == "exp"}

    def run(asked: Plan, arrays: Sequence[Array]) -> list[Array]:
        return run_plan(asked, segments, arrays, made=lambda key, a: a + ulp(a) if key in keys else a)

    problem, outputs = judge_steps(plan, meanings, inputs, run)
    assert not problem
    assert float(np.abs(outputs[0] - exact[0]).max()) > 0.1

    def far(asked: Plan, arrays: Sequence[Array]) -> list[Array]:
        return run_plan(asked, segments, arrays, made=lambda key, a: a + 16 * ulp(a) if key in keys else a)

    assert judge_steps(plan, meanings, inputs, far)[0].startswith("step 0, ")


def test_plans_of_too_much_memory_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, meanings, segments = unfused(diamond())
    monkeypatch.setattr("codegen.workbench.step_check.MOST_BYTES", 1 << 20)
    assert "at most are judged" in judge_steps(plan, meanings, random_inputs(diamond(), 0), runner(segments))[0]


class Amplified(FakeBench):
    """No plan agrees as a whole."""

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[Timing]:
        return [Timing((), status=Status.wrong_result, detail=WRONG) for _ in plans]

    def measure_by_steps(
        self, graph: Graph, plan: Plan, meanings: Meanings, *, seed: int = 0, seconds: float
    ) -> Timing:
        assert len(meanings.steps) == len(plan.steps)
        return Timing((123.0,) * 20)


class AmplifiedStretches(Amplified, Compiling):
    pass


def test_where_no_plan_agrees_as_a_whole_one_that_agrees_step_by_step_is_the_answer() -> None:
    plan, _ = search(diamond(), Amplified(), most=3)
    assert (len(plan.steps), plan.time_us, plan.unfused_us, plan.max_rel_error) == (7, 123.0, 123.0, None)
    assert plan.judged_by_steps
    assert BY_STEPS in [r.text for r in plan.reasons]


@pytest.mark.parametrize("seconds", [20.0, 1.2])
def test_the_same_of_graphs_taken_in_stretches(seconds: float) -> None:
    plan = stretched(chain(60, period=1), AmplifiedStretches(0.001), seconds)
    assert (len(plan.steps), plan.time_us, plan.unfused_us, plan.max_rel_error) == (60, 123.0, 123.0, None)
    assert plan.judged_by_steps
    assert BY_STEPS in [r.text for r in plan.reasons]
