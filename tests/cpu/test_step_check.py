"""Plans of graphs whose steps amplify errors are right step by step, whatever becomes of their outputs."""

import os

import pytest

from codegen.workbench.workbench import Workbench
from fusion_ir.records import Status
from tests.support.inexact_graphs import amplifying_graph
from tests.support.unfused import unfused_plan
from tests.support.whole import in_turn

GRAPHS = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "1000"))


@pytest.mark.turn("plans judged by their steps")
@pytest.mark.soak
@pytest.mark.parametrize("seed", in_turn(range(GRAPHS), 1, "steps"))
def test_kernels_of_single_ops_are_right_on_what_they_are_given(bench: Workbench, seed: int) -> None:
    graph = amplifying_graph(seed, most=100)
    plan, meanings = unfused_plan(graph, bench)
    timing = bench.measure_by_steps(graph, plan, meanings, seed=seed, seconds=0.0)
    assert timing.status is Status.ok, timing.detail


@pytest.mark.turn("plans judged by their steps")
def test_a_graph_of_which_no_plan_agrees_as_a_whole(bench: Workbench) -> None:
    """In this graph, whole rows of 65 elements jump to other values in the kernel, and in none of 48 perturbed runs."""
    graph = amplifying_graph(173, most=150)
    plan, meanings = unfused_plan(graph, bench)
    timing = bench.measure_by_steps(graph, plan, meanings, seed=173, seconds=0.0)
    assert timing.status is Status.ok, timing.detail
