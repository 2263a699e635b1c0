"""Determinism of plans: equal requests, seeds and measurements give equal plans, in other processes, with other hashes
of strings, and whatever the order in which a database returns its rows."""

import os
import random
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from benchmarks.corpus import TOPICS
from codegen.families import FAMILIES
from fusion_ir.core.graph import Graph
from fusion_ir.records import Measurement
from scheduler.budget import Budget
from scheduler.tune import tune
from tests.support.whole import WHOLE, in_turn
from tests.unit.scheduler.fakes import DEVICE, FakeBench, Memory
from tests.unit.scheduler.test_tune import diamond, search

ROOT = Path(__file__).parents[3]
EVERY = 14  # cases of the corpus, at their smallest
SECONDS = 40.0  # of a clock on which a kernel takes one


def corpus() -> dict[str, Graph]:
    """Some cases, of all topics; fewer in other runs than the long one: processes of one run draw alike."""
    cases = [case for group in TOPICS.values() for case in group]
    return {case.name: case.instance("f32", case.small[0]).graph for case in in_turn(cases[::EVERY], 4, "planned")}


def plan_keys() -> list[str]:
    """Name and plan key of every case of the corpus, planned by our families and a bench that takes every kernel's time
    from its name."""
    found: list[str] = []
    for name, graph in corpus().items():
        bench = FakeBench(seed=11)
        plan = tune(graph, DEVICE, Budget(SECONDS, seed=3), Memory(), bench, families=FAMILIES, clock=bench.clock)
        assert plan.search.measured > 0, name
        found.append(f"{name} {plan.plan_key}")
    return found


@pytest.mark.soak
def test_other_processes_find_the_same_plans() -> None:
    script = "from tests.unit.scheduler.test_determinism import plan_keys; print('\\n'.join(plan_keys()))"
    own = "\n".join(plan_keys()) + "\n"  # by the hashes that this process drew
    assert own.count("\n") > 3
    for seed in ("0", "4242") if WHOLE else ("4242",):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout == own


class Shuffled(Memory):
    """A memory with the rows of another one, its races and their rows in random order."""

    def __init__(self, memory: Memory, seed: int) -> None:
        super().__init__()
        order = random.Random(seed)
        keys = list(memory.rows)
        order.shuffle(keys)
        for key in keys:
            races = [list(rows) for _, rows in groupby(memory.rows[key], key=lambda m: m.race)]
            order.shuffle(races)
            for race in races:
                order.shuffle(race)
            self.rows[key] = [m for race in races for m in race]

    def record(self, segment: Graph, measurements: list[Measurement]) -> None:  # type: ignore[override]
        assert not measurements, "everything is known"


@pytest.mark.parametrize("bench_seed", [2, 7, 13])
def test_the_order_of_rows_does_not_matter(bench_seed: int) -> None:
    memory = Memory()
    for _ in range(3):  # until nothing is left to measure
        search(diamond(), FakeBench(seed=bench_seed), costs=memory, most=3)
    known, _ = search(diamond(), FakeBench(seed=bench_seed), costs=memory, most=3)
    for seed in range(6):
        again, bench = search(diamond(), FakeBench(seed=bench_seed), costs=Shuffled(memory, seed), most=3)
        assert bench.calls == []
        assert again.plan_key == known.plan_key
