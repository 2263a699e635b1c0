"""`fuseplan plans bundle`: the folder that is written is one that the client reads."""

import json
from pathlib import Path

import pytest
from fuseplan_client import read_bundle

from codegen.hardware.gpus import specified
from fusion_ir.keys.graph_key import graph_key
from tests.service.cli.conftest import Cli
from tests.support import stored_plans
from tests.support.devices import CUDA_DEVICE
from tests.support.stored_plans import BINARY, chain, plan_of, put_plan, sha, store_plan
from tuning_db.requests import RequestKey
from tuning_db.store import Store


@pytest.fixture
def plan_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Key of a stored plan for a CUDA device."""
    monkeypatch.setattr(stored_plans, "DEVICE", CUDA_DEVICE)
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        return store_plan(store, chain())


def test_a_bundle_is_what_the_client_reads(cli: Cli, tmp_path: Path, plan_key: str) -> None:
    ended = cli("plans", "bundle", plan_key[:12], tmp_path / "bundle")
    assert ended.code == 0, ended
    assert f"wrote the plan and 1 kernel to {tmp_path / 'bundle'}; run it there: python run.py\n" in ended.err
    assert "The plan's outputs were the interpreter's, on random inputs" in ended.err
    public = cli("key", "show").out.strip()
    bundle = read_bundle(tmp_path / "bundle", server_keys=[public])
    assert bundle.key == plan_key
    assert bundle.binaries == {sha(BINARY): BINARY}
    assert (bundle.names.inputs, bundle.names.outputs) == (("x0",), ("y0",))
    assert bundle.verified in ended.err
    assert (tmp_path / "bundle" / "sources" / "00_pointwise.cu").read_text() == "void k() {}\n"
    assert [step.entry for step in bundle.plan.steps] == ["k"]
    other = cli("plans", "bundle", plan_key, "-o", tmp_path / "other")
    assert (other.code, read_bundle(tmp_path / "other").key) == (0, plan_key)
    assert "load('other')  # the path of this folder" in (tmp_path / "other" / "README.md").read_text()
    for more, got in (((), "none"), ((tmp_path / "x", "-o", tmp_path / "y"), "2")):
        refused = cli("plans", "bundle", plan_key, *more)
        assert (refused.code, f"expected one folder, as FOLDER or with -o, got {got}" in refused.err) == (2, True)
    assert json.loads(cli("key", "show", "--json").out)["public_key"] == public
    key_file = tmp_path / ".local" / "share" / "fuseplan" / "signing_key.pem"
    assert key_file.stat().st_mode & 0o777 == 0o600
    again = cli("plans", "bundle", plan_key, tmp_path / "bundle")
    assert (again.code, "expected a new folder" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arch": "riscv64"}, "the plan is for CPUs of riscv64"),
        (
            {"target": "emulator"},
            "this plan is for Test CPU (emulator): `fuseplan tune GRAPH --target h200 --seconds 0`",
        ),
    ],
)
def test_plans_that_nothing_here_runs(
    changes: dict[str, str], words: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan for the emulator, or for CPUs of another architecture, is not bundled; one line says what to do."""
    device = stored_plans.DEVICE.model_copy(update=changes)
    monkeypatch.setattr(stored_plans, "DEVICE", device)
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        key = store_plan(store, chain())
    ended = cli("plans", "bundle", key, tmp_path / "bundle")
    assert ended.code == 2
    assert words.format(key=key[:12]) in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "bundle").exists()


def test_a_plan_that_failed_is_given_to_nobody(cli: Cli, tmp_path: Path, plan_key: str) -> None:
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        assert store.plans.mark(RequestKey(graph_key(chain()), CUDA_DEVICE.class_key), "failed")
    ended = cli("plans", "bundle", plan_key, tmp_path / "bundle")
    assert (ended.code, "failed its last check" in ended.err) == (1, True)
    assert not (tmp_path / "bundle").exists()


def test_a_predicted_plan_says_that_nobody_ran_it(cli: Cli, tmp_path: Path) -> None:
    plan = plan_of(chain()).model_copy(
        update={"device": specified("h200", "NVRTC 13.0"), "time_us": None, "spread": None, "predicted_us": 3.0}
    )
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        key = put_plan(store, chain(), None, plan, state="predicted", device=plan.device)
    ended = cli("plans", "bundle", key, tmp_path / "bundle", "--json")
    told = json.loads(ended.out)
    assert (told["ran"], told["sources"]) == (False, ["sources/00_pointwise.cu"])
    assert told["verified"].startswith("Nobody ran this plan.")
    assert told["verified"] == read_bundle(tmp_path / "bundle").verified


def test_a_key_that_others_can_read_signs_nothing(cli: Cli, tmp_path: Path, plan_key: str) -> None:
    cli("key", "show")
    (tmp_path / ".local" / "share" / "fuseplan" / "signing_key.pem").chmod(0o644)
    for command in (("plans", "bundle", plan_key, tmp_path / "bundle"), ("key", "show"), ("serve", "--port", "0")):
        ended = cli(*command)
        assert (ended.code, ended.out) == (2, "")
        assert "others can read or write the signing key" in " ".join(ended.err.split())
    assert not (tmp_path / "bundle").exists()
