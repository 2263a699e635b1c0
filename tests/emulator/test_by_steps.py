"""Plans judged step by step in the emulator."""

from dataclasses import replace

import pytest

from codegen.workbench.step_check import Meanings
from codegen.workbench.workbench import Workbench
from fusion_ir.ops import make
from fusion_ir.records import Status
from tests.support.inexact_graphs import amplifying_graph
from tests.support.unfused import unfused_plan
from tests.support.whole import few_or_all, seed


@pytest.mark.turn("emulated ops")
@pytest.mark.soak
@pytest.mark.parametrize("seed", few_or_all([seed() % 3], [(seed() + 1) % 3, (seed() + 2) % 3]))
def test_kernels_of_single_ops_are_right_on_what_they_are_given(bench: Workbench, seed: int) -> None:
    graph = amplifying_graph(seed, most=20)
    plan, meanings = unfused_plan(graph, bench)
    timing = bench.measure_by_steps(graph, plan, meanings, seed=seed, seconds=0.0)
    assert timing.status is Status.ok, timing.detail
    last = meanings.steps[-1]
    output = last.graph.outputs[0]
    other = make("neg", [make("add", [output.node, output.node])])
    wrong = replace(last, graph=replace(last.graph, outputs=(replace(output, node=other), *last.graph.outputs[1:])))
    faulty = Meanings((*meanings.steps[:-1], wrong), meanings.outputs)
    timing = bench.measure_by_steps(graph, plan, faulty, seed=seed, seconds=0.0)
    assert timing.status is Status.wrong_result
    assert timing.detail.startswith(f"step {len(plan.steps) - 1}, "), timing.detail
