"""Many trials with one kernel in five faulty: the search ends with the right winner, whatever the others did to it.

30 in every run; `make soak` sets FUSEPLAN_FAULTY_TRIALS to 1,000.
"""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.kernel import Kernel
from codegen.sandbox.limits import GIB, Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.cpu import find_compiler
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.records import Measurement, Status
from scheduler.tuning.trial_log import TrialLog
from scheduler.tuning.trials import AGAIN
from tests.support.devices import with_small_cache
from tests.support.faults import DECLARED, FAULTS
from tests.support.kernels import SUM, bare_headers, sum_graph, sum_kernel

TRIALS = int(os.environ.get("FUSEPLAN_FAULTY_TRIALS", "30"))
BATCH = 8  # as a search measures them
N = 20_001  # ends no cache line: what is written just behind it shows, and does not crash
WORKS = (8, 60)  # least and most of the others, times the work of the fastest: which takes half as long as the next
NOT_TO_THE_END = ("stopped", "screened out")  # what a row says of a kernel that others beat before the end
LIMITS = Limits(kernel_seconds=0.5, memory_bytes=GIB, timing_seconds=0.05, output_bytes=1 << 16, compile_seconds=20.0)


def right(number: int, work: int) -> Kernel:
    """Computes the sum `work` times: the winner is the one with the least work."""
    body = f'for (int r = 0; r < {work}; r++) {{ {SUM} __asm__ volatile("" ::: "memory"); }}'
    return replace(sum_kernel(N, f"right_{number}", body), schedule=f"work={work} of {number}")


def faulty(number: int, rng: random.Random) -> Kernel:
    """A kernel with a random fault, as fast as the winner where it runs at all."""
    fault = rng.choice(FAULTS)
    kernel = sum_kernel(N, f"faulty_{number}", fault.body, before=DECLARED)
    return replace(kernel, schedule=f"{number}: {fault.name}")


def trials(rng: random.Random) -> list[Kernel]:
    """TRIALS kernels in random order, one in five faulty; exactly one right kernel has the least work."""
    bad = TRIALS // 5
    works = [1, *(rng.randint(*WORKS) for _ in range(TRIALS - bad - 1))]
    kernels = [right(i, work) for i, work in enumerate(works)] + [faulty(i, rng) for i in range(bad)]
    rng.shuffle(kernels)
    return kernels


def search(bench: Workbench, graph: Graph, kernels: list[Kernel]) -> tuple[Measurement | None, list[Measurement]]:
    """The winner of batches, with the winner so far and what is doubted, as `scheduler.tuning.trials` races them; all
    rows."""
    by_variant = {(k.family, k.schedule): k for k in kernels}
    entry, rows = TrialLog(list(by_variant)), list[Measurement]()
    while entry.pending or entry.doubted:
        batch = [v for v in (entry.winner, *entry.doubted[:AGAIN], *entry.pending[:BATCH]) if v]
        new = bench.measure(graph, "segment", [by_variant[v] for v in batch])
        entry.note(new)
        rows += new
    return entry.best(), rows


def raced(tmp_path: Path, kernels: list[Kernel]) -> tuple[Measurement | None, list[Measurement]]:
    """`search` on this machine's CPU."""
    cache = ObjectCache(tmp_path / "cache")
    device = with_small_cache(detect("cpu", cache, ceilings=False))
    compiler = find_compiler(device, LIMITS, bare_headers(tmp_path / "h"))
    with Workbench(device, cache, LIMITS, compiler=compiler) as bench:
        return search(bench, sum_graph(N), kernels)


def test_what_is_wrong_now_and_then_wins_no_race(tmp_path: Path) -> None:
    """One run in 16 is wrong, after two right ones; runs write over each other's results."""
    (fault,) = (f for f in FAULTS if f.name == "is wrong now and then")
    wrong = [
        replace(sum_kernel(N, f"faulty_{i}", fault.body, before=DECLARED), schedule=f"{i}: wrong") for i in range(8)
    ]
    best, rows = raced(tmp_path, [right(0, 1), *wrong])
    assert best is not None and best.schedule == "work=1 of 0"
    found = {m.schedule: f"{m.status.value} {m.detail}" for m in rows if m.schedule.endswith("wrong")}
    assert len(found) == len(wrong)
    missed = {k: v for k, v in found.items() if v.startswith("ok") and not any(w in v for w in NOT_TO_THE_END)}
    assert not missed


@pytest.mark.soak
def test_the_right_winner_among_faulty_candidates(tmp_path: Path) -> None:
    rng = random.Random(20)
    kernels = trials(rng)
    best, rows = raced(tmp_path, kernels)
    right_rows = [m for m in rows if m.schedule.startswith("work=")]
    suffered = [f"{m.schedule}: {m.status.value} {m.detail}" for m in right_rows if m.status is not Status.ok]
    assert not suffered, "a right kernel suffers from no faulty one"
    assert best is not None
    assert best.schedule == "work=1 of 0", [m.model_dump() for m in rows if m.schedule == "work=1 of 0"]
    expected = {fault.name: fault.status for fault in FAULTS}
    faults = {m.schedule: m for m in rows if not m.schedule.startswith("work=")}
    assert (len(faults), len({m.schedule for m in right_rows})) == (TRIALS // 5, TRIALS - TRIALS // 5)
    by_time = {Status.timed_out: Status.out_of_memory}  # memory takes time to fill: either limit may come first
    others = {
        schedule: f"{m.status.value} {m.detail}"
        for schedule, m in faults.items()
        if expected[schedule.partition(": ")[2]] not in (m.status, by_time.get(m.status))
        and not (m.status is Status.ok and any(word in m.detail for word in NOT_TO_THE_END))
    }
    assert not others, "only what was not timed to the end may hide that it is wrong later"
