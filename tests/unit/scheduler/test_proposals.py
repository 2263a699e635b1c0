"""Schedules beyond a family's first ones: which are proposed, and that they find what is fast sooner than chance."""

import random
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from statistics import fmean

import pytest

from codegen.schedule import Choices, schedule_text
from fusion_ir.ops import make, make_input
from scheduler.budget import Budget
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate
from scheduler.segments.segment_mask import SegmentMask
from scheduler.tune import tune
from scheduler.tuning.proposals import proposals
from scheduler.tuning.schedule_space import ScheduleSpace
from scheduler.tuning.trials import NEAR_BOUND, PATIENCE, Ledger
from tests.support.kernels import dense, graph_of
from tests.support.whole import in_turn
from tests.unit.scheduler.fakes import DEVICE, FakeBench, FakeFamily, Memory, families

FEW: Choices = {"lanes": (16, 32, 64), "store": ("stream", "plain"), "ahead": (0, 1)}
MANY: Choices = {"a": (1, 2, 4, 8), "b": tuple(range(6)), "c": ("x", "y"), "d": tuple(range(8)), "e": (0, 1)}
SPEC = dense(512, 1024)
GRAPH = graph_of((SPEC,), make("exp", [make_input(0, SPEC)]))

Proposer = Callable[[ScheduleSpace, Mapping[str, float | None], int, int], list[str]]


def points(choices: Choices) -> list[str]:
    return [schedule_text("f", dict(zip(choices, values, strict=True))) for values in product(*choices.values())]


def seconds(schedule: str) -> float:
    """One best point; parameters matter by themselves and a little together."""
    a, b, c, d, e = (item.split("=")[1] for item in schedule[2:-1].split(","))
    off = abs(int(a).bit_length() - 3) + abs(int(b) - 4) + (c == "x") + abs(int(d) - 2) / 2 + (e == "0") * (c == "y")
    return 1.0 + off / 4


def space(choices: Choices) -> ScheduleSpace:
    family = FakeFamily("f", schedules=(points(choices)[0][2:-1],), beyond=choices)
    return ScheduleSpace(family, GRAPH, family.space(GRAPH, DEVICE)[0], DEVICE)


PROPOSERS: dict[str, Proposer] = {
    name: partial(proposals, known=(), sampler=name)
    for name in ("fuseplan", "tpe", "random", "optuna.samplers.RandomSampler")
}
every_proposer = pytest.mark.parametrize("propose", PROPOSERS.values(), ids=PROPOSERS)


@every_proposer
def test_every_point_is_proposed_once(propose: Proposer) -> None:
    tried: dict[str, float | None] = {points(FEW)[5]: 2.0}
    while batch := propose(space(FEW), tried, 4, 1):
        assert not set(batch) & tried.keys()
        assert len(batch) == len(set(batch)) <= 4
        tried.update((schedule, None if "plain" in schedule else float(len(tried))) for schedule in batch)
    assert sorted(tried) == sorted(points(FEW))


@every_proposer
def test_the_same_measurements_give_the_same_proposals(propose: Proposer) -> None:
    tried = {schedule: seconds(schedule) for schedule in points(MANY)[::37]}
    assert propose(space(MANY), tried, 8, 3) == propose(space(MANY), tried, 8, 3)


def test_nothing_to_choose() -> None:
    assert proposals(space({}), {}, 4, 0) == []


@pytest.mark.soak
@pytest.mark.turn("more than chance")
@pytest.mark.parametrize("name", in_turn(["fuseplan", "tpe"], 1))
def test_regret_is_less_than_that_of_chance(name: str) -> None:
    """At 40 trials of 768."""
    propose = PROPOSERS[name]
    best = min(map(seconds, points(MANY)))
    ours, chance = list[float](), list[float]()
    for seed in range(12):
        tried: dict[str, float | None] = {}
        while len(tried) < 40:
            tried.update((s, seconds(s)) for s in propose(space(MANY), tried, 8, seed))
        ours.append(min(t for t in tried.values() if t) / best)
        chance.append(min(map(seconds, random.Random(seed).sample(points(MANY), 40))) / best)
    assert fmean(ours) - 1 < 0.6 * (fmean(chance) - 1)


def test_the_search_goes_beyond_the_first_schedules() -> None:
    graph, first = GRAPH, ("lanes=16,store=plain,ahead=0",)
    for seed in range(4):
        bench = FakeBench(seed=seed)
        kinds = families(schedules=first, beyond=FEW)
        plan = tune(graph, DEVICE, Budget(1000.0), Memory(), bench, families=kinds, clock=bench.clock)
        factors = {e: bench.factor(e) for e in bench.calls}
        assert 1 < plan.search.measured <= 1 + len(points(FEW))
        assert factors[plan.steps[0].entry] <= 1.01 * min(factors.values())


@pytest.mark.parametrize("seed", range(6))
def test_it_ends(seed: int) -> None:
    """Where the winner is near its bound, or where nothing wins for a while."""
    bench = FakeBench(seed=seed)
    ledger = Ledger(DEVICE, families(schedules=("a=1,b=0,c=x,d=0,e=0",), beyond=MANY), Memory(), bench, 0)
    candidate = ledger.acceptor.ask(cut(GRAPH, ledger.acceptor.computable), SegmentMask(1, 1))
    assert isinstance(candidate, Candidate)
    ledger.measure(candidate, 1)
    while ledger.extend(candidate, 8):
        ledger.measure(candidate, 8)
    entry = ledger.logs.open(candidate)
    best = entry.best()
    assert best
    assert best.time_us
    assert best.time_us <= NEAR_BOUND * ledger.model.bound_us(candidate) or entry.fruitless >= PATIENCE
    assert len(entry.tried) < len(points(MANY)) / 2
