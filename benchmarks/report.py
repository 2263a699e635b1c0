"""What a comparison found: medians, paired ratios with intervals, and where they were taken; as JSON and as a page."""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
_RESAMPLES = 5000


@dataclass(frozen=True)
class Contestant:
    """One side: times of single calls in ms, one per round, the rounds being common to all sides."""

    name: str
    samples_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return float(np.median(self.samples_ms))

    @property
    def best_ms(self) -> float:
        return min(self.samples_ms)


@dataclass(frozen=True)
class Ratio:
    """Median over rounds of one side's time over the other's in the same round, with its 95 % bootstrap interval."""

    of: str
    over: str
    median: float
    low: float
    high: float


def paired_ratio(of: Contestant, over: Contestant, seed: int = 0) -> Ratio:
    """How many times longer `of` takes than `over`."""
    ratios = np.array(of.samples_ms) / np.array(over.samples_ms)
    resampled = np.random.default_rng(seed).choice(ratios, (_RESAMPLES, ratios.size))
    low, high = np.percentile(np.median(resampled, axis=1), (2.5, 97.5))
    return Ratio(of.name, over.name, float(np.median(ratios)), float(low), float(high))


@dataclass(frozen=True)
class Report:
    """One comparison. `facts`: versions and device. `notes`: what a reader must know to judge the numbers."""

    name: str
    title: str
    contestants: tuple[Contestant, ...]
    ratios: tuple[Ratio, ...]
    limits_ms: dict[str, float]
    facts: dict[str, str]
    notes: tuple[str, ...]
    extra: dict[str, Any] = field(default_factory=dict)
    date: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))

    def markdown(self) -> str:
        """The page."""
        lines = [
            f"# {self.title}",
            "",
            f"{self.date}, {self.facts['device']}",
            "",
            "| | median ms | best ms |",
            "|---|---:|---:|",
        ]
        lines += [f"| {c.name} | {c.median_ms:.2f} | {c.best_ms:.2f} |" for c in self.contestants]
        lines += [f"| {name} | {ms:.2f} | |" for name, ms in self.limits_ms.items()]
        lines += ["", "| paired ratio | median | 95 % interval |", "|---|---:|---:|"]
        lines += [f"| {r.of} / {r.over} | **{r.median:.2f}** | {r.low:.2f} to {r.high:.2f} |" for r in self.ratios]
        lines += ["", *(f"- {note}" for note in self.notes), ""]
        lines += [f"- {name}: {value}" for name, value in self.facts.items()]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path = RESULTS) -> tuple[Path, Path]:
        """Writes NAME.json (with every sample) and NAME.md."""
        folder.mkdir(parents=True, exist_ok=True)
        data, page = folder / f"{self.name}.json", folder / f"{self.name}.md"
        data.write_text(json.dumps(asdict(self), indent=1) + "\n")
        page.write_text(self.markdown())
        return data, page


def machine() -> dict[str, str]:
    """The CPU, its usable cores, the system and the compiler."""
    return {
        "device": f"{_cpu_name()}, {len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "python": platform.python_version(),
        "compiler": _first_line(["c++", "--version"]),
        "commit": _first_line(["git", "describe", "--always", "--dirty"]),
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "CPU implementer"):
            return value.strip()
    return platform.processor() or platform.machine()


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error.__class__.__name__})"
    return done.stdout.splitlines()[0]
