"""State of the machine during a race (clocks, load, stolen time), read from system files, some of which are hidden."""

from pathlib import Path

from codegen.timing.protocol import race
from codegen.timing.surroundings import CpuWatch


def system(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


PHYSICAL = {
    "proc/loadavg": "1.25 0.50 0.10 3/712 4242\n",
    "proc/stat": "cpu 0 0 0 0 0 0 0 99\ncpu0 1 2 3 4 5 6 7 100 0 0\ncpu1 1 2 3 4 5 6 7 200 0 0\nintr 5\n",
    "proc/self/cgroup": "0::/user/box\n",
    "sys/fs/cgroup/user/box/cpu.stat": "usage_usec 5\nthrottled_usec 2000\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3100000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2900500\n",
    "sys/devices/system/cpu/cpu0/cpufreq/base_frequency": "2600000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "7\n",
    "sys/class/thermal/thermal_zone0/type": "acpitz\n",
    "sys/class/thermal/thermal_zone0/temp": "99000\n",
    "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp\n",
    "sys/class/thermal/thermal_zone1/temp": "61500\n",
}


def test_everything_that_a_physical_machine_says(tmp_path: Path) -> None:
    root = system(tmp_path, PHYSICAL)
    watch = CpuWatch((0, 1), root)
    with watch:
        assert watch.seen is None
        (root / "proc/stat").write_text("cpu0 1 2 3 4 5 6 7 103\ncpu1 1 2 3 4 5 6 7 201\n")
        (root / "sys/fs/cgroup/user/box/cpu.stat").write_text("throttled_usec 14500\n")
        (root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq").write_text("2000000\n")
        (root / "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count").write_text("9\n")
    seen = watch.seen
    assert seen is not None
    assert (seen.start.clock_mhz, seen.end.clock_mhz) == ((3100.0, 2900.5), (2000.0, 2900.5))
    assert (seen.start.load, seen.start.runnable, seen.start.temperature_c) == (1.25, 3, 61.5)
    assert (seen.base_clock_mhz, seen.governor, seen.huge_pages) == (2600.0, "powersave", "madvise")
    assert (seen.steal_ms, seen.quota_ms, seen.throttles) == (40.0, 12.5, 2)  # a tick is 10 ms
    assert seen.cpus == (0, 1)


def test_what_a_system_hides_is_none(tmp_path: Path) -> None:
    watch = CpuWatch((0, 1), tmp_path)
    with watch:
        pass
    seen = watch.seen
    assert seen is not None
    assert seen.start == seen.end
    assert set(seen.start.model_dump().values()) == {None}
    known = seen.model_dump(exclude_none=True)
    assert sorted(known) == ["cpus", "end", "faults", "seconds", "start", "switches", "system"]


def test_a_virtual_machine_says_its_clocks_in_cpuinfo(tmp_path: Path) -> None:
    lines = "".join(f"processor\t: {n}\nmodel name\t: x\ncpu MHz\t\t: {2000 + n}.5\n\n" for n in range(4))
    for cpus, expected in (((3, 1), (2003.5, 2001.5)), ((1, 9), None)):
        watch = CpuWatch(cpus, system(tmp_path, {"proc/cpuinfo": lines}))
        with watch:
            pass
        assert watch.seen is not None
        assert watch.seen.start.clock_mhz == expected


def test_control_groups_of_the_first_version(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "1:cpu,cpuacct:/box\n", "sys/fs/cgroup/cpu/box/cpu.stat": "throttled_time 5000000\n"}
    watch = CpuWatch((0,), system(tmp_path, files))
    with watch:
        (tmp_path / "sys/fs/cgroup/cpu/box/cpu.stat").write_text("nr_throttled 3\nthrottled_time 8000000\n")
    assert watch.seen is not None
    assert watch.seen.quota_ms == 3.0


def test_the_watch_is_around_the_finalists_rounds_alone(tmp_path: Path) -> None:
    """Looking at the machine takes system calls: none between samples, and none that a screened candidate pays for."""
    calls: list[str] = []

    class Watch:
        def __enter__(self) -> None:
            calls.append("enter")

        def __exit__(self, *exception: object) -> None:
            calls.append("exit")

    def sample(i: int, samples: int) -> list[float]:
        calls.append(str(i))
        return [1000.0 if i == 0 else 9000.0] * samples

    race(2, sample, seconds=0.0, watch=Watch())
    entered = calls.index("enter")
    assert calls[-1] == "exit"
    assert set(calls[entered + 1 : -1]) == {"0"}
    assert "1" in calls[:entered]
