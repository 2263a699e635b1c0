"""Facts about this machine: CPUs that this process may use, caches, memory."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

ROOT = Path("/")


def usable_cpus(root: Path = ROOT) -> tuple[int, ...]:
    """CPUs to run threads on: those of our affinity mask, no more than the cgroup's quota pays for, one per core
    first."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    seen: set[str] = set()
    first: list[int] = []
    rest: list[int] = []
    for cpu in allowed:
        core = system_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        (rest if core in seen else first).append(cpu)
        seen.add(core)
    quota = cpu_quota(root)
    most = len(allowed) if quota is None else max(1, min(len(allowed), int(quota + 0.5)))
    return tuple([*first, *rest][:most])


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPUs that our control groups (version 2, else 1) grant, None for no limit."""
    quotas: list[float] = []
    for folder in control_groups(root, "cpu"):
        quota, _, period = system_text(folder / "cpu.max").partition(" ")
        quota = quota or system_text(folder / "cpu.cfs_quota_us")
        period = period or system_text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_bytes(root: Path = ROOT) -> int:
    """Memory of the machine, or of our control group where that is less."""
    lines = system_text(root / "proc/meminfo").splitlines()
    total = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:")), 1 << 32)
    limits = [
        system_text(f / name)
        for f in control_groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min([total, *(int(text) for text in limits if text.isdigit())])


def cache_levels(cpus: Sequence[int], root: Path = ROOT) -> tuple[int, ...]:
    """Bytes of the data caches of each level that `cpus` have together, from L1 on. Strictly rising; () if unknown."""
    levels: dict[int, dict[str, int]] = {}
    for cpu in cpus:
        for index in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            kind, level, size = (system_text(index / name) for name in ("type", "level", "size"))
            if kind in ("Data", "Unified") and level.isdigit() and size:
                shared = system_text(index / "shared_cpu_list") or str(cpu)
                levels.setdefault(int(level), {})[shared] = _size(size)
    totals: list[int] = []
    for level in sorted(levels):
        total = sum(levels[level].values())
        if not totals or total > totals[-1]:
            totals.append(total)
    return tuple(totals)


def cpu_name(root: Path = ROOT) -> str:
    """The processor's name, with the numbers of its family and model where it has them: virtual machines call many
    processors by one name, of which some take twice as long as others for the same product."""
    said: dict[str, str] = {}
    for line in system_text(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        said.setdefault(key.strip(), value.strip())
    name = next((said[k] for k in ("model name", "Model", "Hardware") if said.get(k)), "")
    family, model = said.get("cpu family"), said.get("model")
    numbers = f" (family {family}, model {model})" if family and model else ""
    return (name or platform.processor() or platform.machine()) + numbers


def control_groups(root: Path, controller: str) -> list[Path]:
    """Folders of the control groups that hold for us, up to the root of their tree."""
    folders: list[Path] = []
    for line in system_text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        tree = root / "sys/fs/cgroup" / (controller if names else "")
        parts = [p for p in path.split("/") if p and p != ".."]
        folders += [tree.joinpath(*parts[:n]) for n in range(len(parts) + 1)]
    return folders


def cpu_ticks(stat: str, cpus: Sequence[int], columns: Sequence[int]) -> int | None:
    """Clock ticks of all these CPUs together, summed over `columns` of `stat`, the text of /proc/stat (column 0: the
    CPU's name). None where the text leaves a CPU out."""
    wanted = {f"cpu{cpu}" for cpu in cpus}
    lines = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    found = {words[0]: words for words in lines if words[0] in wanted and len(words) > max(columns)}
    return sum(int(words[c]) for words in found.values() for c in columns) if len(found) == len(wanted) else None


def _size(text: str) -> int:
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


def system_text(file: Path) -> str:
    """Content of a small file of the system, "" where there is none."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
