"""Keys of graphs, segments and predicted plans stay what they are: databases and clients hold them."""

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.corpus import TOPICS
from codegen.hardware.gpus import specified
from fusion_ir.core.graph import Graph
from fusion_ir.formats import read
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Device, Plan
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from tests.support.whole import in_turn, some
from tests.unit.scheduler.test_plan_golden import DEVICES as PLAN_DEVICES

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = 16  # of a key that are written down
DEVICES = {"cpu": PLAN_DEVICES["cpu"], "h200": specified("h200", "")}


def graphs(topic: str) -> Iterator[tuple[str, Graph]]:
    if topic == "examples":
        for path in sorted(EXAMPLES.iterdir()):
            if path.name != "README.md":
                yield path.name, read(path.read_text(), filename=path.name).graph
        return
    for case in TOPICS[topic]:
        for dtype in case.bench_dtypes:
            yield f"{case.name} {dtype}", case.instance(dtype).graph


def planned(graph: Graph, device: Device) -> Plan:
    """The plan from predictions alone, with as much time as the search wants: the same on every machine."""
    plan = tune(graph, device, Budget(0.0), Forgetful(), None, clock=lambda: 0.0)
    return plan.model_copy(update={"version": ""})


def shown(key: str) -> str:
    return key[:DIGITS]


def written(topic: str) -> dict[str, str]:
    """By graph, what its topic's file says of it."""
    blocks = re.split(r"^(?=\S)", golden_file(topic).read_text(), flags=re.MULTILINE)
    return {block.partition(": graph")[0]: block for block in blocks if block}


def golden_file(topic: str) -> Path:
    return Path(__file__).parent / "golden" / f"keys.{topic.replace(' ', '_')}.txt"


def keys(name: str, graph: Graph) -> str:
    lines = [f"{name}: graph {shown(graph_key(graph))}"]
    for target, device in DEVICES.items():
        plan = planned(graph, device)
        segments = hashlib.sha256(" ".join(step.segment_key for step in plan.steps).encode()).hexdigest()
        lines.append(f"  {target}: plan {shown(plan.plan_key)}, {len(plan.steps)} segments {shown(segments)}")
    return "\n".join(lines) + "\n"


@pytest.mark.soak
@pytest.mark.parametrize("topic", [*in_turn(TOPICS, 1), "examples"])
def test_keys_are_what_they_were(topic: str, golden: Callable[[str, str], None]) -> None:
    """Some graphs of the topic keep theirs; all of them in the long run, which alone can write the file."""
    every = dict(graphs(topic))
    drawn = some(every, 4, topic)
    known = written(topic) if len(drawn) < len(every) else {}
    text = "".join(keys(name, graph) if name in drawn else known[name] for name, graph in every.items())
    golden(golden_file(topic).name, text)
