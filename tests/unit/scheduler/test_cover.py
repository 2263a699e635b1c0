"""The partition programme against brute force over all partitions."""

import math
import random
from collections.abc import Iterator

import pytest

from scheduler.cover import CoverProblem, bits, execution_order


def partitions(n: int) -> Iterator[list[int]]:
    """All partitions of n atoms, as masks."""
    blocks: list[int] = []

    def grow(atom: int) -> Iterator[list[int]]:
        if atom == n:
            yield list(blocks)
            return
        for i in range(len(blocks)):
            blocks[i] |= 1 << atom
            yield from grow(atom + 1)
            blocks[i] ^= 1 << atom
        blocks.append(1 << atom)
        yield from grow(atom + 1)
        blocks.pop()

    yield from grow(0)


def brute_force(preds: list[int], costs: dict[int, float]) -> tuple[float, float]:
    """(cheapest acyclic partition, cheapest partition with cycles allowed)."""
    acyclic = anyhow = math.inf
    for blocks in partitions(len(preds)):
        cost = sum(costs.get(b, math.inf) for b in blocks)
        anyhow = min(anyhow, cost)
        if cost < acyclic and execution_order(preds, blocks) is not None:
            acyclic = cost
    return acyclic, anyhow


def random_problem(seed: int) -> tuple[list[int], dict[int, float]]:
    rng = random.Random(seed)
    n = rng.randint(2, 8)
    preds = [0] * n
    for a in range(1, n):
        for p in rng.sample(range(a), min(a, rng.randint(0, 2))):
            preds[a] |= 1 << p
    costs = {m: float(rng.randint(5, 40)) for m in range(1, 1 << n) if m.bit_count() == 1 or rng.random() < 0.5}
    return preds, costs


BUTTERFLY = [0, 0, 0b11, 0b11]  # 2 and 3 both read 0 and 1


def check_order(preds: list[int], segments: tuple[int, ...]) -> None:
    done = 0
    for s in segments:
        assert not s & done
        reads = 0
        for a in bits(s):
            reads |= preds[a]
        assert not reads & ~s & ~done, "a segment runs before what it reads"
        done |= s
    assert done == (1 << len(preds)) - 1


def test_agrees_with_brute_force() -> None:
    cyclic = 0
    for seed in range(300):
        preds, costs = random_problem(seed)
        expected, anyhow = brute_force(preds, costs)
        cover = CoverProblem(preds).solve(costs)
        assert cover is not None
        assert cover.exact
        assert cover.cost_us == pytest.approx(expected), seed
        assert sum(costs[s] for s in cover.segments) == pytest.approx(cover.cost_us)
        check_order(preds, cover.segments)
        cyclic += anyhow < expected
    assert cyclic > 20, "the problems must include some whose cheapest partition is cyclic"


def test_beam_is_a_cover_and_no_better_than_the_optimum() -> None:
    for seed in range(100):
        preds, costs = random_problem(seed)
        expected, _ = brute_force(preds, costs)
        cover = CoverProblem(preds, max_steps=0).solve(costs)
        assert cover is not None
        assert not cover.exact
        assert cover.cost_us >= expected - 1e-9
        check_order(preds, cover.segments)


def test_butterfly_whose_cheapest_partition_is_cyclic() -> None:
    # {0, 3} and {1, 2} read each other.
    costs = {0b1001: 1.0, 0b0110: 1.0, 0b0001: 3.0, 0b0010: 3.0, 0b0100: 3.0, 0b1000: 3.0}
    cover = CoverProblem(BUTTERFLY).solve(costs)
    assert cover is not None
    assert cover.cost_us == 7.0
    assert cover.exact


def test_cuts_are_kept_and_hold_for_other_costs() -> None:
    problem = CoverProblem(BUTTERFLY)
    rng = random.Random(1)
    for _ in range(30):
        costs = {m: float(rng.randint(1, 9) + 2 * (m.bit_count() == 1)) for m in range(1, 15)}
        cover = problem.solve(costs)
        assert cover is not None
        assert cover.cost_us == brute_force(BUTTERFLY, costs)[0]
    assert problem.cuts


def test_infinite_costs_forbid_and_may_leave_no_cover() -> None:
    preds = [0, 1]
    assert CoverProblem(preds).solve({1: 1.0, 2: 1.0, 3: math.inf}) is not None
    assert CoverProblem(preds).solve({1: 1.0, 2: math.inf, 3: math.inf}) is None
    assert CoverProblem([0, 0, 0]).solve({0b011: 1.0, 0b110: 1.0}) is None


def test_nothing_to_cover() -> None:
    cover = CoverProblem([]).solve({})
    assert cover is not None
    assert cover.segments == ()


def test_parallel_chains_stay_small() -> None:
    """Eight chains of four: 390,625 sets closed under predecessors; depth-first order needs a few hundred states."""
    preds: list[int] = []
    for _ in range(8):
        for depth in range(4):
            preds.append(1 << len(preds) - 1 if depth else 0)
    costs: dict[int, float] = {}
    for start in range(0, 32, 4):
        for first in range(4):
            for last in range(first, 4):
                mask = sum(1 << start + a for a in range(first, last + 1))
                costs[mask] = 10.0 + abs(last - first - 1)
    cover = CoverProblem(preds, max_steps=20_000).solve(costs)
    assert cover is not None
    assert cover.exact
    assert cover.cost_us == 8 * 12.0
