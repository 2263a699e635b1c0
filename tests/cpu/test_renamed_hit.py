"""A hit from a renamed and reordered graph gives the right results under the new names."""

import json
import random
from pathlib import Path

import numpy as np

from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir.formats import read
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.budget import Budget
from service.planning.planner import plan_graph
from tuning_db.store import Store

GRAPH = {
    "format": "fuseplan.graph",
    "version": 1,
    "inputs": [{"name": "x", "shape": [33, 48], "dtype": "bf16"}, {"name": "y", "shape": [48], "dtype": "f32"}],
    "nodes": [
        {"name": "wide", "op": "cast", "args": ["x"], "attrs": {"dtype": "f32"}},
        {"name": "scaled", "op": "mul", "args": ["wide", "y"]},
        {"name": "shifted", "op": "sub", "args": ["scaled", "y"]},
        {"name": "turned", "op": "permute", "args": ["shifted"], "attrs": {"dims": [1, 0]}},
    ],
    "outputs": [{"node": "turned", "name": "t"}, {"node": "scaled", "name": "s"}],
}


def renamed(graph: dict[str, object], seed: int) -> str:
    """Other names everywhere, nodes in another order."""
    text = json.dumps(graph)
    for name in ("wide", "scaled", "shifted", "turned"):
        text = text.replace(f'"{name}"', f'"node {name[::-1]}\\n"')
    moved = json.loads(text.replace('"x"', '"an input"').replace('"y"', '"x"'))
    random.Random(seed).shuffle(moved["nodes"])
    return json.dumps(moved)


def test_a_hit_from_a_renamed_graph_runs_right(known_machine: Path) -> None:
    cache = ObjectCache(known_machine / "cache")
    first = read(json.dumps(GRAPH))
    second = read(renamed(GRAPH, 3))
    assert second.input_names == ("an input", "x")
    with Store(f"sqlite:///{known_machine / 'plans.db'}") as store:
        made = plan_graph(first, "cpu", Budget(0.5), store, cache)
        found = plan_graph(second, "cpu", Budget(0.5), store, cache)
    assert (made.cache, found.cache) == ("miss", "hit")
    assert found.plan_key == made.plan_key
    inputs = sample_inputs(second.graph, 7)
    with Workbench(found.plan.device, cache) as bench:
        got = bench.run(found.plan, inputs)
    for g, e in zip(got, interpret(second.graph, inputs), strict=True):
        assert g.dtype == e.dtype
        assert np.array_equal(g.view(np.uint32), np.ascontiguousarray(e).view(np.uint32))
