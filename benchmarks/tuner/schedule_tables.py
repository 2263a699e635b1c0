"""Tables of schedules: for segments of the corpus, every schedule that can be chosen, timed; for `benchmarks.tuner`.

    python -m benchmarks.tuner.schedule_tables [--case GLOB] [--most N]     writes benchmarks/data/schedules/

A segment is the largest of the coarsest cover of a case. Its schedules are all combinations of the values that make a
difference (`scheduler.tuning.schedule_space`) in every family that accepts it, beside those that families try first.
Each is compiled and checked, then all are timed in interleaved rounds, in random order in each, cold, relative to one
of the fast ones run shortly before and after; with more rounds for whatever is near the best. One round of three is
what a tuner gets to see, the others are held out as the truth, in two halves: the best of one half is judged by the
other. All three take turns, since for minutes at a time this machine favours other schedules: a tuner cannot know what
will be.
"""

import argparse
import csv
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from math import inf
from pathlib import Path

import numpy as np

from benchmarks.corpus import TOPICS
from codegen.child.case import Case, InputSet
from codegen.child.cpu_memory import Arena, TimingMemory
from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.hardware.machine import usable_cpus
from codegen.kernel import EmitError, Kernel
from codegen.launch.cpu import BoundSteps, CpuStep, Pool, bind_steps, load_entry
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.runtime import runtime_library
from codegen.workbench.workbench import Workbench
from fusion_ir.accuracy.comparison import Reference
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Status
from fusion_ir.reference.sample_inputs import sample_inputs
from fusion_ir.text.printing import print_graph
from scheduler.cover.oracle import CoverOracle
from scheduler.deadline import Deadline
from scheduler.interfaces import Forgetful
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules.split_reduction import split_tasks
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate, CandidateSettings, find_candidates
from scheduler.tuning.schedule_space import ScheduleSpace
from scheduler.tuning.trials import Ledger

FOLDER = Path(__file__).parents[1] / "data" / "schedules"
LEAST_SCHEDULES = 200
# So many rounds of what is within so much of the best: a race screens and ends in finals, too.
STAGES = ((2, inf), (3, 1.4), (12, 1.1), (24, 1.05))
HELD_OUT = 2  # rounds that are held out, for each that is not
VISIT = 2  # samples, the better of which counts
BETWEEN = 12  # visits from one run of the reference to the next
BATCH = 64  # kernels that are compiled and checked together


@dataclass
class Point:
    """A kernel with all schedules that give it. training, truth: its times over the reference's, by round."""

    kernel: Kernel
    schedules: list[str]
    status: Status = Status.ok
    training: list[float] = field(default_factory=list[float])
    truth: list[float] = field(default_factory=list[float])


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="fuseplan-tables-") as folder:
        cache = ObjectCache(options.cache or folder)
        device = detect("cpu", cache)
        compiler = find_compiler(device, Limits())
        with compiler.slot() as slot:
            pool = Pool(runtime_library("pool", compiler, slot, cache), usable_cpus()[: device.units])
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "device.json").write_text(device.model_dump_json(indent=1) + "\n")
        for name, candidate in segments(device, options.case, options.dtype):
            started = time.monotonic()
            graph = candidate.segment.canonical.graph
            points = distinct(candidate, device, options.most)
            if len(points) < LEAST_SCHEDULES or (options.keep and (FOLDER / f"{name}.csv").exists()):
                continue
            binaries = check(candidate, points, device, cache, _known(options.checked, name))
            time_all(graph, points, binaries, pool, cache, device.cache_bytes, options.seed)
            write(name, graph, points)
            default, *others = (statistics.median(p.truth) for p in points if p.truth)
            took = time.monotonic() - started
            best = min(default, *others) / default
            print(f"{name:36}{len(points):5} kernels, best {best:.3f} of the first, {took:.0f} s", flush=True)
    return 0


def segments(device: Device, pattern: str = "*", dtypes: Sequence[str] = ()) -> Iterator[tuple[str, Candidate]]:
    """The largest segment of the coarsest cover of each case and dtype, equal ones once."""
    seen: set[str] = set()
    for case in (case for cases in TOPICS.values() for case in cases if fnmatch(case.name, pattern)):
        for dtype in (d for d in case.bench_dtypes if not dtypes or d in dtypes):
            prepared = prepare(case.instance(dtype).graph, split_tasks(device), "reassociate")
            ledger = Ledger(device, FAMILIES, Forgetful(), None, 0)
            atoms = cut(prepared.graph, ledger.acceptor.computable)
            found = find_candidates(atoms, lambda p, a=atoms, of=ledger: of.acceptor.ask(a, p), CandidateSettings())
            covers = CoverOracle(atoms, found, ledger, Deadline(60.0, 0.0, None, time.monotonic), 2.0)
            cover = covers.coarsest() or covers.cheapest(ledger.model.predictions)
            largest = max(cover, key=ledger.model.bound_us)
            if largest.segment.key not in seen:
                seen.add(largest.segment.key)
                yield f"{case.name}_{dtype}", largest


def distinct(candidate: Candidate, device: Device, most: int) -> list[Point]:
    """Every kernel that can be chosen for the segment; none where they are more than `most`."""
    graph = candidate.segment.canonical.graph
    points: dict[object, Point] = {}
    for family in (FAMILIES[name] for name in candidate.families):
        if family.name == "naive":
            continue
        first = family.space(graph, device)
        for schedule in dict.fromkeys((*first, *ScheduleSpace(family, graph, first[0], device))):
            try:
                kernel = family.emit(graph, schedule, device)
            except EmitError:
                continue
            point = points.setdefault(kernel.identity, Point(kernel, []))
            point.schedules.append(schedule)
    return list(points.values()) if len(points) <= most else []


def check(
    candidate: Candidate, points: Sequence[Point], device: Device, cache: ObjectCache, known: Collection[str] = ()
) -> dict[str, str]:
    """Compiles and checks, but for schedules that are known to be right; how kernels are launched makes no difference
    here. The binary of each entry."""
    binaries: dict[str, str] = {}
    status: dict[str, Status] = {}
    kernels = list({p.kernel.entry: p.kernel for p in points}.values())
    right = {p.kernel.entry for p in points if any(s in known for s in p.schedules)}
    graph, key = candidate.segment.canonical.graph, candidate.segment.key
    with Workbench(device, cache, Limits(timing_seconds=0.0)) as bench:
        for i in range(0, len(kernels), BATCH):
            batch = [k for k in kernels[i : i + BATCH] if k.entry not in right]
            for kernel, row in zip(batch, bench.measure(graph, key, batch) if batch else (), strict=True):
                binaries[kernel.entry], status[kernel.entry] = row.binary, row.status
            batch = [k for k in kernels[i : i + BATCH] if k.entry in right]
            for kernel, built in zip(batch, bench.compile(batch), strict=True):
                status[kernel.entry] = Status.ok if isinstance(built, Binary) else built.status
                binaries[kernel.entry] = built.sha256 if isinstance(built, Binary) else ""
    for point in points:
        point.status = status[point.kernel.entry]
    return binaries


def _known(folder: str, name: str) -> set[str]:
    """Schedules that a table in the folder says are right."""
    file = Path(folder, f"{name}.csv")
    if not folder or not file.exists():
        return set()
    with file.open(newline="") as lines:
        return {row["schedule"] for row in csv.DictReader(lines) if row["status"] == Status.ok.value}


def time_all(
    graph: Graph,
    points: Sequence[Point],
    binaries: dict[str, str],
    pool: Pool,
    cache: ObjectCache,
    cache_bytes: int,
    seed: int,
) -> None:
    """Fills in `training` and `truth` of the points."""
    inputs = sample_inputs(graph, seed, integers=False)
    memory = TimingMemory(Case(graph, (InputSet(inputs, Reference([], [])),)), cache_bytes, Arena())
    args = tuple(range(memory.addresses.shape[1]))
    running: dict[int, BoundSteps] = {}
    for i, point in enumerate(points):
        if point.status is Status.ok:
            entry = _entry(point.kernel, binaries, cache)
            running[i] = bind_steps([CpuStep(entry, args, point.kernel.launch.tasks)], memory.addresses)
    rounds = _Rounds(running, pool, random.Random(seed))
    for ratio in (r for count, r in STAGES for _ in range(count)):
        near = {i for of in ("training", "truth") for i in _near(points, running, of, ratio)}
        for number in range(1 + HELD_OUT):
            for i, relative in rounds.one(sorted(near)).items():
                (points[i].truth if number else points[i].training).append(relative)


def _near(points: Sequence[Point], running: Collection[int], of: str, ratio: float) -> list[int]:
    """Points whose median is within `ratio` of the best: those that a few lucky rounds made fast need more rounds."""
    medians = {i: statistics.median(getattr(points[i], of) or [1.0]) for i in running}
    return [i for i in running if medians[i] <= ratio * min(medians.values())]


class _Rounds:
    """Rounds over programs in random order. The program that seems fastest is the reference, which runs again and
    again between the others."""

    def __init__(self, programs: dict[int, BoundSteps], pool: Pool, order: random.Random) -> None:
        self.programs, self.pool, self.order = programs, pool, order
        self.position = 0
        self.reference = min(programs, key=self.sample)

    def one(self, chosen: list[int]) -> dict[int, float]:
        """The time of each program over the mean of the reference's times just before and after it."""
        self.order.shuffle(chosen)
        self.position += self.order.randrange(
            VISIT * BETWEEN
        )  # or else the reference might always meet the same inputs
        ratios: dict[int, float] = {}
        before = self.sample(self.reference)
        for start in range(0, len(chosen), BETWEEN):
            times = {i: self.sample(i) for i in chosen[start : start + BETWEEN]}
            after = self.sample(self.reference)
            ratios.update((i, 2 * t / (before + after)) for i, t in times.items())
            before = after
        return ratios

    def sample(self, i: int) -> float:
        """The least of a visit's samples, in microseconds."""
        self.position += VISIT
        return min(self.pool.time_us(self.programs[i], VISIT, self.position))


def _entry(kernel: Kernel, binaries: dict[str, str], cache: ObjectCache) -> int:
    path = cache.path(binaries[kernel.entry])
    assert path is not None
    return load_entry(str(path), kernel.entry, kernel.libraries)


def write(name: str, graph: Graph, points: Sequence[Point]) -> None:
    """NAME.txt: the segment. NAME.csv: a row per schedule; equal numbers are one kernel, whose times stand in its first
    row: training, median of the truth with its 95 % interval by bootstrap, medians of its even and odd rounds."""
    (FOLDER / f"{name}.txt").write_text(print_graph(graph))
    draw = np.random.default_rng(0)
    with (FOLDER / f"{name}.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("kernel", "schedule", "status", "training", "truth", "low", "high", "rounds", "even", "odd"))
        for number, point in enumerate(points):
            nothing = [point.status.value, *[""] * 7]
            times: list[object] = [*nothing]
            if point.truth:
                medians = np.median(draw.choice(point.truth, (200, len(point.truth))), axis=1)
                low, high = np.percentile(medians, (2.5, 97.5))
                training = " ".join(f"{x:.4f}" for x in point.training)
                truth = [f"{x:.4f}" for x in (statistics.median(point.truth), low, high)]
                halves = [f"{statistics.median(point.truth[k::2]):.4f}" for k in (0, 1)]
                times = [point.status.value, training, *truth, len(point.truth), *halves]
            for k, schedule in enumerate(point.schedules):
                rows.writerow([number, schedule, *(times if k == 0 else nothing)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuner.schedule_tables", description=__doc__)
    parser.add_argument("--case", default="*", metavar="GLOB", help="names of cases")
    parser.add_argument("--dtype", action="append", default=[])
    parser.add_argument("--most", type=int, default=900, help="kernels of a segment; larger ones are left out")
    parser.add_argument("--keep", action="store_true", help="leave tables that are there alone")
    parser.add_argument("--cache", metavar="FOLDER", help="of compiled kernels, kept; by default a temporary one")
    parser.add_argument("--checked", default="", metavar="FOLDER", help="tables whose schedules are not checked again")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
