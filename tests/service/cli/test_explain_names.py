"""Names that `fuseplan explain` gives to the nodes of a graph, and its words for halves: predicted plans, in golden
files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fusion_ir.core.named import NamedGraph
from fusion_ir.formats import read
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Ceilings
from fusion_ir.text.printing import print_graph
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from tests.service.cli.conftest import Cli
from tests.support.devices import CUDA_DEVICE
from tuning_db.reading.graphs import Names
from tuning_db.requests import RequestKey
from tuning_db.store import Store

EXAMPLES = Path(__file__).parents[3] / "examples"
DEVICE = CUDA_DEVICE.model_copy(
    update={
        "ceilings": Ceilings(copy_gbps=((0, 2800.0),), read_gbps=((0, 3000.0),), launch_us=3.0, fma_gflops=50_000.0)
    }
)
SPLIT = json.dumps({
    "format": "fuseplan.graph", "version": 1,
    "inputs": [{"name": "x", "shape": [4, 2816, 64], "dtype": "f32"},
               {"name": "a", "shape": [64, 65536], "dtype": "bf16"},
               {"name": "b", "shape": [65536, 64], "dtype": "bf16"}],
    "nodes": [{"name": "total", "op": "sum", "args": ["x"], "attrs": {"axes": [1]}},
              {"name": "mu", "op": "mean", "args": ["x"], "attrs": {"axes": [0, 1]}},
              {"name": "sigma", "op": "var", "args": ["x"], "attrs": {"axes": [0, 1]}},
              {"name": "product", "op": "matmul", "args": ["a", "b"]},
              {"name": "act", "op": "gelu", "args": ["product"]}],
    "outputs": [{"node": name} for name in ("total", "mu", "sigma", "act")],
})  # fmt: skip
SOFTMAX = json.dumps({
    "format": "fuseplan.graph", "version": 1,
    "inputs": [{"name": "logits", "shape": [4, 1048576], "dtype": "f32"}],
    "nodes": [{"name": "p", "op": "softmax", "args": ["logits"], "attrs": {"axis": -1}}],
    "outputs": [{"node": "p"}],
})  # fmt: skip
GRAPHS = {
    "split": SPLIT,
    "softmax": SOFTMAX,
    "migraphx": (EXAMPLES / "distilgpt2_attention_tail.migraphx.txt").read_text(),
    "kernel_math": (EXAMPLES / "mistral_rope_first_part.kernel_math.txt").read_text(),
}


def stored(folder: Path, named: NamedGraph) -> str:
    """The key of the graph's predicted plan in the command line's database."""
    plan = tune(named.graph, DEVICE, Budget(0.0), Forgetful(), None, clock=lambda: 0.0)
    key = graph_key(named.graph)
    with Store(f"sqlite:///{folder / 'plans.db'}") as store:
        store.devices.put(DEVICE)
        store.graphs.put(key, print_graph(named.graph), Names.of_graph(named))
        return store.plans.put(RequestKey(key, DEVICE.class_key), plan, "predicted", {}, {})


@pytest.mark.parametrize("name", GRAPHS)
def test_explain(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None], name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    ended = cli("explain", stored(tmp_path, read(GRAPHS[name])))
    assert ended.code == 0, ended.err
    text = ended.out[ended.out.index("kernel 0") :]
    golden(f"explain.{name}.txt", "\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def test_the_graph_is_printed_where_it_is_referred_to(cli: Cli, tmp_path: Path) -> None:
    key = stored(tmp_path, read(SPLIT))
    assert "The graph" not in cli("explain", key).out, "every node that is spoken of has a name"
    assert "%6 product = contract(" in cli("explain", key, "--graph").out
    key = stored(tmp_path, read(SOFTMAX))
    assert "%1 = max(%0)" in cli("explain", key).out


def test_json_has_names_graph_and_halves(cli: Cli, tmp_path: Path) -> None:
    named = read(SPLIT)
    found = json.loads(cli("explain", stored(tmp_path, named), "--json").out)
    assert found["names"] == {
        "inputs": list(named.input_names),
        "outputs": list(named.output_names),
        "nodes": list(named.node_names),
    }
    assert found["graph"] == print_graph(named.graph)
    product = named.node_names.index("product")
    halves = [(h["half"], h["parts"] * h["terms"]) for s in found["steps"] for h in s["halves"] if h["node"] == product]
    assert sorted(halves) == [("first", 65536), ("second", 65536)]
