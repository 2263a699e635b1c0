"""The client's idea of this machine is the service's, over machines that are made up; GPUs by a driver that is."""

import ctypes
import os
import platform
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from fuseplan_client.device import NoDevice, class_key, cpu_facts, cuda_device

from codegen.hardware.machine import cpu_name, usable_cpus
from codegen.toolchain import cpu as toolchain
from codegen.toolchain.cpu import cpu_features, host_arch, host_features
from fusion_ir.records import Device

MACHINES = 150
FLAGS = [*toolchain.X86_FEATURES, *toolchain.ARM_FEATURES, "fpu", "ht", "avx9000", "lm", "fp", "evtstrm"]


def service_key(root: Path) -> str:
    """The class key that a service computes of the CPU, as `codegen.devices.detection` does."""
    device = Device(
        target="cpu", name=cpu_name(root), arch=host_arch(), features=cpu_features(root), units=len(usable_cpus(root)),
        vector_bytes=16, cache_bytes=0, memory_bytes=0, toolchain="",
    )  # fmt: skip
    return device.class_key


def write(root: Path, file: str, text: str) -> None:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text)


def cpuinfo(rng: random.Random, cpus: int) -> str:
    """Facts of each CPU, in the words of x86, of ARM or of nobody, some missing, some twice, some empty."""
    lines: list[str] = []
    name = rng.choice(("Intel(R) Xeon(R) Processor", "AMD EPYC 9B14", "", "a: b | c,d", "  Neoverse-V2 "))
    fields = {
        "model name": name,
        "cpu family": str(rng.randrange(30)),
        "model": str(rng.randrange(200)),
        "flags": " ".join(rng.sample(FLAGS, rng.randrange(len(FLAGS)))),
        "Features": " ".join(rng.sample(FLAGS, rng.randrange(len(FLAGS)))),
        "Model": "Raspberry Pi 5",
        "Hardware": "BCM2835",
        "vmx flags": "vnmi",
        "bugs": "",
    }
    kept = [field for field in fields if rng.random() < 0.6]
    for cpu in range(cpus):
        lines.append(f"processor\t: {cpu}")
        lines += [f"{field}\t: {fields[field]}" for field in kept if rng.random() < 0.95]
        lines.append("")
    return "\n".join(lines) + "\n" * rng.randrange(2)


def control_groups(rng: random.Random, root: Path) -> None:
    """Quotas by version 2, version 1, or both, at some of the groups; some without a limit, some malformed."""
    path = "/".join(("", *rng.sample(["kubepods", "pod1", "..", "docker", "a b"], rng.randrange(4))))
    told = (f"0::{path}", f"4:cpu,cpuacct:{path}", "2:memory:/other", "7:cpuset:/x", "1:name=systemd:/")
    lines = [line for line in told if rng.random() < 0.6]
    write(root, "proc/self/cgroup", "\n".join(lines) + "\n" * rng.randrange(2))
    for tree in ("sys/fs/cgroup", "sys/fs/cgroup/cpu"):
        at = tree
        for part in ["", *(p for p in path.split("/") if p not in ("", ".."))]:
            at = f"{at}/{part}".rstrip("/")
            if rng.random() < 0.4:
                quota = rng.choice(("max", "50000", "150000", "149999", "1000000", "0", "", "x"))
                period = rng.choice((" 100000", " 100000", " 0", "", " max"))
                write(root, f"{at}/cpu.max", f"{quota}{period}\n")
            if rng.random() < 0.4:
                write(root, f"{at}/cpu.cfs_quota_us", rng.choice(("-1", "50000", "250000", "1", "")) + "\n")
            if rng.random() < 0.4:
                write(root, f"{at}/cpu.cfs_period_us", rng.choice(("100000", "0", "50000", "?")) + "\n")


def siblings(rng: random.Random, root: Path, allowed: Iterable[int]) -> None:
    """Two threads a core, some of which the system does not tell."""
    for cpu in allowed:
        if rng.random() < 0.8:
            first = cpu // 2 * 2
            write(root, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{first}-{first + 1}\n")


def test_the_cpus_class_is_the_services_on_any_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed := random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")
    keys: set[str] = set()
    for i in range(MACHINES):
        root = tmp_path / str(i)
        allowed = set(rng.sample(range(64), rng.choice((1, 2, 3, 8, 48))))
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, allowed=allowed: allowed)
        machine, processor = rng.choice(("x86_64", "AMD64", "aarch64", "arm64", "riscv64")), rng.choice(("", "ppc"))
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        monkeypatch.setattr(platform, "processor", lambda processor=processor: processor)
        if rng.random() < 0.95:
            write(root, "proc/cpuinfo", cpuinfo(rng, min(len(allowed), 3)))
        if rng.random() < 0.8:
            control_groups(rng, root)
        siblings(rng, root, allowed)
        expected = service_key(root)
        assert class_key("cpu", root=root) == expected, f"machine {i}"
        assert cpu_facts.cpus(root) == len(usable_cpus(root))
        keys.add(expected)
    assert len(keys) > MACHINES / 2, "the machines that are made up are hardly different"


def test_the_class_of_this_machine_is_the_services() -> None:
    assert class_key() == service_key(Path("/"))
    assert cpu_features() == host_features()


def test_each_flag_that_compilers_know_of_is_told() -> None:
    assert set(toolchain.X86_FEATURES) == cpu_facts.X86_FLAGS
    assert set(toolchain.ARM_FEATURES) == cpu_facts.ARM_FLAGS


def test_a_group_file_of_other_words_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "nothing\n\n0::/\n")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "100000 100000\n")
    assert cpu_facts.cpus(tmp_path) == 1


class Driver:
    """A driver's library as ctypes gives it: functions that write through pointers and return an error."""

    def __init__(
        self, *devices: tuple[str, int, int, int], fails: str = "", status: int = 100, lacks: str = ""
    ) -> None:
        """devices: name, capability, multiprocessors of each. fails: the function that returns `status`."""
        self._devices, self._fails, self._status, self._lacks = devices, fails, status, lacks

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name == self._lacks or not name.startswith("cu"):
            raise AttributeError(name)
        return (lambda *_: self._status) if name == self._fails else getattr(self, f"_{name}")

    def _cuInit(self, flags: ctypes.c_uint) -> int:
        return 0 if flags.value == 0 else 1

    def _cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self._devices)
        return 0

    def _cuDeviceGet(self, device: Any, number: ctypes.c_int) -> int:
        device._obj.value = 100 + number.value
        return 0

    def _cuDeviceGetName(self, name: Any, size: ctypes.c_int, device: ctypes.c_int) -> int:
        name.value = self._devices[device.value - 100][0].encode()[: size.value - 1]
        return 0

    def _cuDeviceGetAttribute(self, value: Any, attribute: int, device: ctypes.c_int) -> int:
        _, major, minor, units = self._devices[device.value - 100]
        value._obj.value = {16: units, 75: major, 76: minor}[attribute.value]
        return 0


GPUS = [("NVIDIA H200", 9, 0, 132), ("NVIDIA A100-SXM4-80GB", 8, 0, 108), ("NVIDIA B200", 10, 0, 148),
        ("GB10", 12, 1, 48), ("NVIDIA B300", 10, 3, 148), ("A100 MIG 1g.10gb", 8, 0, 14)]  # fmt: skip
ARCHS = ["sm_90a", "sm_80", "sm_100a", "sm_121", "sm_103a", "sm_80"]


@pytest.mark.parametrize("libraries", [(), ("cublaslt",)])
@pytest.mark.parametrize("number", range(len(GPUS)))
def test_a_gpus_class_is_the_services(number: int, libraries: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device.ctypes, "CDLL", lambda name: Driver(*GPUS))
    monkeypatch.setattr(cuda_device, "called_libraries", lambda: libraries)
    device = Device(
        target="cuda", name=GPUS[number][0], arch=ARCHS[number], features=libraries, units=GPUS[number][3],
        vector_bytes=16, cache_bytes=0, memory_bytes=0, toolchain="",
    )  # fmt: skip
    assert class_key(f"cuda:{number}") == device.class_key
    assert number or class_key("cuda") == device.class_key


def test_the_suffixes_of_architectures_are_the_services() -> None:
    from codegen.child.cuda_bench import SUFFIXED

    assert cuda_device.SUFFIXED == SUFFIXED


def test_a_library_counts_where_it_can_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bindings:
        def __init__(self, error: Exception | None) -> None:
            self.error = error

        def get_version(self) -> int:
            if self.error:
                raise self.error
            return 130100

    for error, expected in ((None, ("cublaslt",)), (OSError("libcublasLt.so.13"), ()), (RuntimeError("no symbol"), ())):
        monkeypatch.setattr(cuda_device.importlib, "import_module", lambda name, error=error: Bindings(error))
        assert cuda_device.called_libraries() == expected
    monkeypatch.undo()

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(cuda_device.importlib, "import_module", absent)
    assert cuda_device.called_libraries() == ()


@pytest.mark.parametrize(
    ("driver", "why"),
    [
        (Driver(), "cuda:0 is not there, the driver shows 0"),
        (Driver(fails="cuInit", status=100), "cuInit of the driver gave error 100; it shows no device"),
        (Driver(fails="cuInit", status=3), "gave error 3"),
        (Driver(GPUS[0], fails="cuDeviceGetName", status=101), "cuDeviceGetName of the driver gave error 101"),
        (Driver(GPUS[0], lacks="cuDeviceGetAttribute"), "has no cuDeviceGetAttribute"),
    ],
)
def test_without_a_device_the_reason_is_told(driver: Driver, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device.ctypes, "CDLL", lambda name: driver)
    with pytest.raises(NoDevice, match=why):
        class_key("cuda")


def test_without_a_driver_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "DRIVER", "libcuda_that_is_not_there.so.1")
    with pytest.raises(NoDevice, match="is NVIDIA's driver installed"):
        class_key("cuda")


@pytest.mark.parametrize("target", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "CPU", "cuda:1 ", "emulator"])
def test_other_targets_are_refused(target: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        class_key(target)
