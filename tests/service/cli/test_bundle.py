"""`fuseplan plans bundle`: the folder that is written is one that the client reads."""

from pathlib import Path

import pytest
from fuseplan_client import read_bundle

from tests.service.cli.conftest import Cli
from tests.support import stored_plans
from tests.support.devices import CUDA_DEVICE
from tests.support.stored_plans import BINARY, chain, sha, store_plan
from tuning_db import Store


@pytest.fixture
def plan_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a stored plan for a CUDA device."""
    monkeypatch.setattr(stored_plans, "DEVICE", CUDA_DEVICE)
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        return store_plan(store, chain())


def test_a_bundle_is_what_the_client_reads(cli: Cli, tmp_path: Path, plan_key: str) -> None:
    ended = cli("plans", "bundle", plan_key[:12], tmp_path / "bundle")
    assert (ended.code, ended.err) == (0, f"wrote the plan and 1 kernel to {tmp_path / 'bundle'}\n"), ended
    bundle = read_bundle(tmp_path / "bundle")
    assert bundle.key == plan_key
    assert bundle.binaries == {sha(BINARY): BINARY}
    assert [step.entry for step in bundle.plan.steps] == ["k"]
    again = cli("plans", "bundle", plan_key, tmp_path / "bundle")
    assert (again.code, "expected a new folder" in again.err) == (2, True)


def test_plans_of_cpus_are_none_for_the_client(cli: Cli, tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        key = store_plan(store, chain())
    ended = cli("plans", "bundle", key, tmp_path / "bundle")
    assert ended.code == 2
    assert 'expected a plan for target "cuda", this one is for "cpu"' in ended.err
    assert not (tmp_path / "bundle").exists()
