"""Results of `benchmarks.search` as a page and as a plot: seconds, memory and covers of each graph, and simpler ways to
cut the corpus."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.machine import machine
from benchmarks.search.plot import Panel

LIMITS_S: Mapping[str, float] = {"layers 12": 2.0, "layers 100": 20.0, "chains 32": 5.0}  # issue 6
PHASES = ("prepare", "cut", "candidates", "cover")


@dataclass(frozen=True)
class Row:
    """A graph on a target. seconds: of CPU time, by phase, and "tune" with a plan in the end, medians of `runs`;
    no "tune" where the phases took more than ENOUGH_S. "as given": `tune` without alternatives, where there are any.
    peak_mib: of the process, added_mib: over what it took before. distinct: segments of candidates up to isomorphism.
    over_relaxed: the cover's cost over a lower bound of all covers; 1 where it is exact. problem: why there are no
    figures.
    """

    graph: str
    target: str
    nodes: int = 0
    atoms: int = 0
    candidates: int = 0
    distinct: int = 0
    segments: int = 0
    exact: bool = False
    over_relaxed: float = 0.0
    seconds: Mapping[str, float] | None = None
    peak_mib: int = 0
    added_mib: int = 0
    runs: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Against:
    """A case on a target: predicted microseconds of the search's cover, and ratios of each baseline's to them."""

    case: str
    target: str
    ours_us: float
    exact: bool
    ratios: Mapping[str, float]


def page(rows: Sequence[Row], compared: Sequence[Against]) -> str:
    """The page: time and memory against nodes, then the baselines."""
    about = machine()
    lines = [
        "# The search without measuring",
        "",
        f"{about['device']}, {about['commit']}. Seconds are CPU time of the one thread that searches, medians of one "
        f"process: {', '.join(PHASES)}, and `tune` whole (from the graph to a plan); as given: the same without "
        "alternatives, where there are any. MiB: the peak of the process, and "
        "what the searches added to it. What no cover is below comes from branching, or from the relaxation.",
        "",
        "![Time and memory against nodes](search.svg)",
    ]
    for target in dict.fromkeys(r.target for r in rows):
        lines += [
            "",
            f"## {target}",
            "",
            f"| graph | nodes | atoms | candidates | distinct | segments | {' | '.join(PHASES)} | tune | as given "
            "| MiB | added | cover | target |",
            "|---|" + "---:|" * (len(PHASES) + 9) + "---|---|",
        ]
        lines += [_cells(r) for r in sorted(rows, key=lambda r: (r.nodes, r.graph)) if r.target == target]
    if compared:
        lines += ["", "## Other ways to cut the corpus", ""]
        lines += ["Predicted time of theirs over that of ours, on the same costs.", ""]
        lines += ["| target | baseline | graphs | geometric mean | largest | below 1 |", "|---|---|---:|---:|---|---|"]
        for target in dict.fromkeys(a.target for a in compared):
            of = [a for a in compared if a.target == target]
            lines += [_compared(target, name, of) for name in of[0].ratios]
    return "\n".join(lines) + "\n"


def panels(rows: Sequence[Row]) -> list[Panel]:
    """Two panels for each target, seconds and peak of memory against nodes, with a line for each kind of graph and the
    limits of issue 6."""
    found: list[Panel] = []
    for target in dict.fromkeys(r.target for r in rows):
        seconds: dict[str, list[tuple[float, float]]] = {}
        mib: dict[str, list[tuple[float, float]]] = {}
        limits: dict[str, tuple[float, float]] = {}
        for row in sorted((r for r in rows if r.target == target and r.seconds), key=lambda r: r.nodes):
            kind = " ".join(word for word in row.graph.split() if not word.isdigit())
            seconds.setdefault(kind, []).append((row.nodes, max(whole_s(row.seconds or {}), 1e-3)))
            mib.setdefault(kind, []).append((row.nodes, row.peak_mib))
            if row.graph in LIMITS_S:
                limits[row.graph] = row.nodes, LIMITS_S[row.graph]
        found.append(Panel(f"{target}: CPU seconds of tune, bars: at most", seconds, limits))
        found.append(Panel(f"{target}: MiB at the peak of the process", mib, {}))
    return found


def _cells(row: Row) -> str:
    limit_s = LIMITS_S.get(row.graph)
    if row.seconds is None:
        return f"| {row.graph} | {row.problem}" + " |" * (len(PHASES) + 10) + (" not met |" if limit_s else " |")
    times = [f"{row.seconds[phase]:.2f}" if phase in row.seconds else "" for phase in (*PHASES, "tune", "as given")]
    verdict = "met" if limit_s and whole_s(row.seconds) < limit_s else "not met"
    cells = [row.graph, row.nodes, row.atoms, row.candidates, row.distinct, row.segments, *times, row.peak_mib]
    cells += [row.added_mib, "exact" if row.exact else f"at most {row.over_relaxed:.2f}x of the cheapest"]
    cells += [f"{limit_s:g} s: {verdict}" if limit_s else ""]
    return f"| {' | '.join(map(str, cells))} |"


def _compared(target: str, name: str, of: Sequence[Against]) -> str:
    ratios = {a.case: a.ratios[name] for a in of}
    mean = math.exp(statistics.fmean(math.log(r) for r in ratios.values()))
    worst = max(ratios, key=ratios.__getitem__)
    below = [f"{case} {r:.4f}" for case, r in ratios.items() if r < 1 - 1e-9]
    cells = [target, name, str(len(of)), f"{mean:.3f}", f"{worst} {ratios[worst]:.2f}", ", ".join(below) or "none"]
    return f"| {' | '.join(cells)} |"


def whole_s(seconds: Mapping[str, float]) -> float:
    """Seconds of `tune` where it was run after the phases; else the sum of the phases."""
    return seconds["tune"] if "tune" in seconds else sum(seconds[p] for p in PHASES)
