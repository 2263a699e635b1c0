"""Outputs of CUDA kernels in the memory of the inputs that they donate: the same bits as in memory of their own, in
whichever order threads run."""

import ctypes
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")


from fuseplan_client.cuda.program import CudaProgram
from fuseplan_client.plan import Plan, read_plan

from fusion_ir import building as build
from fusion_ir import records
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import f32
from fusion_ir.ops import make_input
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from testing.local_plans import LocalPlans
from testing.random_graphs import Seeded, any_graph, pointwise_graph
from testing.stub_cuda import STREAM, Posing, instead_of_cuda, stub_driver
from tests.support.in_place import adam_step, donated, results, tensors_of, turned
from tests.support.random_reductions import reduction_graph
from tests.support.sweep import Result, plans_of
from tests.support.whole import WHOLE, seed

GRAPHS = 100 if WHOLE else 6
ORDERS = 3  # of threads


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlans]:
    made = LocalPlans.made(tmp_path_factory.mktemp("in place") / "cache", "emulator")
    yield made
    made.close()


@pytest.fixture(scope="module")
def stub(plans: LocalPlans) -> Iterator[ctypes.CDLL]:
    made = stub_driver(plans.bench.cache)
    made.stub_seed.argtypes = [ctypes.c_uint64]
    with instead_of_cuda(made):
        yield made


def loaded(plan: records.Plan, plans: LocalPlans) -> tuple[Plan, CudaProgram]:
    """A plan as the client has it."""
    binaries = {}
    for step in plan.steps:
        path = plans.bench.cache.path(step.binary)
        assert path is not None
        binaries[step.binary] = path.read_bytes()
    body = plan.model_dump(mode="json")
    body["device"]["target"] = "cuda"
    read = read_plan(body)
    return read, CudaProgram(read, binaries, plans.executor, Posing())


def planned(graph: Graph, plans: LocalPlans) -> tuple[Plan, CudaProgram]:
    return loaded(tune(graph, plans.bench.device, Budget(0.0), Forgetful(), plans.bench), plans)


def ran(program: CudaProgram, plan: Plan, *, in_place: bool) -> list[bytes]:
    inputs, outputs = tensors_of(plan, in_place=in_place)
    table = program.table()
    for i, (_, address) in enumerate((*inputs, *outputs)):
        table.addresses[i] = address
    workspace = Posing().allocate(max(program.workspace_bytes, 1))
    table.addresses[program.workspace] = workspace.data_ptr()
    program.run(table, STREAM)
    return results(plan, outputs)


@pytest.mark.turn("random graphs in the emulator")
def test_random_graphs_give_the_same_in_place(plans: LocalPlans, stub: ctypes.CDLL) -> None:
    def drawn(number: int) -> Graph:
        choose = Seeded(number)
        return donated((pointwise_graph, pointwise_graph, any_graph, reduction_graph)[choose.below(4)](choose), choose)

    result, pairs = Result(), 0
    first = 0 if WHOLE else 100_000 + 1000 * seed()
    ways = (drawn, ("fused", "cut", "apart"))
    made = plans_of(range(first, first + GRAPHS), plans.bench, plans.bench.device, [ways], result)
    for (number, _), attempts in made.items():
        for attempt, whole in attempts:
            plan, program = loaded(whole, plans)
            pairs += len(plan.in_place)
            own = ran(program, plan, in_place=False)
            for order in range(ORDERS):
                stub.stub_seed(order)
                if ran(program, plan, in_place=True) != own:
                    result.wrong.append(f"seed {number} {attempt.how}, order {order}: {stub.stub_report()}")
    assert not result.wrong, "\n".join(result.wrong[:20])
    assert pairs


def test_steps_of_optimizers_are_in_place(plans: LocalPlans, stub: ctypes.CDLL) -> None:
    plan, program = planned(adam_step(), plans)
    assert plan.in_place == ((0, 0), (1, 1), (2, 2))
    assert len(plan.steps) == 1
    assert ran(program, plan, in_place=True) == ran(program, plan, in_place=False)


def test_elements_that_other_threads_read_are_not_overwritten(plans: LocalPlans, stub: ctypes.CDLL) -> None:
    """A transposed tensor, and a column that every thread of a row reads while one of them writes it."""
    spec = InputSpec(shape_of((48, 48)), f32, (48, 1), 16)
    x = make_input(0, spec)
    for node in (turned(x), build.add(x, turned(x))):
        assert planned(Graph((spec,), (OutputSpec(node, spec.strides, 0),)), plans)[0].in_place == ()
    column = InputSpec(shape_of((48, 1)), f32, (1, 1), 64)
    y = make_input(1, column)
    sums = build.add(build.sum_(x, (1,), keepdims=True), y)
    outputs = (
        OutputSpec(sums, column.strides, 1),
        OutputSpec(build.mul(x, build.broadcast_to(y, x.sizes)), spec.strides),
    )
    plan, program = planned(Graph((spec, column), outputs), plans)
    own = ran(program, plan, in_place=False)
    for order in range(ORDERS):
        stub.stub_seed(order)
        assert ran(program, plan, in_place=True) == own
