"""Predicted plans at a terminal, as JSON and on a page: no time in them looks like one that was measured."""

import io

import pytest
from rich.console import Console

from codegen.hardware.gpus import specified
from fusion_ir.core.graph import Graph
from fusion_ir.ops import make, make_input
from fusion_ir.records import CompileReport, Plan
from scheduler.budget import Budget
from scheduler.tune import tune
from service.cli.plan_view import as_json
from service.cli.plan_view import plan_view as terminal_view
from service.dashboard import plan_view as views
from service.wording.compile_reports import report_words
from service.wording.formatting import expected
from service.wording.naming import Naming
from service.wording.nodes import NodeWords
from tests.support.absent import Collector, Forgetful
from tests.support.kernels import dense, graph_of

SPEC = dense(4096, 1024)
GRAPH: Graph = graph_of((SPEC,), make("exp", [make_input(0, SPEC)]))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return tune(GRAPH, specified("h200", "NVRTC 13.0"), Budget(5.0), Forgetful(), Collector())


def test_at_a_terminal(plan: Plan) -> None:
    text = io.StringIO()
    Console(file=text, width=150).print(terminal_view(plan, "predicted"))
    shown = text.getvalue()
    assert "for NVIDIA H200 (cuda, 132 multiprocessors)" in shown
    assert "Nothing ran" in shown
    assert "predicted, not timed" in shown
    assert "an assumed bandwidth" in shown
    steps, _, _ = shown.partition("this plan")
    assert "predicted " in steps.partition("bytes")[0], "the name of the column"
    assert steps.count("~") == 2 * len(plan.steps), "time, and share of the bound"
    assert shown.count(expected(None, plan.predicted_us)) >= 1


def test_as_json(plan: Plan) -> None:
    fields = as_json(plan, "h200", "predicted", "miss")
    assert fields["time_us"] is None
    assert fields["predicted_us"] == plan.predicted_us
    assert [step["time_us"] for step in fields["steps"]] == [None] * len(plan.steps)


def test_on_a_page(plan: Plan) -> None:
    view = views.plan_view(plan, NodeWords(GRAPH, Naming(("x",), ("y",))), "predicted", 0, {}.get)
    assert view.time == expected(None, plan.predicted_us)
    assert view.time.startswith("~")
    assert view.origin
    assert "predictions" in view.state_help
    bars = {bar.kind: bar for bar in view.bars}
    assert bars.keys() == {"predicted", "copy", "bound"}
    assert (bars["predicted"].value[0], bars["copy"].value[0]) == ("~", "~")
    assert "assumed" in bars["copy"].help
    assert not bars["bound"].value.startswith("~"), "the vendor's figures"
    assert all(step.time.startswith("~") for step in view.steps)


def test_a_compile_report_in_words() -> None:
    report = CompileReport(
        code_bytes=1024, registers=168, spill_bytes=24, shared_bytes=0, dynamic_shared_bytes=96 << 10, blocks=2,
        occupancy=0.375, warnings=("C7510",),
    )  # fmt: skip
    assert list(report_words(report)) == [
        "code 1.00 KiB", "168 registers", "24 B spilled", "96.0 KiB shared", "2 blocks (38 %) a multiprocessor",
        "wgmma serialised (C7510)",
    ]  # fmt: skip
