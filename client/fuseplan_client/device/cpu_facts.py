"""Facts about this machine's CPUs that decide which code runs on them: name, instructions, how many we may use."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

SYSTEM = Path("/")
ARCHITECTURES = {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"}
# Flags of /proc/cpuinfo that a service's compilers, or its kernels, may make use of.
X86_FLAGS = frozenset(
    "abm amx_bf16 avx avx2 avx512_bf16 avx512_bitalg avx512_fp16 avx512_vbmi2 avx512_vnni avx512_vpopcntdq avx512bw "
    "avx512cd avx512dq avx512f avx512ifma avx512vbmi avx512vl avx_vnni bmi1 bmi2 f16c fma gfni movbe pni popcnt sse4_1 "
    "sse4_2 ssse3".split()
)
ARM_FLAGS = frozenset(("asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2"))


def architecture() -> str:
    """The architecture as plans have it: "x86-64", "aarch64", or what the system calls it."""
    return ARCHITECTURES.get(platform.machine().lower(), platform.machine())


def cpu_features(root: Path = SYSTEM) -> tuple[str, ...]:
    """The flags of the first CPU that compilers may make use of, in order."""
    known = ARM_FLAGS if architecture() == "aarch64" else X86_FLAGS
    for line in _text(root / "proc" / "cpuinfo").splitlines():
        if line.startswith(("flags", "Features")):
            return tuple(sorted(flag for flag in line.partition(":")[2].split() if flag in known))
    return ()


def cpu_name(root: Path = SYSTEM) -> str:
    """The processor's name, with the numbers of its family and model where the system tells both."""
    first: dict[str, str] = {}
    for line in _text(root / "proc" / "cpuinfo").splitlines():
        field, _, value = line.partition(":")
        first.setdefault(field.strip(), value.strip())
    names = (first.get("model name"), first.get("Model"), first.get("Hardware"))
    name = next(filter(None, (*names, platform.processor(), platform.machine())), "")
    family, model = first.get("cpu family"), first.get("model")
    return f"{name} (family {family}, model {model})" if family and model else name


def cpus(root: Path = SYSTEM) -> int:
    """Number of CPUs to run threads on: those of our affinity, as far as the quota of our control groups pays for
    them."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = list(_quotas(root))
    return max(1, min(allowed, int(min(quotas) + 0.5))) if quotas else allowed


def _quotas(root: Path) -> Iterator[float]:
    """CPUs that each of our control groups grants, as far as it limits them."""
    for group in _control_groups(root):
        quota, _, period = _text(group / "cpu.max").partition(" ")  # version 2; version 1 has two files
        quota = quota or _text(group / "cpu.cfs_quota_us")
        period = period or _text(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            yield int(quota) / int(period)


def _control_groups(root: Path) -> Iterator[Path]:
    """Folders of the control groups that limit our CPUs, ours and those above it."""
    for line in _text(root / "proc" / "self" / "cgroup").splitlines():
        fields = line.split(":", 2)
        if len(fields) < 3:
            continue
        controllers, path = fields[1], fields[2]
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = root / "sys" / "fs" / "cgroup" / ("cpu" if controllers else "")
        yield folder
        for part in path.strip().split("/"):
            if part not in ("", ".."):
                folder = folder / part
                yield folder


def _text(file: Path) -> str:
    """The content of a small file of the system, "" where there is none."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
