"""Devices: what this machine is, and clear words where there is no such device."""

from pathlib import Path

import pytest

from codegen.devices.detection import DeviceError, detect
from codegen.hardware.machine import cache_levels, cpu_name, cpu_quota, memory_bytes, usable_cpus
from codegen.sandbox.object_cache import ObjectCache


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path)


def test_the_cpu_is_described(cache: ObjectCache) -> None:
    device = detect("cpu", cache, ceilings=False)
    assert device.target == "cpu"
    assert device.name
    assert device.units == len(usable_cpus())
    assert device.vector_bytes in (16, 32, 64)
    assert device.memory_bytes > 1 << 28
    assert device.toolchain
    assert device == detect("cpu", cache, ceilings=False)
    for threads in (1, 2, 999):
        fewer = detect(f"cpu:{threads}", cache, ceilings=False)
        assert fewer.units == min(threads, device.units)
        assert (fewer.class_key == device.class_key) is (fewer.units == device.units)


@pytest.mark.parametrize("target", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "cpu:", "cpu:x", "CPU"])
def test_unknown_targets(cache: ObjectCache, target: str) -> None:
    with pytest.raises(ValueError, match="unknown target"):
        detect(target, cache)


def test_no_such_cuda_device_says_what_is_missing(cache: ObjectCache) -> None:
    """CuPy, or what it takes beside it: tests/unit/codegen/test_missing_cuda.py has each."""
    with pytest.raises(DeviceError, match=r"no CUDA device: .*(fuseplan\[cuda13\]|CuPy is there)"):
        detect("cuda:99", cache)


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_quotas_of_control_groups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    two = _write(
        tmp_path / "two",
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/b/memory.max": "1073741824\n",
            "proc/meminfo": "MemTotal:  4194304 kB\n",
        },
    )
    assert cpu_quota(two) == 1.5
    assert memory_bytes(two) == 1 << 30
    assert len(usable_cpus(two)) <= 2
    one = _write(
        tmp_path / "one",
        {
            "proc/self/cgroup": "4:memory:/x\n2:cpu,cpuacct:/x\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            "proc/meminfo": "MemTotal:  4194304 kB\n",
        },
    )
    assert cpu_quota(one) == 0.5
    assert len(usable_cpus(one)) == 1
    assert memory_bytes(one) == 4 << 30


def test_caches_are_summed_over_the_cpus_that_do_not_share_them(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for cpu in (0, 1):
        for index, (level, kind, size, shared) in enumerate(
            [
                (1, "Data", "48K", str(cpu)),
                (1, "Instruction", "32K", str(cpu)),
                (2, "Unified", "1M", str(cpu)),
                (3, "Unified", "32M", "0-1"),
            ]
        ):
            folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
            files |= {
                f"{folder}/level": str(level),
                f"{folder}/type": kind,
                f"{folder}/size": size,
                f"{folder}/shared_cpu_list": shared,
            }
    root = _write(tmp_path, {**files, "proc/cpuinfo": "processor : 0\nmodel name\t: Some CPU\n"})
    assert cache_levels((0, 1), root) == (96 << 10, 2 << 20, 32 << 20)
    assert cache_levels((0,), root) == (48 << 10, 1 << 20, 32 << 20)
    assert cache_levels((), root) == ()
    assert cpu_name(root) == "Some CPU"


def test_processors_of_one_name_and_different_models_are_different_devices(tmp_path: Path) -> None:
    """Virtual machines name different models alike, and the best plan for one may be the slower choice on another."""
    names: list[str] = []
    for number, (family, model) in enumerate((("25", "17"), ("26", "2"), ("26", "17"))):
        text = f"processor\t: 0\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: AMD EPYC\nstepping\t: 1\n"
        root = _write(tmp_path / str(number), {"proc/cpuinfo": text * 2})
        names.append(cpu_name(root))
    assert names[0] == "AMD EPYC (family 25, model 17)"
    assert len(set(names)) == 3
