"""How long the corpus takes to tune: with an empty database, again with its measurements but without its plans, and as
hits.

    python -m benchmarks.tuning_time [--seconds 8] [--dtype bf16]     writes benchmarks/results/tuning_time.{md,json}
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

from benchmarks.corpus import TOPICS
from benchmarks.machine import RESULTS, machine
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from scheduler.budget import Budget
from service.planning.planner import PlanAnswer, plan_graph
from tuning_db.store import Store

WAYS = ("cold", "warm", "hit")


@dataclass(frozen=True)
class Tuning:
    """One graph, in one of WAYS: seconds that its plan took to make or find, kernels timed for it, what it takes."""

    name: str
    way: str
    seconds: float
    measured: int
    time_us: float


def main() -> int:
    options = _options()
    found: list[Tuning] = []
    with tempfile.TemporaryDirectory(prefix="fuseplan-tuning-") as folder, Store(f"sqlite:///{folder}/t.db") as store:
        cache = ObjectCache(f"{folder}/cache")
        cases = [case for cases in TOPICS.values() for case in cases if options.dtype in case.bench_dtypes]
        plans: dict[str, PlanAnswer] = {}
        for way in WAYS:
            for case in cases:
                if way == "warm":
                    store.plans.evict(plans[case.name].plan_key)
                started = time.monotonic()
                answer = plan_graph(
                    _named(case.instance(options.dtype).graph), "cpu", Budget(options.seconds), store, cache
                )
                assert (answer.cache == "hit") == (way == "hit"), case.name
                took, measured = time.monotonic() - started, 0 if way == "hit" else answer.plan.search.measured
                found.append(Tuning(case.name, way, took, measured, answer.plan.time_us or 0.0))
                plans[case.name] = answer
                print(f"{way:5} {case.name:28} {took:6.2f} s {measured:4} kernels", file=sys.stderr, flush=True)
    page = report(found, options)
    print(page)
    if not options.dry:
        (RESULTS / "tuning_time.md").write_text(page)
        facts = {"machine": machine(), "seconds": options.seconds, "dtype": options.dtype}
        content = facts | {"tunings": [asdict(t) for t in found]}
        (RESULTS / "tuning_time.json").write_text(json.dumps(content, indent=1) + "\n")
    return 0


def _named(graph: Graph) -> NamedGraph:
    inputs, outputs = (
        tuple(f"{p}{i}" for i in range(len(of))) for p, of in (("in", graph.inputs), ("out", graph.outputs))
    )
    return NamedGraph(graph, inputs, outputs)


def report(found: list[Tuning], options: argparse.Namespace) -> str:
    """The page."""
    by = {way: {t.name: t for t in found if t.way == way} for way in WAYS}
    ratios = [by["warm"][name].time_us / t.time_us for name, t in by["cold"].items() if t.time_us]
    lines = [
        "# Tuning time of the corpus",
        "",
        f"{len(by['cold'])} graphs in {options.dtype}, one after the other, at most {options.seconds:g} s of search "
        "each. Cold: an empty database and cache. Warm: measurements and cache are kept, the plans are not.",
        "",
        "| | whole | median of a graph | kernels timed |",
        "|---|---|---|---|",
    ]
    for way in WAYS:
        times = [t.seconds for t in by[way].values()]
        measured = sum(t.measured for t in by[way].values())
        lines.append(f"| {way} | {sum(times):.1f} s | {statistics.median(times):.3f} s | {measured} |")
    middle = f"median {statistics.median(ratios):.3f}, at different moments of the machine."
    lines += ["", f"The warm plan's time over the cold one's: {middle}"]
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning_time", description="Tuning time of the corpus.")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
