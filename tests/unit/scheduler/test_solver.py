"""Covers against enumeration: overlap, alternatives, several writes, pieces that wait for each other."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from scheduler.cover import master as covering_
from scheduler.cover.branch_and_bound import MOST_LATE, search
from scheduler.cover.master import MasterProblem, Solution
from scheduler.cover.separation import FractionalSolution
from scheduler.cover.solver import CoverProblem, NoRoom
from scheduler.segments.hypergraph import Hypergraph
from scheduler.segments.segment_mask import SegmentMask
from tests.support.cover_problems import Problem, cheapest, cheapest_in_no_order, check_order, random_problem
from tests.support.whole import WHOLE, some

PROBLEMS = 1000


def seeds(most: int, name: str) -> list[int]:
    """Three in ten of the first `most` problems, drawn for the test of this name; all in the long run."""
    return some(range(most), most * 3 // 10, name)


def solved_us(problem: Problem) -> float:
    """Cost of the solver's cover in microseconds, infinite where there is none. Fails where the cover is not exact."""
    cover = CoverProblem(problem.hypergraph).solve(problem.costs)
    if cover is None:
        return math.inf
    assert cover.exact
    assert cover.cost_us == sum(problem.costs[p] for p in cover.pieces)
    check_order(problem, cover.pieces)
    return cover.cost_us


@pytest.mark.soak
def test_agrees_with_enumeration() -> None:
    overlapping = cyclic = impossible = 0
    for seed in seeds(PROBLEMS, "enumeration"):
        problem = random_problem(seed)
        expected = cheapest(problem)
        assert solved_us(problem) == pytest.approx(expected, rel=1e-12), seed
        cyclic += cheapest_in_no_order(problem) < expected
        impossible += expected == math.inf
        overlapping += cheapest(without_overlap(problem)) > expected
    assert cyclic > (100 if WHOLE else 20), "the problems must include some whose cheapest pieces wait for each other"
    assert impossible > 10 or not WHOLE
    assert overlapping > 20, "some must be covered cheaper by pieces that keep to themselves what others need, too"


def without_overlap(problem: Problem) -> Problem:
    """The problem with only those pieces that write all that they compute."""
    whole = {p: c for p, c in problem.costs.items() if p.writes == problem.hypergraph.made(p.members)}
    return Problem(problem.hypergraph, whole)


@pytest.mark.parametrize("fault", ["order", "alternatives", "gap", "branches"])
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with enumeration fails for some problem where the integer programme has a seeded fault."""
    decision = MasterProblem._decision
    if fault == "order":  # pieces that wait for each other pass for a cover
        monkeypatch.setattr(covering_, "reached", lambda pieces: -1)
        monkeypatch.setattr(covering_, "in_order", lambda pieces, outputs: tuple(p for p, _ in pieces))
    elif fault == "alternatives":  # what one producer of several reads has to be computed
        monkeypatch.setattr(Hypergraph, "needed_for", lambda self, tensors: self.everything if tensors else 0)
    elif fault == "gap":  # pieces are struck out that are in the best cover
        forbid = MasterProblem.forbid_dearer
        monkeypatch.setattr(MasterProblem, "forbid_dearer", lambda self, gap: forbid(self, 0.2 * gap))
    else:  # what a decision leaves out is not looked at
        monkeypatch.setattr(
            MasterProblem,
            "_decision",
            lambda self, *of: decision(self, *of)._replace(columns=np.arange(len(self.pieces))),
        )
        _find_few_rows(monkeypatch)
    # Of the first thousand problems number 670 alone tells that fault of the gap.
    assert any(_differs(random_problem(seed)) for seed in (*range(660, PROBLEMS), *range(660)))


def _find_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves more open than the rows do that are found otherwise."""
    monkeypatch.setattr(FractionalSolution, "open_sets", lambda self, known: [])


def _differs(problem: Problem) -> bool:
    try:
        return solved_us(problem) != pytest.approx(cheapest(problem))
    except AssertionError:
        return True


@pytest.mark.soak
def test_branching_decides_what_rows_leave_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one problem of thirty they leave something open."""
    _find_few_rows(monkeypatch)
    searched = Counter[int]()
    solve = MasterProblem.solve
    monkeypatch.setattr(MasterProblem, "solve", lambda self, *of: searched.update([seed]) or solve(self, *of))
    for seed in seeds(PROBLEMS, "branching"):
        problem = random_problem(seed)
        assert solved_us(problem) == pytest.approx(cheapest(problem), rel=1e-12), seed
    assert sum(nodes > 1 for nodes in searched.values()) > 20 or not WHOLE


def test_pieces_that_wait_for_each_other() -> None:
    """{0, 3} and {1, 2} are cheapest, and read each other."""
    hypergraph = Hypergraph([0, 0, 0b11, 0b11], range(4), 0b1100)
    costs = {SegmentMask(m, m): 1.0 if m in (0b1001, 0b0110) else 4.0 for m in (0b1001, 0b0110, 1, 2, 4, 8)}
    problem = Problem(hypergraph, costs)
    assert cheapest_in_no_order(problem) == 2.0
    assert solved_us(problem) == cheapest(problem) == 6.0


def test_one_problem_serves_many_costs() -> None:
    """Cuts and decisions are kept, pieces come and go."""
    rng = random.Random(1)
    for seed in range(20):
        hypergraph, pieces = random_problem(seed)
        problem = CoverProblem(hypergraph)
        for _ in range(10):
            costs = {p: float(rng.randint(5, 60)) for p in pieces if rng.random() < 0.8}
            cover = problem.solve(costs)
            assert (cover.cost_us if cover else math.inf) == cheapest(Problem(hypergraph, costs)), seed


class Look:
    """Gives the real costs of pieces, each once. seen: those that were asked about."""

    def __init__(self, costs: Mapping[SegmentMask, float]) -> None:
        self.costs, self.seen = costs, set[SegmentMask]()

    def __call__(self, pieces: Collection[SegmentMask]) -> dict[SegmentMask, float]:
        new = set(pieces) - self.seen
        self.seen |= new
        return {p: self.costs[p] for p in new}


def test_looks_at_what_may_be_part_of_a_cover() -> None:
    """Costs that are lower bounds first give the same cover, and most pieces are never asked about."""
    asked = all_ = 0
    for seed in range(200):
        hypergraph, costs = random_problem(seed)
        rng = random.Random(seed)
        look = Look(costs)

        vague = {p: c * rng.uniform(0.7, 1.0) if c < math.inf else 10.0 for p, c in costs.items()}
        cover = CoverProblem(hypergraph).solve(vague, look=look)
        assert (cover.cost_us if cover else math.inf) == cheapest(Problem(hypergraph, costs)), seed
        asked, all_ = asked + len(look.seen), all_ + len(costs)
    assert asked < 0.5 * all_


@pytest.mark.soak
@pytest.mark.parametrize("limited", [False, True], ids=["any memory", "little memory"])
def test_when_time_is_over_a_cover_holds_what_was_looked_at(limited: bool) -> None:
    """Whenever time is over, on the way to a cover, and whatever looks show then: each of its pieces was looked at,
    none is refused, and it costs what looks showed. On a busy machine a search failed with KeyError: a piece that the
    last look refused was part of the cover that the solution was rounded to."""
    found = refused = 0
    for seed in seeds(PROBLEMS, "looked at"):
        hypergraph, costs = random_problem(seed)
        rng = random.Random(seed)
        vague = {p: rng.choice((0.3, 0.7, 1.0)) * c if c < math.inf else 5.0 for p, c in costs.items()}
        look = Look(costs)

        ticks = itertools.count()
        tensors = hypergraph.everything.bit_length()
        sizes = [rng.randint(1, 4) for _ in range(tensors)]
        problem = CoverProblem(hypergraph, sizes, clock=lambda ticks=ticks: float(next(ticks)))
        limit = rng.randint(4, 4 * tensors) if limited else None
        try:
            cover = problem.solve(vague, most_s=rng.randrange(12), look=look, limit_bytes=limit)
        except NoRoom:
            continue
        refused += any(costs[p] == math.inf for p in look.seen)
        if cover is None:
            continue
        assert look.seen.issuperset(cover.pieces), seed
        assert cover.cost_us == sum(costs[p] for p in cover.pieces) < math.inf, seed
        found += 1
        if limit is None:
            expected = cheapest(Problem(hypergraph, costs))
            assert cover.lower_us <= expected * (1 + 1e-9), seed
            assert not cover.exact or cover.cost_us == pytest.approx(expected, rel=1e-12), seed
        else:
            assert cover.peak_bytes <= limit, seed
    assert found > 100
    assert refused > 10


class Undecided(MasterProblem):
    """Whose solutions take two pieces by half, whatever is decided, and are no covers."""

    def __init__(self) -> None:
        super().__init__(Hypergraph([0, 0], range(2), 0b11))
        self.price({SegmentMask(m, m): 1.0 for m in (1, 2)})
        self.nodes = 0

    def solve(self, *args: Any, **kwargs: Any) -> Solution:
        self.nodes += 1
        return Solution(1.0, {0: 0.5, 1: 0.5})

    def order(self, columns: Iterable[int]) -> tuple[SegmentMask, ...]:
        return ()


@pytest.mark.parametrize("nodes_in_time", [0, 1, 50])
def test_when_time_is_over_few_more_nodes_are_looked_at(nodes_in_time: int) -> None:
    """Without a cover, branch and bound ends MOST_LATE nodes after the time is over. It used to go on until it had one:
    a search of 5 s took 189 s."""
    covering = Undecided()
    assert search(covering, 10_000, lambda: covering.nodes >= nodes_in_time, None) is None
    assert covering.nodes == nodes_in_time + MOST_LATE


@pytest.mark.soak
def test_when_time_is_over_there_is_a_cover_even_so() -> None:
    found = 0
    for seed in seeds(PROBLEMS // 2, "time"):
        problem = random_problem(seed)
        cover = CoverProblem(problem.hypergraph).solve(problem.costs, most_s=-1.0)
        if cover is None:
            assert cheapest(problem) == math.inf
            continue
        check_order(problem, cover.pieces)
        assert cover.lower_us <= cheapest(problem) * (1 + 1e-9)
        found += 1
    assert found


@pytest.mark.soak
def test_without_branching_the_bound_holds() -> None:
    open_ = 0
    for seed in seeds(PROBLEMS // 2, "bound"):
        problem = random_problem(seed)
        cover = CoverProblem(problem.hypergraph, max_nodes=1).solve(problem.costs)
        if cover is not None:
            expected = cheapest(problem)
            check_order(problem, cover.pieces)
            assert cover.lower_us <= expected * (1 + 1e-9)
            assert cover.cost_us >= expected
            assert cover.exact <= (cover.cost_us == expected)
            open_ += not cover.exact
    assert open_ or not WHOLE, "the relaxation leaves some open"


def test_nothing_to_cover() -> None:
    cover = CoverProblem(Hypergraph((), (), 0)).solve({})
    assert cover is not None
    assert cover.exact
    assert cover.pieces == ()


def test_parallel_chains_with_ties() -> None:
    """Thirty-two chains of eight, of which any segments may be merged with those of a neighbour at the same price."""
    chains, length = 32, 8
    reads = [1 << a - 1 if a % length else 0 for a in range(chains * length)]
    outputs = sum(1 << length * c + length - 1 for c in range(chains))
    costs: dict[SegmentMask, float] = {}
    for first, last in ((f, l) for f in range(length) for l in range(f, length)):
        inside = [((2 << last) - (1 << first)) << length * c for c in range(chains)]
        ends = [1 << last + length * c for c in range(chains)]
        for c in range(chains):
            costs[SegmentMask(inside[c], ends[c])] = 10.0 + abs(last - first - 1)
        for c in range(0, chains, 2):
            costs[SegmentMask(inside[c] | inside[c + 1], ends[c] | ends[c + 1])] = 20.0 + 2 * abs(last - first - 1)
    cover = CoverProblem(Hypergraph(reads, range(len(reads)), outputs)).solve(costs)
    assert cover is not None
    assert cover.exact
    assert cover.cost_us == chains * 16.0
