"""Searches whose time is over at any reading of the clock, as on machines that others use: each gives a plan."""

import random

import pytest

from codegen.families import FAMILIES
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import f32
from scheduler.budget import Budget
from scheduler.tune import tune
from tests.support.transformer_blocks import block
from tests.support.whole import WHOLE, some
from tests.unit.scheduler.fakes import DEVICE, Clock, FakeBench, Memory

SEARCHES = 120
GRAPHS = {"one layer": block(f32), "two layers": block(f32, 2)}


class Leaping(Clock):
    """A clock that goes on by `each` seconds whenever it is read, and once, at a reading, by `leap` seconds: somebody
    else had the CPU."""

    def __init__(self, each: float, at: int, leap: float) -> None:
        super().__init__()
        self.readings, self.each, self.at, self.leap = 0, each, at, leap

    def __call__(self) -> float:
        self.readings += 1
        self.now += self.leap if self.readings == self.at else self.each
        return self.now


def has_measured(graph: Graph, seed: int) -> bool:
    """Searches with a clock drawn by the seed. Whether there was time to measure kernels."""
    rng = random.Random(seed)
    seconds = rng.choice((1.0, 5.0, 60.0))
    readings = rng.randrange(20, 3000)  # in the time there is
    clock = Leaping(seconds / readings, rng.randrange(readings), seconds * rng.choice((0.0, 0.3, 0.6, 1.2)))
    bench = FakeBench(clock=clock, seed=seed, seconds_each=seconds * rng.choice((0.001, 0.01, 0.05)))
    plan = tune(graph, DEVICE, Budget(seconds, seed=seed), Memory(), bench, families=FAMILIES, clock=clock)
    assert plan.steps
    assert plan.search.measured or plan.search.cut_short or plan.reasons
    return plan.search.measured > 0


@pytest.mark.soak
@pytest.mark.parametrize("name", GRAPHS)
def test_time_that_is_over_at_any_reading_of_the_clock_leaves_a_plan(name: str) -> None:
    measured = [has_measured(GRAPHS[name], seed) for seed in some(range(SEARCHES), SEARCHES // 20, name)]
    assert 0 < sum(measured) < len(measured) or not WHOLE
