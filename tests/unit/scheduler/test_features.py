"""First guesses from other segments: whom they come from, and that they are worth something."""

import random
from statistics import fmean

import numpy as np
import pytest

from codegen.schedule import Choices, schedule_values
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import make, make_input
from scheduler.cost.features import LEAST_TIMES, Tuned, alike, expected_logs
from scheduler.cost.gaussian_process import GaussianProcess
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate
from scheduler.segments.segment_mask import SegmentMask
from scheduler.tuning.proposals import proposals
from scheduler.tuning.schedule_space import ScheduleSpace
from scheduler.tuning.trials import Ledger
from tests.support.kernels import dense, graph_of
from tests.unit.scheduler.fakes import DEVICE, FakeBench, FakeFamily, Memory, families

CHOICES: Choices = {"lanes": (8, 16, 32, 64), "tile": (64, 128, 256, 512, 1024), "store": ("x", "y", "z"), "d": (0, 1)}
FIRST = "lanes=8,tile=64,store=x,d=0"


def segment(rows: int, columns: int, op: str = "exp", *, reduced: bool = False) -> Graph:
    spec = dense(rows, columns)
    x: Node = make(op, [make_input(0, spec)])
    return graph_of((spec,), B.sum_(x, 1) if reduced else x)


def space(graph: Graph) -> ScheduleSpace:
    family = FakeFamily("f", schedules=(FIRST,), beyond=CHOICES)
    return ScheduleSpace(family, graph, f"f{{{FIRST}}}", DEVICE)


def seconds(point: str, wide: int, level: float = 1.0) -> float:
    """Best at `wide` lanes, tile 256, store z, d 1."""
    v = schedule_values(point)
    off = abs(int(v["lanes"]).bit_length() - wide.bit_length()) + abs(int(v["tile"]).bit_length() - 9) / 2
    return level * (1.0 + (off + (v["store"] != "z") + (v["d"] == "0") / 4) / 4)


def tuned(graph: Graph, wide: int, count: int = 20, level: float = 1.0) -> Tuned:
    some = random.Random(wide).sample(list(space(graph)), count)
    return Tuned(graph, {point: seconds(point, wide, level) for point in some})


def test_what_decides_about_schedules_makes_segments_alike() -> None:
    one = segment(512, 1024)
    assert alike(one, one) == 1.0
    near, far = alike(one, segment(768, 1024)), alike(one, segment(4, 8))
    assert 1.0 > near > far
    assert near > alike(one, segment(512, 1024, reduced=True))


def test_without_anything_to_go_by_there_is_no_guess() -> None:
    graph = segment(512, 1024)
    points = list(space(graph))
    assert expected_logs(graph, points, [], 0) is None
    assert expected_logs(graph, points, [tuned(graph, 32, LEAST_TIMES - 1)], 0) is None
    assert expected_logs(graph, [], [tuned(graph, 32)], 0) is None


def test_those_that_are_most_alike_are_believed() -> None:
    """Whatever unit their times are in."""
    graph = segment(512, 1024)
    points = list(space(graph))
    known = [tuned(segment(500, 1000), 64, 40, level=1e6), tuned(segment(4, 8, reduced=True), 8, 40)]
    expected = expected_logs(graph, points, known, 0)
    assert expected is not None
    best = schedule_values(points[int(np.argmin(expected))])
    assert (best["lanes"], best["store"]) == ("64", "z")


def test_with_experience_few_trials_are_enough() -> None:
    graph = segment(512, 1024)
    best = min(seconds(p, 64) for p in space(graph))
    known = [tuned(segment(n, 1000), 64, 20, level=n) for n in (300, 600, 900)]
    with_others, alone = list[float](), list[float]()
    for seed in range(6):
        for of, found in ((known, with_others), ([], alone)):
            tried: dict[str, float | None] = {f"f{{{FIRST}}}": seconds(f"f{{{FIRST}}}", 64)}
            batch = proposals(space(graph), tried, 4, seed, of)
            found.append(min(seconds(p, 64) for p in batch) / best)
    assert fmean(with_others) < 1.1 < fmean(alone)


def test_experience_that_misleads_is_overcome() -> None:
    graph = segment(512, 1024)
    points, known = list(space(graph)), [tuned(segment(500, 1000), 8, 40)]
    best, tried = min(seconds(p, 64) for p in points), dict[str, float | None]()
    while len(tried) < 32:
        tried.update((p, seconds(p, 64)) for p in proposals(space(graph), tried, 4, 0, known))
    assert min(t for t in tried.values() if t) <= 1.05 * best


@pytest.mark.parametrize("tried", [{}, {"f{a=1}": 1.0}, {"f{a=1}": None}, {"f{a=1}": 1.0, "f{a=2}": 1.0}])
def test_a_model_of_little_or_nothing_proposes(tried: dict[str, float | None]) -> None:
    points = [f"f{{a={n}}}" for n in range(1, 6)]
    found = GaussianProcess(points, tried, 0).propose(9)
    assert sorted(found) == sorted(set(points) - tried.keys())


def test_the_search_tries_first_what_others_say() -> None:
    class Taught(Memory):
        def others(self, family: str) -> list[Tuned]:
            return [Tuned(segment(500, 1024), times)] if family == "fused" else []

    points = [f"fused{point[1:]}" for point in space(segment(512, 1024))]
    times = {point: seconds(point, 64) for point in points[::3]}
    first = [p for p in points[4::7] if p not in times]
    for costs, in_order in ((Taught(), True), (Memory(), False)):
        kinds = families(schedules=(FIRST, *(p[6:-1] for p in first)), beyond=CHOICES)
        ledger = Ledger(DEVICE, kinds, costs, FakeBench(slowest=1.0), 0)
        candidate = ledger.acceptor.ask(cut(segment(512, 1024), ledger.acceptor.computable), SegmentMask(1, 1))
        assert isinstance(candidate, Candidate)
        ledger.measure(candidate, 1)
        ledger.draw_on_others(candidate)
        pending = [s for f, s in ledger.logs.open(candidate).pending if f == "fused"]
        assert sorted(pending) == sorted(first), "nothing is dropped"
        assert (pending == first) != in_order
        third = len(pending) // 3
        early, late = (fmean(seconds(s, 64) for s in part) for part in (pending[:third], pending[-third:]))
        assert (early < 0.8 * late) == in_order
