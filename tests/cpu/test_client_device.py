"""The client's class keys against a whole detection, and against a driver that is a real library."""

import subprocess
from pathlib import Path

import pytest
from fuseplan_client.device import class_key, cuda_device

from codegen.devices.detection import detect
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.cpu import find_compiler
from tests.support.devices import CUDA_DEVICE

PLAYED = """
#include <cstring>
extern "C" {
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int number) { *device = 7 + number; return 0; }
int cuDeviceGetName(char* name, int length, int device) {
  std::strncpy(name, device == 8 ? "NAME" : "?", length);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 16 ? UNITS : attribute == 75 ? 9 : attribute == 76 ? 0 : -1;
  return device == 8 ? 0 : 101;
}
}
"""


def test_the_class_of_this_cpu_is_that_of_a_whole_detection(tmp_path: Path) -> None:
    for target in ("cpu", "cpu:1", "cpu:2", "cpu:999"):
        assert class_key(target) == detect(target, ObjectCache(tmp_path), ceilings=False).class_key


def test_a_gpu_is_told_by_a_driver_that_is_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = CUDA_DEVICE.model_copy(update={"arch": "sm_90a", "features": ()})
    source = tmp_path / "cuda.cpp"
    source.write_text(PLAYED.replace("NAME", device.name).replace("UNITS", str(device.units)))
    command = [*find_compiler().command, str(source), "-shared", "-fPIC", "-o", str(tmp_path / "cuda.so")]
    subprocess.run(command, check=True)
    monkeypatch.setattr(cuda_device, "DRIVER", str(tmp_path / "cuda.so"))
    monkeypatch.setattr(cuda_device, "called_libraries", lambda: ())
    assert class_key("cuda:1") == device.class_key
    with pytest.raises(cuda_device.NoDevice, match="error 101"):
        class_key("cuda")
