"""Covers whose temporaries fit, against enumeration; what fits nowhere says what it needs."""

import math
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pytest

from scheduler.cover.live_set_search import LiveSetSearch
from scheduler.cover.peak_memory import PeakMemory
from scheduler.cover.solver import CoverProblem, NoRoom
from scheduler.segments.hypergraph import Hypergraph
from scheduler.segments.segment_mask import SegmentMask
from tests.support.cover_problems import Problem, cheapest, cheapest_within, check_order, random_problem
from tests.support.whole import WHOLE, some

PROBLEMS = 400


def limited(seed: int) -> tuple[Problem, list[int], int]:
    """A problem, bytes by tensor, and a limit."""
    problem, rng = random_problem(seed), random.Random(seed)
    return problem, [rng.randint(3, 4) for _ in problem.hypergraph.stands], rng.randint(6, 11)


def seeds(name: str) -> list[int]:
    """Problems that the test of this name draws; all in the long run."""
    return some(range(PROBLEMS), 130, name)


def differing(seeds: Iterable[int]) -> Iterator[int]:
    """Problems whose answer is not that of enumeration, one after the other."""
    for seed in seeds:
        problem, bytes_, limit = limited(seed)
        expected, least = cheapest_within(problem, bytes_, limit)
        try:
            cover = CoverProblem(problem.hypergraph, bytes_).solve(problem.costs, limit_bytes=limit)
        except NoRoom as none:
            if expected < math.inf or not none.exact or none.cover.peak_bytes != least:
                yield seed
            continue
        wrong = (cover.cost_us if cover else math.inf) != expected
        if cover:
            check_order(problem, cover.pieces)
            wrong |= not cover.exact or cover.peak_bytes > limit
        if wrong:
            yield seed


@pytest.mark.soak
def test_agrees_with_enumeration() -> None:
    drawn = seeds("enumeration")
    assert list(differing(drawn)) == []
    dearer = impossible = 0
    for seed in drawn:
        problem, bytes_, limit = limited(seed)
        expected, _ = cheapest_within(problem, bytes_, limit)
        dearer += cheapest(problem) < expected < math.inf
        impossible += cheapest(problem) < expected == math.inf
    least = 50 if WHOLE else 3
    assert dearer > least, "the limit must matter"
    assert impossible > least


@pytest.mark.parametrize("fault", ["writes", "potential"])
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "writes":  # what a piece writes for nobody yet takes no room
        of = PeakMemory.of
        before = LiveSetSearch._before

        def forgetful(self: LiveSetSearch, after, limit):
            self._memory.of = lambda tensors: of(self._memory, tensors & after.demanded)  # type: ignore[method-assign]
            yield from before(self, after, limit)

        monkeypatch.setattr(LiveSetSearch, "_before", forgetful)
    else:  # a bound that is none
        monkeypatch.setattr(LiveSetSearch, "__init__", bound_thrice(LiveSetSearch.__init__))
    assert len(list(islice(differing(range(PROBLEMS)), 4))) > 3


def bound_thrice(init: Callable[..., None]) -> Callable[..., None]:
    def wrong(
        self: LiveSetSearch, steps: object, outputs: int, memory: PeakMemory, bound: Callable[[int], float]
    ) -> None:
        init(self, steps, outputs, memory, lambda demanded: 3 * bound(demanded))

    return wrong


@pytest.mark.soak
def test_a_beam_keeps_to_the_limit() -> None:
    found = 0
    for seed in seeds("beam"):
        problem, bytes_, limit = limited(seed)
        expected, _ = cheapest_within(problem, bytes_, limit)
        try:
            cover = CoverProblem(problem.hypergraph, bytes_, max_states=0).solve(problem.costs, limit_bytes=limit)
        except NoRoom:
            continue
        if cover:
            check_order(problem, cover.pieces)
            assert cover.peak_bytes <= limit
            assert cover.cost_us >= expected >= cover.lower_us * (1 - 1e-9)
            found += not cover.exact and expected < math.inf
    assert found > 10 or not WHOLE


def test_room_is_what_is_alive_at_once() -> None:
    """0 -> 1 -> 2, all written: each step holds what it reads and what it writes; the last one writes an output."""
    hypergraph = Hypergraph([0, 0b1, 0b10], range(3), 0b100)
    assert PeakMemory(hypergraph, [5, 7, 100]).peak(SegmentMask(1 << a, 1 << a) for a in range(3)) == 12


def test_many_chains_within_what_one_after_the_other_needs() -> None:
    """Sixteen chains of six whose steps do not merge: in depth-first order two temporaries are alive, although the
    cheapest cover is executed in any order."""
    chains, length = 16, 6
    reads = [1 << a - 1 if a % length else 0 for a in range(chains * length)]
    outputs = sum(1 << length * c + length - 1 for c in range(chains))
    costs = {SegmentMask(1 << a, 1 << a): 1.0 for a in range(len(reads))}
    problem = CoverProblem(Hypergraph(reads, range(len(reads)), outputs), [10] * len(reads))
    cover = problem.solve(costs, limit_bytes=20)
    assert cover is not None
    assert cover.exact
    assert cover.peak_bytes == 20
    assert set(costs) == set(cover.pieces)
    with pytest.raises(NoRoom, match=r"at most 19 bytes; the least that .* is 20"):
        problem.solve(costs, limit_bytes=19)
