"""Prologues on this machine's CPU: what depends on constants alone runs once, is kept, and runs again when it must."""

import os
import signal
from collections.abc import Sequence

import numpy as np
import pytest

from codegen.toolchain.compiler import Binary
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import f32
from fusion_ir.ops import make_input
from fusion_ir.records import Plan, Status
from scheduler.budget import Budget
from scheduler.rewrites.rules.matrix_chain import CHAINS
from scheduler.tune import tune
from tests.support.constants import with_constants
from tests.support.folding import folding_wrongly, sharing, sum_plan
from tests.support.kernels import sum_kernel
from tests.unit.scheduler.fakes import CEILINGS, Memory

N = 1001
SHAPES = (("x", (48, 96), None), ("w1", (96, 64), "a@1"), ("w2", (64, 80), "b@1"))


def chain(from_left: bool = False) -> Graph:
    """x @ (w1 @ w2), or (x @ w1) @ w2, of which w1 and w2 are weights."""
    specs = tuple(InputSpec(shape_of(sizes), f32, (sizes[1], 1), 64, constant) for _, sizes, constant in SHAPES)
    x, w1, w2 = (make_input(i, spec) for i, spec in enumerate(specs))
    product = build.matmul(build.matmul(x, w1), w2) if from_left else build.matmul(x, build.matmul(w1, w2))
    return Graph(specs, (OutputSpec(product, (80, 1)),))


def planned(bench: Workbench, graph: Graph) -> Plan:
    """By predictions, with compiled kernels."""
    device = bench.device.model_copy(update={"ceilings": CEILINGS})
    return tune(graph, device, Budget(0.0), Memory(), bench, offers=CHAINS)


@pytest.fixture(scope="module")
def plan(bench: Workbench) -> Plan:
    return planned(bench, chain())


def tensors(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(sizes).astype(np.float32) for _, sizes, _ in SHAPES]


def check(out: Sequence[np.ndarray], x: np.ndarray, w1: np.ndarray, w2: np.ndarray) -> None:
    np.testing.assert_allclose(out[0], x @ (w1 @ w2), rtol=1e-4, atol=1e-3)


def test_the_inner_product_runs_once_for_each_version(bench: Workbench, plan: Plan) -> None:
    assert [s.prologue for s in plan.steps] == [True, False]
    assert (plan.constants, plan.kept_bytes) == ((1, 2), 96 * 80 * 4)
    x, w1, w2 = tensors(0)
    versions = {1: "1", 2: "1"}
    check(bench.run(plan, [x, w1, w2], versions=versions), x, w1, w2)
    other = tensors(1)
    out = bench.run(plan, [other[0], other[1], w2], versions=versions)
    check(out, other[0], w1, w2)  # other values under the old version are not looked at: the product did not run
    check(bench.run(plan, [x, other[1], w2], versions={1: "2", 2: "1"}), x, other[1], w2)
    check(bench.run(plan, [x, w1, other[2]], versions={1: "2", 2: "1"}), x, other[1], w2)
    check(bench.run(plan, [x, w1, other[2]], versions={1: "2", 2: "2"}), x, w1, other[2])


def test_a_chain_from_the_left_is_folded_where_that_is_cheaper(bench: Workbench) -> None:
    """(x @ w1) @ w2: the product of the weights is an alternative, and costs nothing at every run."""
    graph = chain(from_left=True)
    plan = planned(bench, graph)
    assert plan.rewrites == ("chain-order",)
    assert [s.prologue for s in plan.steps] == [True, False]
    assert planned(bench, with_constants(graph, {})).prologue == ()
    for seed in range(2):
        x, w1, w2 = tensors(seed)
        check(bench.run(plan, [x, w1, w2]), x, w1, w2)


def test_without_versions_the_content_tells(bench: Workbench, plan: Plan) -> None:
    for seed in (2, 2, 3):
        x, w1, w2 = tensors(seed)
        check(bench.run(plan, [x, w1, w2]), x, w1, w2)
        check(bench.run(plan, [x, w1[:, ::-1], w2]), x, w1[:, ::-1], w2)


def test_another_child_runs_the_prologue_again(bench: Workbench, plan: Plan) -> None:
    versions = {1: "kill", 2: "kill"}
    x, w1, w2 = tensors(4)
    check(bench.run(plan, [x, w1, w2], versions=versions), x, w1, w2)
    child = bench._timer.slot.pid
    assert child is not None
    os.kill(child, signal.SIGKILL)
    x, w1, w2 = tensors(5)
    check(bench.run(plan, [x, w1, w2], versions=versions), x, w1, w2)
    assert bench._timer.slot.pid != child


def test_each_plan_keeps_its_own(bench: Workbench, plan: Plan) -> None:
    """Two plans of the same kernels and the same versions by name."""
    twin = plan.model_copy(update={"version": "another"})
    versions = {1: "twin", 2: "twin"}
    one, other = tensors(6), tensors(7)
    for _ in range(2):
        check(bench.run(plan, one, versions=versions), *one)
        check(bench.run(twin, other, versions=versions), *other)


def test_the_prologue_has_a_time_of_its_own(bench: Workbench, plan: Plan) -> None:
    (timing,) = bench.measure_plans(chain(), [plan], seconds=0.0)
    assert timing.status is Status.ok, timing.detail
    assert timing.samples_us
    assert timing.prologue_us


def test_inputs_that_are_no_constants_make_the_same_plan_as_ever(bench: Workbench) -> None:
    plan = planned(bench, with_constants(chain(), {}))
    assert plan.prologue == ()
    assert not any(word in plan.model_dump_json() for word in ("prologue", "kept"))
    for seed in (8, 9):
        x, w1, w2 = tensors(seed)
        check(bench.run(plan, [x, w1, w2], versions={1: "x", 2: "x"}), x, w1, w2)


@pytest.fixture(scope="module")
def sums(bench: Workbench) -> tuple[Graph, Plan]:
    (add,) = bench.compile_for_plans([sum_kernel(N, "prologue_add")])
    assert isinstance(add, Binary)
    return sum_plan(N, bench.device, add, tasks=2)


def test_a_kept_buffer_that_is_shared_is_found_out(bench: Workbench, sums: tuple[Graph, Plan]) -> None:
    """The seeded fault: b lies where y was, after the last step that reads it. The first run is right all the same."""
    graph, right = sums
    shared = sharing(right)
    every_time = [s.model_copy(update={"prologue": False}) for s in shared.steps]
    anew = shared.model_copy(update={"steps": tuple(every_time)})
    timings = bench.measure_plans(graph, [shared, right, anew], seconds=0.0)
    assert [t.status for t in timings] == [Status.wrong_result, Status.ok, Status.ok], [t.detail for t in timings]
    assert "at the second run" in timings[0].detail
    assert [t.prologue_us is not None for t in timings] == [False, True, False]


def test_a_wrong_prologue_is_found_out(bench: Workbench, sums: tuple[Graph, Plan]) -> None:
    graph, right = sums
    (timing,) = bench.measure_plans(graph, [folding_wrongly(right)], seconds=0.0)
    assert timing.status is Status.wrong_result
