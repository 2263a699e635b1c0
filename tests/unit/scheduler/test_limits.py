"""Limits of a search (seconds, classes of rewrites, memory), and the errors where one is invalid or cannot be met."""

import math
from typing import Any

import pytest

from fusion_ir.core.graph import Graph
from fusion_ir.ops import make
from fusion_ir.records import Plan
from fusion_ir.reference.interpreter import interpret
from scheduler.budget import Budget, RequestError
from scheduler.no_plan import MemoryExceeded
from scheduler.tune import tune
from testing.random_graphs import Seeded, any_graph
from tests.support.whole import WHOLE, some
from tests.unit.scheduler.fakes import DEVICE, FakeBench, Memory, families, random_inputs, run_plan, same_bits
from tests.unit.scheduler.test_tune import ALL, X, Y, graph_of, unmeasured_segments

BYTES = 512 * 1024 * 4  # of every tensor here


@pytest.mark.parametrize(
    "seconds", [-1.0, -1e-9, math.nan, math.inf, -math.inf, 86_400.1, 1e300, 10**400, "30", None, True, [1.0]]
)
def test_seconds_that_are_none(seconds: Any) -> None:
    with pytest.raises(RequestError, match=r"^seconds: expected a number from 0 \(nothing is timed\) to 86400, got "):
        Budget(seconds)


@pytest.mark.parametrize("memory_bytes", [0, -1, 2**63, 1.5, math.nan, "8GiB", True])
def test_memory_that_is_none(memory_bytes: Any) -> None:
    with pytest.raises(RequestError) as caught:
        Budget(1.0, memory_bytes=memory_bytes)
    assert str(caught.value) == f"memory_bytes: expected a whole number from 1 to 2^63 - 1, got {memory_bytes!r}"


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, None, "0", False])
def test_seeds_that_are_none(seed: Any) -> None:
    with pytest.raises(RequestError, match=r"^seed: expected a whole number from 0 to"):
        Budget(1.0, seed)


def test_limits_themselves_are_allowed() -> None:
    for budget in (Budget(0), Budget(86_400), Budget(1.0, 2**63 - 1), Budget(1.0, memory_bytes=1)):
        assert budget.seconds >= 0


@pytest.mark.parametrize("numerics", ["sloppy", "", "EXACT", None, 1])
def test_numerics_that_are_no_class(numerics: Any) -> None:
    with pytest.raises(RequestError) as caught:
        tune(chain(), DEVICE, Budget(1.0), Memory(), None, numerics=numerics, families=families(kinds=ALL))
    assert str(caught.value) == f"numerics: expected one of exact, reassociate, approximate, got {numerics!r}"


@pytest.mark.parametrize("seconds", [0, 1.0])
def test_a_graph_that_the_device_has_no_room_for_is_refused_at_once(seconds: float) -> None:
    """Nothing is cut, compiled or timed, whether it is a GPU that is not there or this machine."""
    graph, asked = chain(), list[str]()
    room = graph.read_bytes + graph.written_bytes
    small = DEVICE.model_copy(update={"memory_bytes": room - 1})
    with pytest.raises(MemoryExceeded) as caught:
        tune(graph, small, Budget(seconds), Memory(), None, progress=lambda p: asked.append(p.phase))
    assert str(caught.value) == (
        f"the graph's inputs take {2 * BYTES:,} bytes and its outputs {BYTES:,}; fake has {room - 1:,}"
    )
    assert not asked
    just = DEVICE.model_copy(update={"memory_bytes": room})
    assert tune(graph, just, Budget(0), Memory(), None, families=families(kinds=ALL)).steps


def chain() -> Graph:
    """Three computations; the last one reads what the first one left, too."""
    a = make("exp", [X])
    return graph_of(make("mul", [make("neg", [make("add", [a, Y])]), a]))


def limited(memory_bytes: int | None, seconds: float = 10_000.0, **kwargs: Any) -> Any:
    bench = FakeBench(slowest=1.0)
    budget = Budget(seconds, seed=3, memory_bytes=memory_bytes)
    return tune(chain(), DEVICE, budget, Memory(), bench, families=families(kinds=ALL, **kwargs), clock=bench.clock)


@pytest.mark.parametrize("seconds", [0.0, 10_000.0])
def test_a_plan_keeps_to_its_memory(seconds: float) -> None:
    free = limited(None, seconds, most=2)
    assert free.temporary_bytes >= BYTES, "two kernels need something between them"
    assert limited(free.temporary_bytes, seconds, most=2).temporary_bytes == free.temporary_bytes
    fused = limited(1, seconds)
    assert fused.temporary_bytes == 0
    assert len(fused.steps) == 1


@pytest.mark.parametrize("seconds", [0.0, 10_000.0])
def test_where_nothing_fits_the_error_says_what_the_least_needs(seconds: float) -> None:
    with pytest.raises(MemoryExceeded) as caught:
        limited(BYTES - 1, seconds, most=2)
    least = limited(None, seconds, most=2).temporary_bytes
    limit = f"at most {BYTES - 1:,} bytes of temporaries"
    expected = f"no plan was found that needs {limit}; the least that was found needs {least:,}"
    assert str(caught.value) == expected


def planned(graph: Graph, seed: int, memory_bytes: int | None) -> tuple[Plan | str, FakeBench]:
    """The plan, or why there is none."""
    bench = FakeBench(seed=seed)
    budget = Budget(30.0, seed=seed, memory_bytes=memory_bytes)
    try:
        plan = tune(graph, DEVICE, budget, Memory(), bench, families=families(kinds=ALL, most=2), clock=bench.clock)
    except MemoryExceeded as error:
        return str(error), bench
    return plan, bench


@pytest.mark.soak
def test_plans_within_a_limit_compute_their_graphs() -> None:
    """Random graphs, each within what its plan needs, and within three quarters of that and half, or not at all."""
    kept = refused = 0
    for seed in some(range(24), 9, "limits"):
        graph = any_graph(Seeded(seed), steps=12)
        free, _ = planned(graph, seed, None)
        assert isinstance(free, Plan)
        needed = free.temporary_bytes
        for limit in {needed, needed * 3 // 4, needed // 2} - {0}:
            plan, bench = planned(graph, seed, limit)
            if isinstance(plan, str):
                assert limit < needed, plan
                assert int(plan.rpartition(" ")[2].replace(",", "")) > limit
                refused += 1
                continue
            assert plan.temporary_bytes <= limit
            assert plan.search.memory_bytes == limit
            kept += limit < needed
            inputs = random_inputs(graph, seed)
            segments = bench.segments | unmeasured_segments(graph, most=2)
            for got, right in zip(run_plan(plan, segments, inputs), interpret(graph, inputs), strict=True):
                assert same_bits(got, right), seed
    assert kept > 1 or not WHOLE
    assert refused > 1 or not WHOLE
