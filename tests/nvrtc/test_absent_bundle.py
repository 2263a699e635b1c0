"""Bundles of plans for a GPU that is not here, from the search to the program in the folder, up to the launches."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuseplan_client import CudaPlan, read_bundle
from fuseplan_client.cuda import launches, prologue, runtime
from fuseplan_client.cuda import tensor_maps as maps

from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.core.named import NamedGraph
from fusion_ir.formats import read
from fusion_ir.keys.graph_key import graph_key
from scheduler.budget import Budget
from service.cli import main
from service.planning.planner import plan_graph
from tests.support.fake_cupy import FakeCupy
from tests.support.whole import in_turn
from tuning_db.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"
AWKWARD = """fuseplan.graph 1
in0 "class": bf16[64, 128] align 16
in1 "layer.0/weight": bf16[128, 64] align 16 constant "w@1"
in2 "x y": f32[0, 3] align 16
%0 = in0: bf16[64, 128]
%1 = in1: bf16[128, 64]
%2 = in2: f32[0, 3]
%3 = exp(%0): bf16[64, 128]
%4 = neg(%1): bf16[128, 64]
%5 = exp(%2): f32[0, 3]
out0 "class": %3
out1 "stream": %4
out2 "empty": %5
out3 "same": %0
out4 "again": %3
"""
GRAPHS = {
    "swiglu": EXAMPLES / "swiglu.json",
    "rope": EXAMPLES / "mistral_rope_forward.nvfuser.py",
    "contraction": EXAMPLES / "epilogue_operands.json",
}


@pytest.mark.soak
@pytest.mark.parametrize("name", in_turn([*GRAPHS, "awkward"], 1))
def test_a_predicted_plan_is_bundled_and_launched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = GRAPHS.get(name)
    named = read(file.read_text(), filename=file.name) if file else read(AWKWARD)
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    with Store(url) as store:
        plan = plan_graph(named, "h200", Budget(0.0), store, ObjectCache(tmp_path / "cache")).plan
    folder = tmp_path / "bundle"
    monkeypatch.setenv("FUSEPLAN_SIGNING_KEY", str(tmp_path / "key.pem"))
    assert main(["plans", "bundle", plan.plan_key, str(folder), "--db", url]) == 0
    assert "Nobody ran this plan." in capsys.readouterr().err
    bundle = read_bundle(folder)
    assert (bundle.names.inputs, bundle.names.outputs) == (named.input_names, named.output_names)
    again = read((folder / "graph.fuseplan.txt").read_text())
    assert replace(again, node_names=()) == NamedGraph(
        named.graph, named.input_names, named.output_names, again.notes
    ), "names of nodes are those of the canonical text, in its order"
    assert graph_key(again.graph) == plan.graph_key
    about = json.loads((folder / "bundle.json").read_text())
    assert [k["source"] is not None and (folder / k["source"]).exists() for k in about["kernels"]] == [True] * len(
        plan.steps
    )
    page = (folder / "README.md").read_text()
    for text in ("Nobody ran this plan", "python run.py", *(k["schedule"] for k in about["kernels"])):
        assert text in page
    loaded = _run(folder, plan.steps, monkeypatch)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == about["verified"]
    assert printed[1:] == [f"{t['name']!r}: {t['dtype']}{t['shape']}" for t in about["outputs"]]
    assert loaded.names == bundle.names


def _run(folder: Path, steps: Any, monkeypatch: pytest.MonkeyPatch) -> CudaPlan:
    """run.py on a stand-in for CuPy: every step is launched once, with an address for each argument."""
    fake = FakeCupy(arity={s.entry: len(s.args) for s in steps})
    fake.arity |= {f"{s.entry} maps": len(s.tensor_maps) for s in steps}
    for module in (launches, runtime, prologue):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    encoding = type("Driver", (), {"cuTensorMapEncodeTiled": staticmethod(lambda *_: 0)})
    monkeypatch.setattr(maps, "driver", lambda: encoding)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    found = runpy.run_path(str(folder / "run.py"), run_name="__main__")
    launched = [k for k in fake.log if hasattr(k, "entry")]
    assert [k.entry for k in launched] == [s.entry for s in steps]
    assert all(all(k.args) for k in launched)
    return found["plan"]
