"""Outputs in the memory of the inputs that they donate: the same bits as in memory of their own."""

import os
from collections.abc import Callable, Iterator

import pytest
from fuseplan_client import GuardError
from fuseplan_client.cpu.executor import WAYS
from fuseplan_client.cpu.program import CpuProgram
from fuseplan_client.guards import check
from fuseplan_client.plan import Plan, read_plan
from fuseplan_client.tensors import View

from fusion_ir import building as build
from fusion_ir import records
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.ops import make_input
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from testing.random_graphs import Seeded, any_graph, pointwise_graph
from tests.support.in_place import adam_step, donated, results, tensors_of, turned
from tests.support.random_reductions import reduction_graph
from tests.support.sweep import Result, plans_of
from tests.support.whole import WHOLE, seed

pytest.importorskip("torch")


from testing.local_plans import LocalPlans

GRAPHS = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "0")) // 3 or 12


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlans]:
    made = LocalPlans.made(tmp_path_factory.mktemp("in place") / "cache")
    yield made
    made.close()


def planned(graph: Graph, plans: LocalPlans) -> tuple[Plan, CpuProgram]:
    return loaded(tune(graph, plans.bench.device, Budget(0.0), Forgetful(), plans.bench), plans)


def loaded(plan: records.Plan, plans: LocalPlans) -> tuple[Plan, CpuProgram]:
    """A plan as the client has it."""
    binaries = {}
    for step in plan.steps:
        path = plans.bench.cache.path(step.binary)
        assert path is not None
        binaries[step.binary] = path.read_bytes()
    read = read_plan(plan.model_dump(mode="json"))
    return read, CpuProgram(read, binaries, plans.executor)


def ran(program: CpuProgram, plan: Plan, *, in_place: bool, threads: int) -> list[bytes]:
    inputs, outputs = tensors_of(plan, in_place=in_place)
    table = program.table()
    for i, (_, address) in enumerate((*inputs, *outputs)):
        table.addresses[i] = address
    program.run(table, threads, WAYS["pool"] if threads > 1 else WAYS["alone"])
    return results(plan, outputs)


@pytest.mark.turn("random graphs on the CPU")
def test_random_graphs_give_the_same_in_place(plans: LocalPlans) -> None:
    """Cut at random, by any family and schedule: whichever outputs a plan says may be in place."""

    def drawn(number: int) -> Graph:
        choose = Seeded(number)
        return donated((pointwise_graph, pointwise_graph, any_graph, reduction_graph)[choose.below(4)](choose), choose)

    result, pairs, asked = Result(), 0, 0
    first = 0 if WHOLE else 100_000 + 1000 * seed()
    ways = (drawn, ("fused", "cut", "apart"))
    made = plans_of(range(first, first + GRAPHS), plans.bench, plans.bench.device, [ways], result)
    for (number, _), attempts in made.items():
        for attempt, whole in attempts:
            plan, program = loaded(whole, plans)
            pairs, asked = pairs + len(plan.in_place), asked + len(plan.outputs)
            for threads in (1, 2):
                own, placed = (ran(program, plan, in_place=p, threads=threads) for p in (False, True))
                if own != placed:
                    result.wrong.append(f"seed {number} {attempt.how}, {threads} threads")
    assert not result.wrong, "\n".join(result.wrong[:20])
    assert 4 * pairs > asked, f"{pairs} of {asked} outputs may be in place"


def test_steps_of_optimizers_are_in_place(plans: LocalPlans) -> None:
    plan, program = planned(adam_step(), plans)
    assert plan.in_place == ((0, 0), (1, 1), (2, 2))
    assert len(plan.steps) == 1
    assert ran(program, plan, in_place=True, threads=2) == ran(program, plan, in_place=False, threads=1)


def of_one(computed: Callable[[Node], Node]) -> Graph:
    spec = InputSpec(shape_of((48, 48)), f32, (48, 1), 16)
    return Graph((spec,), (OutputSpec(computed(make_input(0, spec)), spec.strides, 0),))


def test_two_outputs_change_places(plans: LocalPlans) -> None:
    spec = InputSpec(shape_of((48, 48)), f32, (48, 1), 64)
    x, y = (make_input(i, spec) for i in range(2))
    total = build.add(x, y)
    outputs = (OutputSpec(build.mul(total, x), spec.strides, 1), OutputSpec(build.sub(total, y), spec.strides, 0))
    plan, program = planned(Graph((spec, spec), outputs), plans)
    assert plan.in_place == ((0, 1), (1, 0))
    assert ran(program, plan, in_place=True, threads=2) == ran(program, plan, in_place=False, threads=1)


def test_elements_that_others_read_are_not_overwritten(plans: LocalPlans) -> None:
    """A transposed tensor, a row that is shifted, and a sum of the row that one kernel writes again."""
    for other in (turned, lambda x: build.add(x, turned(x))):
        plan, _ = planned(of_one(other), plans)
        assert plan.in_place == ()
    plan, program = planned(of_one(lambda x: build.softmax(x, -1)), plans)
    assert ran(program, plan, in_place=True, threads=2) == ran(program, plan, in_place=False, threads=1)


def test_guards_let_outputs_be_in_place_and_nowhere_else(plans: LocalPlans) -> None:
    plan, _ = planned(of_one(build.exp), plans)
    assert plan.in_place == ((0, 0),)
    spec = plan.inputs[0]

    def view(address: int) -> View:
        return View(address, spec.shape, spec.dtype, spec.strides)

    check(plan, [view(1 << 20)], [view(1 << 20)], 0, "{}{}".format)
    with pytest.raises(GuardError, match="out0: expected alignment to 64 bytes"):
        check(plan, [view((1 << 20) + 16)], [view((1 << 20) + 16)], 0, "{}{}".format)
    with pytest.raises(GuardError, match="out0 overlaps in0"):
        check(plan, [view(1 << 20)], [view((1 << 20) + 64)], 0, "{}{}".format)
