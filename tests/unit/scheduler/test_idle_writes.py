"""No step of a plan writes a tensor that nothing reads: memory and time for nothing."""

import json

import pytest

from benchmarks.corpus import TOPICS
from benchmarks.corpus.case import Case
from codegen.hardware.gpus import specified
from fusion_ir.core.graph import Graph
from fusion_ir.formats import read
from fusion_ir.records import Device, Plan
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.settings import TuneSettings
from scheduler.tune import tune
from tests.unit.scheduler.fakes import CEILINGS, DEVICE

CASES = [case for cases in TOPICS.values() for case in cases]
SLOW = CEILINGS.model_copy(update={"fma_gflops": 10.0})  # whatever is written, arithmetic takes longer
HURRIED = TuneSettings(cover_s=0.2)  # covers that are not proved to be the cheapest have the most that is idle
DEVICES = {
    "cpu": DEVICE, "slow cpu": DEVICE.model_copy(update={"ceilings": SLOW}), "h200": specified("h200", "")
}  # fmt: skip


def unread(plan: Plan) -> list[str]:
    """Writes of steps to a temporary that no later step reads before it is written again, a line each."""
    found: list[str] = []
    for i, step in enumerate(plan.steps):
        for ref in (r for r in step.writes if r.place == "tmp"):
            for later in plan.steps[i + 1 :]:
                if ref in later.reads:
                    break
                if ref in later.writes:
                    found.append(f"step {i} {ref}")
                    break
            else:
                found.append(f"step {i} {ref}")
    return found


def predicted(graph: Graph, device: Device) -> Plan:
    return tune(graph, device, Budget(0.0), Forgetful(), None, settings=HURRIED)


@pytest.mark.parametrize("name", DEVICES)
def test_a_norm_before_a_linear_layer_writes_what_the_layer_reads(name: str) -> None:
    """Folding the shift through the product reads what is scaled and not shifted yet; this plan does not fold."""
    inputs = {"x": [4, 256, 768], "gamma": [768], "beta": [768], "w": [1024, 768], "b": [1024]}
    text = json.dumps({
        "format": "fuseplan.graph", "version": 1,
        "inputs": [{"name": name, "shape": shape, "dtype": "bf16"} for name, shape in inputs.items()],
        "nodes": [{"name": "ln", "op": "layer_norm", "args": ["x", "gamma", "beta"], "attrs": {"eps": 1e-5}},
                  {"name": "lin", "op": "linear", "args": ["ln", "w", "b"]},
                  {"name": "act", "op": "gelu", "args": ["lin"], "attrs": {"approximate": "tanh"}}],
        "outputs": [{"node": "act"}],
    })  # fmt: skip
    plan = predicted(read(text, filename="norm.json").graph, DEVICES[name])
    assert len(plan.steps) > 1
    assert unread(plan) == []


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.sweep(0.03)
def test_no_plan_of_the_corpus_writes_what_nobody_reads(case: Case, name: str) -> None:
    assert unread(predicted(case.instance(case.bench_dtypes[-1]).graph, DEVICES[name])) == []
