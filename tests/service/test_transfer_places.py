"""For which device of a machine an imported plan is made: the real one, else the data sheet of one that is not here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from codegen.devices.detection import DeviceError
from codegen.hardware.gpus import specified
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import CompilerMissing
from fusion_ir.records import Device
from service.transfer import places
from service.transfer.places import NoDevice, Places
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE

H200 = specified("h200", "nvrtc 13")
REAL = H200.model_copy(update={"origin": "detected", "driver": "580", "ceilings": None})
H100 = specified("h100", "nvrtc 13").model_copy(update={"origin": "detected", "name": "NVIDIA H100 80GB HBM3"})
EMULATED = CPU_DEVICE.model_copy(update={"target": "emulator", "name": "emulated sm_90a", "arch": "sm_90a"})
UNKNOWN = H200.model_copy(update={"name": "NVIDIA Z9"})
TURNED = H200.model_copy(update={"features": ()})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Places]:
    """Makes the `Places` of a machine that has the given devices, by target, and the emulator. Without `nvrtc`, data
    sheets are of no use: looking for their devices raises CompilerMissing."""

    def make(nvrtc: bool = True, targets: dict[str, str] | None = None, **there: Device) -> Places:
        def detect(target: str, cache: ObjectCache) -> Device:
            if target in there:
                return there[target]
            if target == "emulator:sm_90a":
                return EMULATED
            if target.startswith("cuda"):
                raise DeviceError(f"no CUDA device: {target}")
            if not nvrtc:
                raise CompilerMissing("NVRTC is not installed")
            return specified(target, "nvrtc 13")

        monkeypatch.setattr(places, "detect", detect)
        return Places(targets or {}, ObjectCache(tmp_path / "cache"))

    return make


def test_what_is_here_is_measured(machine: Callable[..., Places]) -> None:
    there = machine(cpu=CPU_DEVICE, cuda=REAL)
    assert there.of(CPU_DEVICE) is CPU_DEVICE
    assert there.of(REAL) is REAL
    assert there.of(H200) is REAL, "predicted elsewhere, and here is one"
    assert there.of(EMULATED) is EMULATED
    assert machine(cuda=H100).of(specified("h100", "nvrtc 12")) is H100, "drivers say more of a name"


def test_the_target_that_was_named(machine: Callable[..., Places]) -> None:
    there = machine(targets={"cuda": "cuda:1"}, **{"cuda": H100, "cuda:1": REAL})
    assert there.of(H200) is REAL
    assert there.of(H100).origin == "specified"


def test_what_is_not_here_is_predicted(machine: Callable[..., Places]) -> None:
    assert machine().of(H200) == H200
    assert machine(cuda=H100).of(H200) == H200, "another GPU is here"
    assert machine().of(REAL) == H200, "measured elsewhere"


@pytest.mark.parametrize(
    ("made_for", "nvrtc", "words"),
    [
        (CPU_DEVICE, True, "unknown"),
        (CUDA_DEVICE, True, "no CUDA device: cuda"),
        (UNKNOWN, True, "predicts for h200, h100,"),
        (TURNED, True, "this version predicts for another NVIDIA H200"),
        (H200, False, "it cannot be predicted here either: NVRTC is not installed"),
        (REAL, False, "it cannot be predicted here either: NVRTC is not installed"),
    ],
    ids=["cpu", "no data sheet", "unknown", "another data sheet", "no compiler", "measured, no compiler"],
)
def test_what_can_neither_be_measured_nor_predicted(
    made_for: Device, nvrtc: bool, words: str, machine: Callable[..., Places]
) -> None:
    here = CPU_DEVICE.model_copy(update={"name": "unknown CPU"})
    with pytest.raises(NoDevice, match=words):
        machine(nvrtc, cpu=here).of(made_for)
