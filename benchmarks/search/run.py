"""How the search scales without measuring, and how much better its covers are than what simpler ways of cutting choose.

    python -m benchmarks.search [--graph GLOB] [--case GLOB] [--target h200 cpu] [--limit S]

writes benchmarks/results/search.{md,json,svg}. Nothing is timed on a device: families answer for real, predictions are
the costs. Each graph of `search_graphs` is searched in a process of its own, up to three times; then each case of the
corpus is cut in simpler ways (`search_baselines`), and what these are predicted to take is divided by what the search's
own cover is.
"""

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.corpus import TOPICS
from benchmarks.machine import RESULTS, machine
from benchmarks.search.baselines import baselines
from benchmarks.search.graphs import GRAPHS
from benchmarks.search.page import PHASES, Against, Row, page, panels, whole_s
from benchmarks.search.plot import panels_svg
from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device
from scheduler.budget import Budget
from scheduler.cover.oracle import CoverOracle, Proposal
from scheduler.deadline import Deadline
from scheduler.gc_pause import collecting_rarely
from scheduler.interfaces import Forgetful
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.split_reduction import split_tasks
from scheduler.segments.atom_cuts import cut
from scheduler.segments.atoms import Atoms
from scheduler.segments.enumeration import Candidate, Candidates, find_candidates
from scheduler.settings import TuneSettings
from scheduler.tune import tune
from scheduler.tuning.trials import Ledger

TARGETS = ("h200", "cpu")
REPEATS = 3
ENOUGH_S = 25.0  # of the phases: slower graphs are searched no further


@dataclass(frozen=True)
class Searched:
    """Results of the phases of a search. seconds: CPU time by phase."""

    seconds: Mapping[str, float]
    atoms: Atoms
    ledger: Ledger
    found: Candidates
    covers: CoverOracle
    cover: Proposal


@collecting_rarely()
def searched(graph: Graph, device: Device, cover_s: float = TuneSettings().cover_s) -> Searched:
    """The phases of `tune` up to the best cover by predictions, which may take `cover_s` seconds."""
    times = [time.process_time()]
    ledger = Ledger(device, FAMILIES, Forgetful(), None, 0)
    prepared = prepare(graph, split_tasks(device), offers=ALTERNATIVES, takes=ledger.acceptor.shares)
    times.append(time.process_time())
    atoms = cut(prepared.graph, ledger.acceptor.computable, alternatives=prepared.alternatives)
    times.append(time.process_time())
    found = find_candidates(atoms, lambda piece: ledger.acceptor.ask(atoms, piece))
    times.append(time.process_time())
    covers = CoverOracle(atoms, found, ledger, Deadline(0.0, 0.0, None, time.monotonic), cover_s)
    cover = covers.promising()
    times.append(time.process_time())
    seconds = {name: after - before for name, (before, after) in zip(PHASES, pairwise(times), strict=True)}
    return Searched(seconds, atoms, ledger, found, covers, cover)


def measured(name: str, device: Device, repeats: int) -> Row:
    """The row of one graph; call it in a fresh process, whose memory it reads."""
    graph = GRAPHS[name]()
    before = _peak_mib()
    runs: list[dict[str, float]] = []
    while True:
        last = searched(graph, device)
        runs.append(dict(last.seconds))
        if sum(last.seconds.values()) > ENOUGH_S:
            break
        started = time.process_time()
        tune(graph, device, Budget(0), Forgetful(), None)
        runs[-1]["tune"] = time.process_time() - started
        if last.atoms.given < len(last.atoms):
            started = time.process_time()
            tune(graph, device, Budget(0), Forgetful(), None, offers=())
            runs[-1]["as given"] = time.process_time() - started
        if len(runs) >= repeats:
            break
    peak = _peak_mib()
    cost_us = sum(map(last.ledger.model.predicted_us, last.cover))
    return Row(
        name,
        device.target if device.origin == "detected" else device.name,
        len(graph.nodes),
        len(last.atoms),
        len(last.found.accepted),
        len({c.segment.key for c in last.found.accepted.values()}),
        len(last.cover),
        last.covers.exact,
        1.0 if last.covers.exact else cost_us / last.covers.relaxed_us(last.ledger.model.predictions),
        {p: statistics.median(run[p] for run in runs if p in run) for p in runs[0]},
        peak,
        peak - before,
        len(runs),
    )


def against(case: str, graph: Graph, device: Device, cover_s: float = TuneSettings().cover_s) -> Against:
    """The baselines on one graph, at the costs by which its cover was chosen."""
    found = searched(graph, device, cover_s)
    ledger, atoms = found.ledger, found.atoms
    known: dict[int, Candidate | None] = {p.members: c for p, c in found.found.accepted.items() if atoms.is_plain(p)}

    def ask(members: int) -> Candidate | None:
        if members not in known:
            convex = atoms.is_convex(members)
            known[members] = ledger.acceptor.ask(atoms, atoms.piece(members)) if convex else None
        return known[members]

    def cost_us(members: int) -> float:
        """By first kernels, as the segments of the search's cover are predicted."""
        candidate = ask(members)
        if candidate is None:
            return math.inf
        ledger.look_closer(candidate)
        return candidate.weight * ledger.model.predicted_us(candidate)

    ours_us = found.covers.us(found.cover)
    ratios = {
        name: sum(map(cost_us, partition)) / ours_us if ours_us else 1.0
        for name, partition in baselines(atoms.plain, lambda m: isinstance(ask(m), Candidate), cost_us).items()
    }
    return Against(case, device.target, ours_us, found.covers.exact, ratios)


def cases(pattern: str, small: bool) -> Iterator[tuple[str, Graph]]:
    """The corpus, at benchmark sizes or the tests'."""
    for case in (c for of in TOPICS.values() for c in of if fnmatch(c.name, pattern)):
        for dtype in case.bench_dtypes:
            yield f"{case.name} {dtype}", case.instance(dtype, case.small[-1] if small else None).graph


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="fuseplan-search-") as folder:
        cache = ObjectCache(options.cache or folder)
        if options.one:
            row = measured(options.one, detect(options.target[0], cache), options.repeats)
            print(json.dumps(asdict(row)))
            return 0
        rows, compared = list[Row](), list[Against]()
        for target in options.target:
            device = detect(target, cache)
            for name in (n for n in GRAPHS if fnmatch(n, options.graph)):
                rows.append(_in_a_process(name, target, cache.folder, options))
                print(_line(rows[-1]), file=sys.stderr, flush=True)
            for name, graph in cases(options.case, options.dry):
                compared.append(against(name, graph, device))
                print(name, target, compared[-1].ratios, file=sys.stderr, flush=True)
    text = page(rows, compared)
    print(text)
    if options.out:
        content = {"machine": machine(), "graphs": [asdict(r) for r in rows], "corpus": [asdict(a) for a in compared]}
        options.out.with_suffix(".md").write_text(text)
        options.out.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
        options.out.with_suffix(".svg").write_text(panels_svg(panels(rows), columns=2))
    return 0


def _in_a_process(name: str, target: str, cache: Path, options: argparse.Namespace) -> Row:
    command = [sys.executable, "-m", "benchmarks.search", "--one", name, "--target", target, "--cache", str(cache)]
    command += ["--repeats", str(options.repeats)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, check=False)
    except subprocess.TimeoutExpired:
        return Row(name, target, problem=f"stopped after {options.limit:g} s")
    if ended.returncode:
        return Row(name, target, problem=(ended.stderr.strip().splitlines() or [f"exit {ended.returncode}"])[-1])
    found: dict[str, Any] = json.loads(ended.stdout)
    found["target"] = target
    return Row(**found)


def _line(row: Row) -> str:
    if row.seconds is None:
        return f"{row.graph} {row.target}: {row.problem}"
    return f"{row.graph} {row.target}: {row.nodes} nodes, {whole_s(row.seconds):.2f} s, {row.peak_mib} MiB"


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description="The search without measuring.")
    parser.add_argument("--graph", default="*", help="glob over the names of graphs")
    parser.add_argument("--case", default="*", help="glob over the names of the corpus's cases")
    parser.add_argument("--target", nargs="+", default=list(TARGETS))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for all runs of one graph")
    parser.add_argument(
        "--dry", action="store_true", help="tests' sizes for the corpus; write nothing unless told where"
    )
    parser.add_argument("--out", type=Path, help="stem of the files to write")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--one", help="measure this graph in this process, and print its row")
    options = parser.parse_args()
    if options.out is None and not options.dry:
        options.out = RESULTS / "search"
    return options
