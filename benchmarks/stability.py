"""Whether a search comes to the same end again, and whether equal kernels are told apart.

    python -m benchmarks.stability [--case NAME ...] [--processes 60] [--pairs 1000]

writes benchmarks/results/stability.{md,json}. Processes: each plans a case anew, with a database of its own; every
plan that came out is then timed against the one that came out most often, in interleaved rounds. Pairs: a kernel races
with itself, under two names, at test and at benchmark sizes; `codegen.timing.protocol.beats` must not see a difference.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from benchmarks.corpus import TOPICS
from benchmarks.corpus.case import Case
from benchmarks.machine import RESULTS, machine
from benchmarks.tuner.schedule_tables import segments
from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.timing.protocol import CLEAR_GAIN, beats, ratio_interval
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.records import Device, Plan, Status
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules.split_reduction import split_tasks
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate
from scheduler.segments.segment import Segment
from scheduler.tuning.trials import Ledger
from service.planning.planner import plan_graph
from tuning_db.store import Store

AA_SECONDS = 0.15  # of the finals of one pair
LARGE = 0.3  # share of the pairs at benchmark sizes
REPEATS = 5  # races of one kernel
AGAINST_SECONDS = 10.0  # of a plan against the most frequent one


@dataclass(frozen=True)
class Group:
    """Processes that came to one plan: how many, and what it takes over the most frequent one, with a 99 % interval."""

    kernels: str
    count: int
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0

    @property
    def is_close(self) -> bool:
        """Within 1 % of the most frequent plan, or faster."""
        return self.ratio <= 1 + CLEAR_GAIN


@dataclass(frozen=True)
class Pairs:
    """Races of kernels with themselves: in how many a difference was seen; the ratio's distance from 1, its median and
    99th percentile."""

    pairs: int
    differences: int
    median_off: float
    p99_off: float


def main() -> int:
    options = _options()
    if options.child:
        return _child(options)
    with tempfile.TemporaryDirectory(prefix="fuseplan-stability-") as folder:
        cache = ObjectCache(f"{folder}/cache")
        device = detect("cpu", cache)
        groups: dict[str, list[Group]] = {}
        for name in options.case:
            plans = [_in_process(name, options, folder) for _ in range(options.processes)]
            with Workbench(device, cache) as bench:
                groups[name] = against_the_most_frequent(plans, _case(name).instance(options.dtype).graph, bench)
        large = round(LARGE * options.pairs)  # they take long to check
        pairs = {
            "test sizes": equal_kernels(small_segments(device), options.pairs - large, device, cache),
            "benchmark sizes": equal_kernels(large_segments(device, options.dtype), large, device, cache),
        }
    page = report(groups, pairs, options)
    print(page)
    if not options.dry:
        found = {"machine": machine(), "dtype": options.dtype, "seconds": options.seconds}
        found["plans"] = {name: [asdict(g) for g in of] for name, of in groups.items()}
        found["pairs"] = {name: asdict(of) for name, of in pairs.items()}
        (RESULTS / "stability.md").write_text(page)
        (RESULTS / "stability.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _case(name: str) -> Case:
    return next(case for cases in TOPICS.values() for case in cases if case.name == name)


def _child(options: argparse.Namespace) -> int:
    """Plans the case and prints the plan."""
    graph = _case(options.case[0]).instance(options.dtype).graph
    names = (tuple(f"in{i}" for i in range(len(graph.inputs))), tuple(f"out{i}" for i in range(len(graph.outputs))))
    with tempfile.TemporaryDirectory() as own, Store(f"sqlite:///{own}/plans.db") as store:
        cache = ObjectCache(f"{options.child}/cache")
        found = plan_graph(NamedGraph(graph, *names), "cpu", Budget(options.seconds), store, cache)
    print(found.plan.model_dump_json())
    return 0


def _in_process(name: str, options: argparse.Namespace, folder: str) -> Plan:
    arguments = ["--case", name, "--dtype", options.dtype, "--seconds", str(options.seconds)]
    command = [sys.executable, "-m", "benchmarks.stability", *arguments, "--child", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    plan = Plan.model_validate_json(done.stdout)
    print(f"{plan.time_us:9.1f} us  {_kernels(plan)}", file=sys.stderr, flush=True)
    return plan


def _kernels(plan: Plan) -> str:
    return ", ".join(f"{step.schedule} [{len(step.nodes)}]" for step in plan.steps)


def against_the_most_frequent(plans: Sequence[Plan], graph: Graph, bench: Workbench) -> list[Group]:
    """A group for each different plan, the most frequent first."""
    (most, often), *others = Counter(map(_kernels, plans)).most_common()
    one = {_kernels(plan): plan for plan in plans}
    found = [Group(most, often)]
    for kernels, often in others:
        pair = [one[most], one[kernels]]
        modal, other = bench.measure_plans(graph, pair, seed=len(found), seconds=AGAINST_SECONDS)
        found.append(Group(kernels, often, *ratio_interval(other.samples_us, modal.samples_us)))
    return found


def small_segments(device: Device) -> Iterator[tuple[Segment, Kernel]]:
    """Single atoms of the memory-bound cases at their first test size, by their default schedules."""
    cases = [case for cases in TOPICS.values() for case in cases if case.kind == "memory"]
    for number in count():
        case = cases[number % len(cases)]
        prepared = prepare(case.instance("f32", case.small[0]).graph, split_tasks(device))
        ledger = Ledger(device, FAMILIES, Forgetful(), None, 0)
        atoms = cut(prepared.graph, ledger.acceptor.computable)
        candidate = ledger.acceptor.ask(atoms, atoms.piece(1 << (number // len(cases)) % len(atoms)))
        if isinstance(candidate, Candidate):
            with suppress(EmitError):
                yield candidate.segment, ledger.kernel(candidate, ledger.logs.open(candidate).pending[0])


def large_segments(device: Device, dtype: str) -> Iterator[tuple[Segment, Kernel]]:
    """The largest segments of all cases at benchmark size, by their default schedules."""
    while True:
        for _, candidate in segments(device, dtypes=[dtype]):
            ledger = Ledger(device, FAMILIES, Forgetful(), None, 0)
            yield candidate.segment, ledger.kernel(candidate, ledger.logs.open(candidate).pending[0])


def equal_kernels(found: Iterator[tuple[Segment, Kernel]], pairs: int, device: Device, cache: ObjectCache) -> Pairs:
    """Races each kernel REPEATS times with itself, until there are enough pairs."""
    differences, ratios = 0, list[float]()
    with Workbench(device, cache, Limits(timing_seconds=AA_SECONDS)) as bench:
        for number, (segment, kernel) in enumerate(found):
            for _ in range(REPEATS):
                a, b = bench.measure(segment.canonical.graph, segment.key, [kernel, kernel], seed=number)
                if a.status is Status.ok and b.status is Status.ok:
                    one, other = (a.samples_us, b.samples_us)
                    differences += beats(one, other) or beats(other, one)
                    ratios.append(ratio_interval(a.samples_us, b.samples_us)[0])
            if len(ratios) >= pairs:
                break
    off = sorted(abs(r - 1) for r in ratios)
    return Pairs(len(ratios), differences, statistics.median(off), off[int(0.99 * len(off))])


def report(groups: Mapping[str, Sequence[Group]], pairs: Mapping[str, Pairs], options: argparse.Namespace) -> str:
    """The page."""
    lines = [
        "# Stability of the search",
        "",
        f"{options.processes} processes, each with an empty database and {options.seconds:g} s, plan a case in "
        f"{options.dtype}. Every plan that comes out is timed again, in interleaved rounds with the one that comes out "
        f"most often: how many processes have one within {CLEAR_GAIN:.0%} of it, or faster?",
        "",
        "| case | within 1 % of the most frequent plan | different plans |",
        "|---|---|---|",
    ]
    for name, of in groups.items():
        close = sum(g.count for g in of if g.is_close)
        lines.append(f"| {name} | {close} of {options.processes} | {len(of)} |")
    lines += [
        "",
        "A/A: races of a kernel with itself.",
        "",
        "| kernels of | races | a difference declared | ratio's distance from 1: median | 99th percentile |",
        "|---|---|---|---|---|",
    ]
    for name, p in pairs.items():
        rate = f"{p.differences} ({p.differences / p.pairs:.2%})"
        lines.append(f"| {name} | {p.pairs} | {rate} | {p.median_off:.2%} | {p.p99_off:.2%} |")
    for name, of in groups.items():
        lines += [
            "",
            f"## {name}",
            "",
            "| kernels | processes | time over the most frequent | 99 % |",
            "|---|---|---|---|",
        ]
        for g in of:
            lines.append(f"| `{g.kernels}` | {g.count} | {g.ratio:.3f} | {g.low:.3f} to {g.high:.3f} |")
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stability", description="Stability of the search.")
    parser.add_argument("--case", nargs="+", default=["log_softmax", "rope_mistral_nemo"])
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
