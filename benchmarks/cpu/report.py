"""Report of a run over the corpus, as JSON with every sample and as a page."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.cpu.contest import COMPILED, EAGER, PLAN, Outcome
from benchmarks.cpu.summary import Summary, summarise

_TITLE = "The corpus on the CPU: Fuseplan beside PyTorch"


@dataclass(frozen=True)
class Report:
    """`facts`: versions and device. `notes`: what a reader must know to judge the numbers. `outcomes`: a row each."""

    facts: dict[str, str]
    notes: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = ()
    date: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))

    def markdown(self) -> str:
        """The page."""
        lines = [f"# {_TITLE}", "", f"{self.date}, {self.facts['device']}", "", *_summary(summarise(self.outcomes)), ""]
        for kind, title in (("memory", "Bound by memory"), ("matmul", "Bound by matrix products")):
            rows = [o for o in self.outcomes if o.kind == kind and not o.problem]
            if rows:
                lines += [f"## {title}", "", *_table(rows), ""]
        failed = [o for o in self.outcomes if o.problem]
        if failed:
            lines += ["## Failed", "", *(f"- {o.name} {o.dtype}: {o.problem}" for o in failed), ""]
        lines += ["## How", "", *(f"- {note}" for note in self.notes), ""]
        lines += [f"- {name}: {value}" for name, value in self.facts.items()]
        return "\n".join(lines) + "\n"

    def write(self, stem: Path) -> tuple[Path, Path]:
        """Writes STEM.json and STEM.md."""
        stem.parent.mkdir(parents=True, exist_ok=True)
        data, page = stem.with_suffix(".json"), stem.with_suffix(".md")
        content = {"title": _TITLE, **asdict(self), "summary": asdict(summarise(self.outcomes))}
        data.write_text(json.dumps(content, indent=1) + "\n")
        page.write_text(self.markdown())
        return data, page


def line(outcome: Outcome) -> str:
    """An outcome in one line of plain text, for progress."""
    head = f"{outcome.name} {outcome.dtype}:"
    if outcome.problem:
        return f"{head} failed: {outcome.problem}"
    times = ", ".join(f"{name} {t.median_us / 1e3:.2f} ms" for name, t in outcome.times.items())
    return f"{head} {times}; {outcome.speedup.median:.2f}x, {outcome.over_floor.median:.2f} of the floor"


def _summary(s: Summary) -> list[str]:
    lines = ["| | |", "|---|---|"]
    for title, group in s.groups.items():
        if group.count:
            lines.append(
                f"| {title}: better of eager and compiled over the plan, geometric mean of {group.count} | "
                f"**{group.geometric_mean:.2f}** |"
            )
            lines.append(f"| {title}: the slowest | {group.slowest} {group.slowest_ratio:.2f} |")
    if s.groups["memory-bound"].count:
        lines.append(
            f"| memory-bound: within {s.floor_limit}x of moving the same bytes | {s.near_floor} of {s.floors_known} |"
        )
        lines.append(
            f"| memory-bound: within {s.floor_limit}x of copying as many bytes | {s.near_copy} of {s.floors_known} |"
        )
    lines.append(f"| cases that failed | {s.failed} |")
    lines += ["", f"Below {s.speed_limit}x of PyTorch: {', '.join(s.slower) or 'none'}."]
    return [*lines, "", f"Beyond {s.floor_limit}x of the floor, memory-bound: {', '.join(s.far_from_floor) or 'none'}."]


def _table(rows: Sequence[Outcome]) -> list[str]:
    lines = [
        "| case | dtype | plan us | eager us | compile us | better / plan | 95 % | plan / floor | plan / copy "
        "| plan / bound | kernels |",
        "|---|---|---:|---:|---:|---:|---|---:|---:|---:|---|",
    ]
    timed = {side for o in rows for side in o.times}
    for o in rows:
        missing = {side: "failed" if side in timed else "not timed" for side in (PLAN, EAGER, COMPILED)}
        times = [f"{o.times[s].median_us:.0f}" if s in o.times else missing[s] for s in missing]
        best, floor, copy = o.speedup, o.over_floor.median, o.over_copy.median
        kernels = f"{len(o.kernels)}: {', '.join(o.families)}"
        cells = [o.name, o.dtype, *times, f"**{best.median:.2f}**", f"{best.low:.2f} to {best.high:.2f}"]
        lines.append(f"| {' | '.join([*cells, f'{floor:.2f}', f'{copy:.2f}', f'{o.over_bound:.2f}', kernels])} |")
    return lines
