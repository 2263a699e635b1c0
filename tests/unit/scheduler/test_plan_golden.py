"""Golden plans, from predictions alone: what the search decides without a device shows up in review."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fusion_ir.core.graph import Graph
from fusion_ir.formats import read
from fusion_ir.records import Ceilings, Measurement
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE

EXAMPLES = Path(__file__).parents[3] / "examples"
DEVICES = {
    "cpu": CPU_DEVICE.model_copy(
        update={"ceilings": Ceilings(copy_gbps=((0, 60.0),), read_gbps=((0, 80.0),), launch_us=1.0, fma_gflops=500.0)}
    ),
    "cuda": CUDA_DEVICE.model_copy(
        update={
            "ceilings": Ceilings(copy_gbps=((0, 2800.0),), read_gbps=((0, 3000.0),), launch_us=3.0, fma_gflops=50_000.0)
        }
    ),
}


class NothingKnown(Forgetful):
    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        assert not measurements, "nothing is measured without a bench"


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("example", ["mistral_rope_forward.nvfuser.py", "layer_norm.json", "swiglu.json"])
def test_predicted_plan(example: str, target: str, golden: Callable[[str, str], None]) -> None:
    named = read((EXAMPLES / example).read_text(), filename=example)
    plan = tune(named.graph, DEVICES[target], Budget(0.0), NothingKnown(), None, clock=lambda: 0.0)
    assert plan.time_us is None, "a prediction is never a time"
    body = json.loads(plan.model_dump_json())
    del body["version"]
    golden(f"{example.partition('.')[0]}.{target}.json", json.dumps(body, indent=1) + "\n")
