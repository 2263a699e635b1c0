"""GRAPH arguments of commands that never search: the plan that is stored for the graph on a target."""

import json
from pathlib import Path

import pytest

from codegen.hardware.gpus import specified
from fusion_ir.records import Numerics
from tests.service.cli.conftest import Cli
from tests.support.devices import CUDA_DEVICE
from tests.support.stored_plans import DEVICE, chain, plan_of, put_plan
from tuning_db.store import Store

SHOWS = (("source",), ("plans", "show"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The graph, whose tensors are called otherwise than as it was stored."""
    path = tmp_path / "chain.json"
    path.write_text(
        json.dumps({
            "format": "fuseplan.graph", "version": 1, "inputs": [{"name": "mine", "shape": [8], "dtype": "f32"}],
            "nodes": [{"name": "e", "op": "exp", "args": ["mine"]}, {"name": "n", "op": "neg", "args": ["e"]}],
            "outputs": [{"node": "n"}],
        })
    )  # fmt: skip
    return path


def store_for(folder: Path, target: str, numerics: Numerics = "reassociate") -> str:
    """The key of a stored plan for a device of the target."""
    device = {"cpu": DEVICE, "cuda": CUDA_DEVICE, "h200": specified("h200", "NVRTC 13.0")}[target]
    plan = plan_of(chain()).model_copy(update={"device": device, "numerics": numerics})
    with Store(f"sqlite:///{folder / 'plans.db'}") as store:
        return put_plan(store, chain(), None, plan, device=device)


@pytest.mark.parametrize("command", SHOWS)
def test_the_plan_of_a_graph_is_the_one_for_its_target(
    cli: Cli, tmp_path: Path, file: Path, command: tuple[str, ...]
) -> None:
    keys = {target: store_for(tmp_path, target) for target in ("cpu", "h200")}
    for target, key in keys.items():
        shown = cli(*command, file, "--target", target, "--json")
        assert (shown.code, json.loads(shown.out)["plan_key"]) == (0, key), shown.err
    assert json.loads(cli(*command, file, "--json").out)["plan_key"] == keys["cpu"], "the default target"
    assert "mine" in cli(*command, file).out, "by the names of the file"
    assert "x0" in cli(*command, keys["cpu"]).out, "by those under which it was stored"


@pytest.mark.parametrize("command", SHOWS)
def test_where_there_is_none_it_says_to_tune(cli: Cli, tmp_path: Path, file: Path, command: tuple[str, ...]) -> None:
    store_for(tmp_path, "h200")
    for options, made in (
        ((), "--target cpu` makes one"),
        (("--target", "h100"), "--target h100` makes one"),
        (("--target", "h200", "--numerics", "exact"), "--target h200 --numerics exact` makes one"),
    ):
        ended = cli(*command, file, *options)
        words = " ".join(ended.err.split())
        assert (ended.code, ended.out) == (2, ""), ended
        assert "no plan of it for " in words
        assert f"{made}; there are plans for NVIDIA H200 (cuda, reassociate)" in words
