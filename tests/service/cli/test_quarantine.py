"""A device out of service: shown by every command and endpoint that lists devices, and released by one."""

import json
from pathlib import Path

import pytest

from codegen.devices.quarantine import DeviceQuarantined, Quarantines
from codegen.sandbox.object_cache import ObjectCache
from service import worker
from service.api.operations import problem_of
from service.cli.commands import devices
from tests.service.api.test_worker import ended, planning, submit
from tests.service.cli.conftest import Cli
from tests.support.service_app import running
from tests.support.stored_plans import DEVICE
from tuning_db.store import Store


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quarantines:
    """The stored plans' device, which gave wrong sums. The machine has nothing else."""

    def detect(target: str, cache: ObjectCache, **_: object) -> object:
        if target == "cpu":
            return DEVICE
        raise devices.DeviceError("there is no driver")

    monkeypatch.setattr(devices, "detect", detect)
    made = Quarantines(ObjectCache(tmp_path / "cache"))
    made.add(DEVICE, "wrong sums")
    return made


def test_devices_and_doctor_show_it(cli: Cli, facts: Quarantines) -> None:
    assert "Test CPU is out of service" in cli("devices").err
    shown = json.loads(cli("devices", "--json").out)["quarantined"]
    assert shown[DEVICE.class_key]["reason"] == "wrong sums"
    ended = cli("doctor")
    assert ended.code == 1
    assert "wrong sums" in ended.out


@pytest.mark.parametrize("name", [DEVICE.class_key, DEVICE.name, "cpu"])
def test_it_is_released_by_key_name_or_target(cli: Cli, facts: Quarantines, name: str) -> None:
    refused = cli("devices", "--release", "cuda")
    assert refused.code == 2
    assert DEVICE.class_key in refused.err
    assert "is in service again" in cli("devices", "--release", name).err
    assert facts.all() == []


def test_the_api_shows_it(tmp_path: Path, facts: Quarantines) -> None:
    with running(tmp_path) as service:
        shown = service.client.get("/v1/devices").json()["quarantined"]
        assert shown[DEVICE.class_key]["reason"] == "wrong sums"
        facts.release(DEVICE.class_key)
        assert service.client.get("/v1/devices").json()["quarantined"] == {}


def test_a_worker_ends_the_operation_with_a_problem_of_its_own(
    tmp_path: Path, facts: Quarantines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*_: object, **__: object) -> None:
        raise DeviceQuarantined(facts.all()[0])

    planning(monkeypatch, plan)
    with running(tmp_path) as service, Store(service.settings.db) as store:
        operation = submit(store)
        assert worker.Worker(service.settings, store).step()
        problem = problem_of(ended(store, operation))
    assert (problem.type, problem.status) == ("/errors/device-quarantined", 503)
    assert "wrong sums" in problem.detail
