"""How far predictions are from what was measured: by bytes and arithmetic alone, and as other segments correct them.

    python -m benchmarks.predictions

Cases of the corpus that one kernel computes, with the times in benchmarks/results/{cpu_corpus,gpu,gpu_f32}.json. Each
prediction is corrected by the times of its family on all other cases, the case in other dtypes left out, too. Writes
benchmarks/results/predictions.{md,json}.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path

from benchmarks.corpus import TOPICS
from benchmarks.machine import RESULTS, machine
from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device
from scheduler.cost.calibration import LEAST_SEGMENTS, corrections
from scheduler.cost.roofline_cpu import predicted_us
from scheduler.cost.traffic import Traffic, traffic_of

FILES = {"cpu": ("cpu_corpus.json",), "h200": ("gpu.json", "gpu_f32.json")}


@dataclass(frozen=True)
class Timed:
    """A case with the family of its only kernel."""

    name: str
    family: str
    graph: Graph
    time_us: float


@dataclass(frozen=True)
class Row:
    """One family on one device: the mean factor between times and predictions. alone: of the model; by_median: of the
    model times the median factor of the other cases; corrected: of the model corrected by the other cases. used: number
    of cases for which such a correction was found."""

    device: str
    family: str
    cases: int
    alone: float
    by_median: float
    corrected: float
    used: int


def timed(file: str) -> list[Timed]:
    """Measured plans of one kernel in a file of results, of cases that the corpus still has."""
    cases = {case.name: case for group in TOPICS.values() for case in group}
    found: list[Timed] = []
    content = json.loads((RESULTS / file).read_text())
    for row in content.get("outcomes") or content["rows"]:
        name, _, dtype = row["name"].partition(" ")
        case = cases.get(name)
        if row["problem"] or case is None or "plan" not in row["times"] or len(row["kernels"]) != 1:
            continue
        family, sizes = row["kernels"][0].partition("{")[0], row["sizes"]
        if family in FAMILIES and set(sizes) == set(case.sizes):
            graph = case.instance(row.get("dtype") or dtype, sizes).graph
            found.append(Timed(name, family, graph, statistics.median(row["times"]["plan"]["samples_us"])))
    return found


def rows(target: str, device: Device) -> list[Row]:
    """A row for each family that was timed on enough cases."""
    every = [t for file in FILES[target] for t in timed(file)]
    return [
        row
        for family in FAMILIES
        if len({t.name for t in every if t.family == family}) > LEAST_SEGMENTS
        for row in [_row(target, family, [t for t in every if t.family == family], device)]
    ]


def _row(target: str, family: str, cases: Sequence[Timed], device: Device) -> Row:
    def predict(graph: Graph, traffic: Traffic) -> float:
        turns = FAMILIES["transpose"].accepts(graph, device) is None
        return predicted_us(traffic, family, device, ("transpose",) if turns else ())

    traffics = [traffic_of(t.graph) for t in cases]
    logs = [log(t.time_us / predict(t.graph, traffic)) for t, traffic in zip(cases, traffics, strict=True)]
    by_median, corrected, used = list[float](), list[float](), 0
    for case, traffic, off in zip(cases, traffics, logs, strict=True):
        others = [(t, other) for t, other in zip(cases, logs, strict=True) if t.name != case.name]
        by_median.append(abs(off - statistics.median(other for _, other in others)))
        learned = corrections([(t.graph, t.time_us) for t, _ in others], predict)
        used += learned is not None
        corrected.append(abs(off - (log(learned.factor(case.graph, traffic)) if learned else 0.0)))
    alone, middle, best = (exp(statistics.mean(map(abs, each))) for each in (logs, by_median, corrected))
    return Row(target, family, len(cases), alone, middle, best, used)


def main() -> int:
    """Prints and writes."""
    with tempfile.TemporaryDirectory(prefix="fuseplan-predictions-") as folder:
        cache = ObjectCache(Path(folder))
        found = [row for target in FILES for row in rows(target, detect(target, cache))]
    lines = ["# Predictions beside measured times", "", " ".join((__doc__ or "").split("\n\n")[2].split()), ""]
    lines += ["| device | family | cases | off by, alone | by the median | corrected | helped |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|"]
    for r in found:
        off = (f"{x:.2f}x" for x in (r.alone, r.by_median, r.corrected))
        lines.append(f"| {r.device} | {r.family} | {r.cases} | {' | '.join(off)} | {r.used} |")
    lines += [
        "",
        "On the CPU, predictions alone go by ceilings that were measured at another moment than the times.",
        "",
    ]
    text = "\n".join(lines)
    (RESULTS / "predictions.md").write_text(text)
    data = {"facts": machine(), "rows": [asdict(r) for r in found]}
    (RESULTS / "predictions.json").write_text(json.dumps(data, indent=1) + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
