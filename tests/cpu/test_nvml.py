"""The management library of NVIDIA's driver, played by a library of our own: facts, missing functions, no device."""

import ctypes
import os
import subprocess
import threading
from pathlib import Path

import pytest

from codegen.child.nvml import CudaWatch, Nvml
from codegen.hardware.machine import usable_cpus
from codegen.toolchain.cpu import find_compiler
from fusion_ir.records import Moment

PLAYED = """
#include <cstring>
static int look = 0;
extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  *device = (void*)0x1234567890ab;
  return std::strcmp(id, "0000:1B:00.0") ? 6 : 0;
}
int nvmlSystemGetDriverVersion(char* text, unsigned length) { std::strncpy(text, "580.65.06", length); return 0; }
static int mine(void* device) { return device == (void*)0x1234567890ab ? 0 : 2; }
int nvmlDeviceGetClockInfo(void* d, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? 1980 - 225 * look++ : 2619;
  return mine(d);
}
int nvmlDeviceGetPowerUsage(void* d, unsigned* mw) { *mw = 412345; return mine(d); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* d, unsigned long long* bits) {
  *bits = 0x100000000204ull;
  return mine(d);
}
OLDER
}
"""
NEWER = """
int nvmlDeviceGetTemperature(void* d, int sensor, unsigned* c) { *c = 54; return mine(d); }
int nvmlDeviceGetEnforcedPowerLimit(void* d, unsigned* mw) { *mw = 700000; return mine(d); }
int nvmlDeviceGetComputeRunningProcesses_v3(void* d, unsigned* count, void* found) {
  bool small = *count < 2;
  *count = 2;
  return mine(d) ? 2 : small ? 7 : 0;
}
"""


def library(folder: Path, more: str) -> str:
    source = folder / "nvml.cpp"
    source.write_text(PLAYED.replace("OLDER", more))
    command = [*find_compiler().command, str(source), "-shared", "-fPIC", "-o", str(folder / "nvml.so")]
    subprocess.run(command, check=True)
    return str(folder / "nvml.so")


def test_a_race_on_a_device_that_gets_slower(tmp_path: Path) -> None:
    watch = CudaWatch("0000:1B:00.0", library(tmp_path, NEWER))
    with watch:
        assert watch.seen is None
    seen = watch.seen
    assert seen is not None
    reasons = ("power cap", "0x200", "0x100000000000")
    assert seen.start == Moment(
        clock_mhz=(1980.0,),
        memory_clock_mhz=2619.0,
        temperature_c=54.0,
        power_w=412.345,
        throttled=reasons,
        processes=2,
    )
    assert seen.end.clock_mhz == (1755.0,)
    assert (seen.system, seen.power_limit_w) == ("580.65.06", 700.0)


def system(folder: Path, stolen: int, waited_ms: int) -> None:
    """Writes /proc files under `folder`: the ticks that a hypervisor stole from each CPU, and the milliseconds that
    this thread waited for a CPU."""
    cpus = "".join(f"cpu{cpu} 1 2 3 4 5 6 7 {stolen}\n" for cpu in usable_cpus(folder))
    waited = f"proc/self/task/{threading.get_native_id()}/schedstat"
    for name, text in (("proc/stat", cpus), (waited, f"1 {waited_ms * 10**6} 1\n")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_who_disturbed_the_thread_that_queues_kernels(tmp_path: Path) -> None:
    system(tmp_path, stolen=100, waited_ms=3)
    watch = CudaWatch("0000:1B:00.0", "libno-such-library.so.1", tmp_path)
    made = 0

    def visit() -> list[float]:
        nonlocal made
        made += 1
        if made == 2:
            system(tmp_path, stolen=102, waited_ms=60_003)
        return [float(made)]

    with watch:
        assert [list(watch.disturbance.take(visit)) for _ in range(2)] == [[1.0], [3.0]]
    seen = watch.seen
    assert seen is not None
    assert (seen.waited_ms, seen.repeated, seen.disturbed) == (60_000.0, 1, 0.0)
    assert seen.steal_ms == 2e3 * len(usable_cpus(tmp_path)) / os.sysconf("SC_CLK_TCK")
    assert seen.switches is not None


def test_functions_that_a_driver_lacks_leave_facts_out(tmp_path: Path) -> None:
    device = Nvml("0000:1B:00.0", library(tmp_path, ""))
    assert device.power_limit_w() is None
    assert (device.look().temperature_c, device.look().processes) == (None, None)
    assert device.look().power_w == 412.345


def test_without_library_or_device_nothing_is_known(tmp_path: Path) -> None:
    for device in (Nvml("0000:1B:00.0", "libno-such-library.so.1"), Nvml("0000:FF:00.0", library(tmp_path, NEWER))):
        assert device.look() == Moment()
        assert device.driver() == ""


@pytest.mark.parametrize("name", ["libnvidia-ml.so.1"])
def test_this_machine_has_one_or_the_child_still_works(name: str) -> None:
    """Whatever is installed here: looking never raises."""
    watch = CudaWatch("0000:00:00.0", name)
    with watch:
        pass
    assert watch.seen is not None
    try:
        ctypes.CDLL(name)
    except OSError:
        assert watch.seen.start == Moment()
