"""A worker takes what is for devices of its machine, by class and not by name, and asks it once for each."""

from pathlib import Path

import pytest

from codegen.devices.detection import DeviceError
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.records import Device
from service.jobs import PlanJob
from service.planning import devices_here
from service.planning.devices_here import DeviceChanged, DevicesHere
from tests.support.stored_plans import DEVICE

A100 = DEVICE.model_copy(update={"target": "cuda", "name": "A100", "arch": "sm_80"})
H200 = DEVICE.model_copy(update={"target": "cuda", "name": "H200", "arch": "sm_90a"})


class Machine:
    """A machine with one CPU and these GPUs; how often it was asked for each name."""

    def __init__(self, *gpus: Device) -> None:
        self.gpus, self.asked = list(gpus), list[str]()

    def detect(self, target: str, _cache: ObjectCache, *, ceilings: bool = True) -> Device:
        self.asked.append(target)
        kind, _, number = target.partition(":")
        if kind == "cpu":
            return DEVICE
        if int(number or 0) >= len(self.gpus):
            raise DeviceError(f"no CUDA device {number}")
        return self.gpus[int(number or 0)]


def payload(target: str) -> str:
    return PlanJob(graph_key="0" * 64, target=target, seconds=1.0, numerics="exact").model_dump_json()


def test_gpus_are_known_by_their_class_whatever_their_number(tmp_path: Path) -> None:
    machine = Machine(A100, H200)
    here = DevicesHere(ObjectCache(tmp_path), machine.detect)
    assert (here.classes, here.known) == ([], [])
    assert here.look({H200.class_key: payload("cuda"), DEVICE.class_key: payload("cpu")})
    assert set(here.classes) == {H200.class_key, DEVICE.class_key}
    assert machine.asked == ["cuda:0", "cuda:1", "cpu"]
    assert here.device(H200.class_key, "cuda") is H200
    assert here.device(None, "cuda") is A100
    machine.gpus.reverse()
    with pytest.raises(DeviceChanged, match=f"^cuda:1 is another device by now: {A100.class_key}$"):
        here.device(H200.class_key, "cuda")
    assert here.classes == [DEVICE.class_key]
    assert here.look({H200.class_key: payload("cuda")})
    assert here.device(H200.class_key, "cuda") is H200
    assert machine.asked[3:] == ["cuda:1", "cuda", "cuda:1", "cuda:0", "cuda:0"]


def test_what_is_not_here_is_asked_for_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(A100)
    here = DevicesHere(ObjectCache(tmp_path), machine.detect)
    assert not here.look({H200.class_key: payload("cuda")})
    assert (here.classes, here.known) == ([], [H200.class_key])
    monkeypatch.setattr(devices_here, "AGAIN_SECONDS", 0.0)
    assert here.known == []
    machine.gpus.append(H200)
    assert here.look({H200.class_key: payload("cuda:7")})
    assert here.classes == here.known == [H200.class_key]


def test_a_cpu_of_another_class_is_not_taken_for_this_one(tmp_path: Path) -> None:
    other = DEVICE.model_copy(update={"units": 64})
    here = DevicesHere(ObjectCache(tmp_path), Machine().detect)
    assert not here.look({other.class_key: payload("cpu"), "cpu-0": "no payload"})
    assert here.classes == []
