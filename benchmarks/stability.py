"""Whether a search comes to the same end again, and whether equal kernels are told apart.

    python -m benchmarks.stability [--case NAME --dtype DTYPE] [--processes 60] [--pairs 1000]

writes benchmarks/results/stability.{md,json}. Processes: each plans the case anew, with a database of its own; every
plan that came out is then timed against the one that came out most often, in interleaved rounds. Pairs: a kernel races
with itself, under two names; `codegen.measure.beats` must not see a difference.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.corpus import TOPICS
from benchmarks.corpus.case import Case
from benchmarks.report import RESULTS, machine
from benchmarks.schedule_tables import NoRows
from codegen.devices import detect
from codegen.families import FAMILIES
from codegen.limits import Limits
from codegen.measure import CLEAR_GAIN, beats, ratio_interval
from codegen.object_cache import ObjectCache
from codegen.workbench import Workbench
from fusion_ir.named import NamedGraph
from fusion_ir.records import Device, Plan, Status
from scheduler.atoms import cut
from scheduler.bench import Budget
from scheduler.candidates import Candidate
from scheduler.ledger import Ledger
from scheduler.prepare import prepare
from scheduler.tune import TASKS_PER_UNIT
from service.planner import plan_graph
from tuning_db import Store

AA_SECONDS = 0.15  # of the finals of one pair
AGAINST_SECONDS = 4.0  # of a plan against the most frequent one


def main() -> int:
    options = _options()
    if options.child:
        return _child(options)
    with tempfile.TemporaryDirectory(prefix="fuseplan-stability-") as folder:
        cache = ObjectCache(f"{folder}/cache")
        device = detect("cpu", cache)
        started = time.monotonic()
        plans = [_in_process(options, folder) for _ in range(options.processes)]
        took = time.monotonic() - started
        with Workbench(device, cache) as bench:
            groups = against_the_most_frequent(plans, options, bench)
        pairs = equal_kernels(options, device, cache)
    found = {"machine": machine(), "case": options.case, "dtype": options.dtype, "seconds": options.seconds}
    found |= {"processes": options.processes, "took_s": round(took), "plans": groups, "pairs": pairs}
    page = report(found)
    print(page)
    if not options.dry:
        (RESULTS / "stability.md").write_text(page)
        (RESULTS / "stability.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _case(options: argparse.Namespace) -> Case:
    return next(case for cases in TOPICS.values() for case in cases if case.name == options.case)


def _child(options: argparse.Namespace) -> int:
    """Plans the case and prints the plan."""
    graph = _case(options).instance(options.dtype).graph
    names = (tuple(f"in{i}" for i in range(len(graph.inputs))), tuple(f"out{i}" for i in range(len(graph.outputs))))
    with tempfile.TemporaryDirectory() as own, Store(f"sqlite:///{own}/plans.db") as store:
        cache = ObjectCache(f"{options.child}/cache")
        found = plan_graph(NamedGraph(graph, *names), "cpu", Budget(options.seconds), store, cache)
    print(found.plan.model_dump_json())
    return 0


def _in_process(options: argparse.Namespace, folder: str) -> Plan:
    arguments = ["--case", options.case, "--dtype", options.dtype, "--seconds", str(options.seconds)]
    command = [sys.executable, "-m", "benchmarks.stability", *arguments, "--child", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    plan = Plan.model_validate_json(done.stdout)
    print(f"{plan.time_us:9.1f} us  {_kernels(plan)}", file=sys.stderr, flush=True)
    return plan


def _kernels(plan: Plan) -> str:
    return ", ".join(f"{step.schedule} [{len(step.nodes)}]" for step in plan.steps)


def against_the_most_frequent(
    plans: Sequence[Plan], options: argparse.Namespace, bench: Workbench
) -> list[dict[str, object]]:
    """For each different plan: how often it came out, and what it takes over the most frequent one."""
    often = Counter(map(_kernels, plans)).most_common()
    one = {_kernels(plan): plan for plan in plans}
    graph = _case(options).instance(options.dtype).graph
    found: list[dict[str, object]] = [
        {"kernels": often[0][0], "count": often[0][1], "ratio": 1.0, "low": 1.0, "high": 1.0}
    ]
    for kernels, count in often[1:]:
        pair = [one[often[0][0]], one[kernels]]
        modal, other = bench.measure_plans(graph, pair, seed=count, seconds=AGAINST_SECONDS)
        ratio, low, high = ratio_interval(other.samples_us, modal.samples_us)
        found.append({"kernels": kernels, "count": count, "ratio": ratio, "low": low, "high": high})
    return found


def equal_kernels(options: argparse.Namespace, device: Device, cache: ObjectCache) -> dict[str, object]:
    """Races of kernels with themselves: how many pairs, and how often a difference was seen."""
    wins, ratios = 0, list[float]()
    cases = [case for cases in TOPICS.values() for case in cases if case.kind == "memory"]
    with Workbench(device, cache, Limits(timing_seconds=AA_SECONDS)) as bench:
        number = 0
        while len(ratios) < options.pairs:
            case = cases[number % len(cases)]
            number += 1
            prepared = prepare(case.instance("f32", case.small[0]).graph, TASKS_PER_UNIT * device.units)
            ledger = Ledger(device, FAMILIES, NoRows(), None, 0)
            atoms = cut(prepared.graph, ledger.computable)
            candidate = ledger.ask(atoms, 1 << (number // len(cases)) % len(atoms))
            if not isinstance(candidate, Candidate):
                continue
            kernel = ledger.kernel(candidate, ledger.open(candidate).pending[0])
            graph, key = candidate.segment.canonical.graph, candidate.segment.key
            for seed in range(options.repeats):
                a, b = bench.measure(graph, key, [kernel, kernel], seed=1000 * number + seed)
                if a.status is Status.ok and b.status is Status.ok:
                    wins += beats(b.samples_us, a.samples_us, seed=seed)  # would b take the place of a?
                    ratios.append(ratio_interval(a.samples_us, b.samples_us)[0])
    off = sorted(abs(r - 1) for r in ratios)
    return {
        "pairs": len(ratios),
        "differences": wins,
        "median_off": statistics.median(off),
        "p99_off": off[int(0.99 * len(off))],
    }


def report(found: dict[str, object]) -> str:
    groups, pairs = found["plans"], found["pairs"]
    assert isinstance(groups, list)
    assert isinstance(pairs, dict)
    close = sum(g["count"] for g in groups if g["ratio"] <= 1 + CLEAR_GAIN)
    lines = [
        "# Stability of the search",
        "",
        f"{found['processes']} processes, each with an empty database and {found['seconds']} s, planned "
        f"{found['case']} in {found['dtype']}. **{close} of {found['processes']}** plans are within {CLEAR_GAIN:.0%} "
        "of the most frequent one, or faster, when both are timed again in interleaved rounds.",
        "",
        f"A/A: of {pairs['pairs']} races of a kernel with itself, **{pairs['differences']}** "
        f"({pairs['differences'] / pairs['pairs']:.2%}) declared a difference; median of the ratio's distance from 1 "
        f"{pairs['median_off']:.2%}, 99th percentile {pairs['p99_off']:.2%}.",
        "",
        "| kernels | processes | time over the most frequent | 95 % |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{g['kernels']}` | {g['count']} | {g['ratio']:.3f} | {g['low']:.3f} to {g['high']:.3f} |" for g in groups
    ]
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stability", description="Stability of the search.")
    parser.add_argument("--case", default="residual_add_rms_norm")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--processes", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5, help="races of one kernel")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
