"""The machine around a race on the CPU, looked at before and after: from /proc and /sys, as any process may read them.

Nothing runs in between: what happened meanwhile is the difference of the system's own counters.
"""

import os
import platform
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from codegen.hardware.machine import ROOT, control_groups, cpu_ticks, system_text
from codegen.timing.disturbance import STEAL, Disturbance, RunQueue, Steal
from fusion_ir.records import Moment, Surroundings

BUSY = (1, 2, 3, 6, 7)  # columns of /proc/stat: user, nice, system, interrupts of both kinds


@dataclass(frozen=True, slots=True)
class _Counters:
    """Counts since the system or this process started; None where they are hidden."""

    seconds: float
    steal_ms: float | None
    busy_ms: float | None  # of the CPUs, whoever used them
    own_ms: float  # of CPU time that we used
    quota_ms: float | None
    throttles: float | None
    switches: int
    faults: int


class CpuWatch:
    """A context manager around a race on these CPUs; `seen` holds the surroundings after exit. root: of the system's
    files. disturbance: takes samples and notices other processes and machines that disturb them."""

    def __init__(self, cpus: Sequence[int], root: Path = ROOT) -> None:
        self.seen: Surroundings | None = None
        self._cpus, self._root = tuple(cpus), root
        self._before: tuple[Moment, _Counters] | None = None
        self.disturbance = Disturbance(RunQueue(root), Steal(self._cpus, root))

    def __enter__(self) -> "CpuWatch":
        self._before = self._look(), self._count()
        self.disturbance.reset()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        (start, before), after, end = self._before, self._count(), self._look()
        folder = self._root / f"sys/devices/system/cpu/cpu{self._cpus[0]}/cpufreq"
        policy = system_text(self._root / "sys/kernel/mm/transparent_hugepage/enabled")
        self.seen = Surroundings(
            start=start,
            end=end,
            seconds=round(after.seconds - before.seconds, 6),
            system=f"{platform.system()} {platform.release()}",
            cpus=self._cpus,
            base_clock_mhz=_mhz(system_text(folder / "base_frequency")),
            governor=system_text(folder / "scaling_governor") or None,
            huge_pages=policy.partition("[")[2].partition("]")[0] or None,
            steal_ms=_since(before.steal_ms, after.steal_ms),
            others_ms=_others(before, after),
            waited_ms=_rounded(self.disturbance.waited_ms),
            repeated=self.disturbance.repeats,
            disturbed=_rounded(self.disturbance.share),
            quota_ms=_since(before.quota_ms, after.quota_ms),
            throttles=_since(before.throttles, after.throttles),
            switches=after.switches - before.switches,
            faults=after.faults - before.faults,
        )

    def _look(self) -> Moment:
        load, _, rest = system_text(self._root / "proc/loadavg").partition(" ")
        runnable = rest.split(" ")[-2].partition("/")[0] if rest.count(" ") >= 3 else ""
        return Moment(
            clock_mhz=self._clocks_mhz(),
            temperature_c=self._temperature_c(),
            load=float(load) if load else None,
            runnable=int(runnable) if runnable.isdigit() else None,
        )

    def _count(self) -> _Counters:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        folders = [self._root / f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle" for cpu in self._cpus]
        throttles = [text for f in folders if (text := system_text(f / "core_throttle_count")).isdigit()]
        return _Counters(
            seconds=time.monotonic(),
            steal_ms=self._ticks_ms(STEAL),
            busy_ms=self._ticks_ms(*BUSY),
            own_ms=1e3 * (usage.ru_utime + usage.ru_stime),
            quota_ms=self._quota_ms(),
            throttles=sum(map(int, throttles)) if throttles else None,
            switches=usage.ru_nivcsw,
            faults=usage.ru_majflt,
        )

    def _clocks_mhz(self) -> tuple[float, ...] | None:
        """Clock of each CPU in MHz: from the frequency driver, else (virtual machines) from /proc/cpuinfo. None where
        one is unknown."""
        folder = self._root / "sys/devices/system/cpu"
        clocks = [_mhz(system_text(folder / f"cpu{cpu}/cpufreq/scaling_cur_freq")) for cpu in self._cpus]
        if None in clocks:
            listed: dict[int, float] = {}
            cpu = -1
            for line in system_text(self._root / "proc/cpuinfo").splitlines():
                name, _, value = line.partition(":")
                if name.strip() == "processor":
                    cpu = int(value)
                elif name.strip() == "cpu MHz":
                    listed[cpu] = float(value)
            clocks = [listed.get(cpu) for cpu in self._cpus]
        known = tuple(clock for clock in clocks if clock is not None)
        return known if len(known) == len(self._cpus) else None

    def _temperature_c(self) -> float | None:
        """Temperature of the hottest zone that the system lists as the processor's."""
        zones = (self._root / "sys/class/thermal").glob("thermal_zone*")
        texts = [system_text(z / "temp") for z in zones if system_text(z / "type") in ("x86_pkg_temp", "cpu-thermal")]
        return max((int(text) / 1000 for text in texts if text.lstrip("-").isdigit()), default=None)

    def _ticks_ms(self, *columns: int) -> float | None:
        """Milliseconds of all watched CPUs together, summed over these columns of /proc/stat."""
        ticks = cpu_ticks(system_text(self._root / "proc/stat"), self._cpus, columns)
        return None if ticks is None else ticks * 1e3 / os.sysconf("SC_CLK_TCK")

    def _quota_ms(self) -> float | None:
        """Milliseconds for which the CPU quota of a control group stopped this process: version 2 counts microseconds,
        version 1 nanoseconds. The most of all groups that hold for it."""
        waited: list[float] = []
        for folder in control_groups(self._root, "cpu"):
            facts = dict(line.split(" ", 1) for line in system_text(folder / "cpu.stat").splitlines() if " " in line)
            if facts.get("throttled_usec", "").isdigit():
                waited.append(int(facts["throttled_usec"]) / 1e3)
            elif facts.get("throttled_time", "").isdigit():
                waited.append(int(facts["throttled_time"]) / 1e6)
        return max(waited, default=None)


def _mhz(khz: str) -> float | None:
    return int(khz) / 1000 if khz.isdigit() else None


def _others(before: _Counters, after: _Counters) -> float | None:
    """Milliseconds of CPU time that others used: the CPUs' busy time without this process's own."""
    busy_ms = _since(before.busy_ms, after.busy_ms)
    return None if busy_ms is None else round(max(0.0, busy_ms - (after.own_ms - before.own_ms)), 3)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _since(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round(after - before, 3)
