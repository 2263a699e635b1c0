"""Interrupts wherever the search calls its surroundings: each gives a plan, the best so far."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pytest

from codegen.kernel import Kernel, Reject
from fusion_ir.core.graph import Graph
from fusion_ir.ops import make
from fusion_ir.records import Device, Measurement, Plan
from fusion_ir.reference.interpreter import interpret
from scheduler.budget import INTERRUPTED, Budget, Event
from scheduler.cover.solver import CoverProblem, NoRoom
from scheduler.deadline import BEAT_S
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate, CandidateSettings
from scheduler.segments.segment_mask import SegmentMask
from scheduler.settings import TuneSettings
from scheduler.tune import tune
from scheduler.tuning.trials import Ledger
from scheduler.verdict import MANY_ATOMS
from tests.support.cover_problems import random_problem
from tests.support.whole import WHOLE, in_turn, some
from tests.unit.scheduler.fakes import (
    DEVICE,
    Clock,
    FakeBench,
    FakeFamily,
    FakeNaive,
    Memory,
    families,
    random_inputs,
    run_plan,
    same_bits,
)
from tests.unit.scheduler.test_tune import ALL, X, diamond, graph_of
from tests.unit.scheduler.test_tune import search as search_of

T = TypeVar("T")
SETTINGS = TuneSettings(candidates=CandidateSettings(max_atoms=30))


class Calls:
    """Counts calls and interrupts one of them: before it does anything, or right after."""

    def __init__(self, at: int = -1, after: bool = False) -> None:
        self.at, self.after, self.count = at, after, 0

    def __call__(self, act: Callable[[], T]) -> T:
        number, self.count = self.count, self.count + 1
        if number == self.at and not self.after:
            raise KeyboardInterrupt
        result = act()
        if number == self.at:
            raise KeyboardInterrupt
        return result


class TickingClock(Clock):
    """A clock whose readings are counted."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def __call__(self) -> float:
        return self.calls(lambda: self.now)


class CountedBench(FakeBench):
    """A bench whose calls are counted."""

    calls_: Calls

    def turn(self, segment_key: str) -> AbstractContextManager[None]:
        return self.calls_(lambda: super(CountedBench, self).turn(segment_key))

    def expect(self, kernels: Sequence[Kernel]) -> None:
        self.calls_(lambda: super(CountedBench, self).expect(kernels))

    def race_seconds(self, segment_key: str, count: int) -> float:
        return self.calls_(lambda: super(CountedBench, self).race_seconds(segment_key, count))

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        return self.calls_(lambda: super(CountedBench, self).measure(segment, segment_key, kernels, seed=seed))

    def compile_for_plans(self, kernels: Sequence[Kernel], graph: Graph | None = None, **how: Any) -> Any:
        return self.calls_(lambda: super(CountedBench, self).compile_for_plans(kernels, graph, **how))

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> Any:
        return self.calls_(lambda: super(CountedBench, self).measure_plans(graph, plans, seed=seed, seconds=seconds))


class CountedMemory(Memory):
    """Costs whose calls are counted."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def known(self, segment_key: str) -> list[Measurement]:
        return self.calls(lambda: super(CountedMemory, self).known(segment_key))

    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        self.calls(lambda: super(CountedMemory, self).record(segment, measurements))


def search(calls: Calls, seconds: float) -> Plan:
    bench = CountedBench(clock=TickingClock(calls), seed=5)
    bench.calls_ = calls
    return tune(
        diamond(), DEVICE, Budget(seconds, seed=3), CountedMemory(calls), bench, lambda _: calls(lambda: None),
        families=families(kinds=ALL, most=3), settings=SETTINGS, clock=bench.clock,
    )  # fmt: skip


def every_segment() -> dict[str, Graph]:
    """Every segment of the diamond that some family accepts, by key."""
    ledger = Ledger(DEVICE, families(kinds=ALL, most=3), Memory(), None, 0)
    atoms = cut(prepare(diamond()).graph, ledger.acceptor.computable)
    sets = [members for members in range(1, 1 << len(atoms)) if atoms.is_convex(members)]
    answers = [ledger.acceptor.ask(atoms, atoms.piece(members)) for members in sets]
    return {a.segment.key: a.segment.canonical.graph for a in answers if isinstance(a, Candidate)}


@pytest.mark.parametrize("after", in_turn([pytest.param(False, id="before"), pytest.param(True, id="after")], 1))
@pytest.mark.parametrize("seconds", [0.0, 60.0])
@pytest.mark.soak
def test_an_interrupt_at_every_call_gives_the_best_plan_so_far(seconds: float, after: bool) -> None:
    """The later, the better: no plan of measured kernels is slower than one that an earlier interrupt gave."""
    total = Calls()
    whole = search(total, seconds)
    assert total.count > 20
    inputs = random_inputs(diamond(), 0)
    expected = interpret(diamond(), inputs)
    segments = every_segment()
    best, untold, checked = float("inf"), 0, set[tuple[str, ...]]()
    every = range(1, total.count, 3 if after else 1)  # the first is the reading of the clock with which a search begins
    for at in some(every, max(len(every) // 60, 10), f"{seconds} {after}"):
        plan = search(Calls(at, after), seconds)
        untold += not any(r.text == INTERRUPTED for r in plan.reasons)
        entries = tuple(step.entry for step in plan.steps)
        if entries not in checked:
            checked.add(entries)
            for got, right in zip(run_plan(plan, segments, inputs), expected, strict=True):
                assert same_bits(got, right), at
        if plan.time_us is not None:
            assert plan.time_us <= best * 1.011, at
            best = min(best, plan.time_us)
    assert untold <= 8, "of those that came once the plan was there"
    if seconds:
        assert len(checked) > 2 or not WHOLE
        assert whole.time_us is not None
        assert best <= whole.time_us * 1.011


class SlowFamily(FakeFamily):
    """A family whose every answer takes BEAT_S seconds, so that the next look at the clock reports an event."""

    clock_: Clock

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        self.clock_.now += BEAT_S
        return super().accepts(segment, device)


def test_a_cancel_while_segments_are_listed_is_heard_at_once() -> None:
    """Whoever cancels says so whenever they are asked: after the first time nobody is."""
    asked: dict[int, int] = {}
    for at in (2, 5, 12):
        bench = FakeBench(seed=5)
        slow = SlowFamily(kinds=ALL, most=3)
        slow.clock_, told = bench.clock, list[Event]()

        def cancel(event: Event, at: int = at, told: list[Event] = told) -> None:
            told.append(event)
            if len(told) >= at:
                raise KeyboardInterrupt

        among = {"fused": slow, "one": FakeNaive("one", schedules=("only",))}
        plan = tune(
            diamond(), DEVICE, Budget(1000.0), Memory(), bench, cancel,
            families=among, settings=SETTINGS, clock=bench.clock,
        )  # fmt: skip
        assert {e.phase for e in told} == {"candidates"}
        assert len(told) == at, "once"
        assert plan.steps
        assert not bench.calls
        assert plan.search.cut_short == INTERRUPTED
        asked[at] = plan.search.candidates
    assert len(set(asked.values())) == 1, "what an interrupted search looks for does not depend on when"


@pytest.mark.soak
@pytest.mark.parametrize("limit_bytes", [None, 9])
def test_a_cancel_while_covers_are_sought_leaves_a_problem_that_can_be_solved(limit_bytes: int | None) -> None:
    """The solver is cancelled at each of its beats, and then solves the problem as if it had not been."""
    cancelled = 0
    for seed in some(range(60), 20, f"cancel {limit_bytes}"):
        problem, rng = random_problem(seed), random.Random(seed)
        bytes_ = [rng.randint(3, 4) for _ in problem.hypergraph.stands]

        def us(of: CoverProblem, costs: Mapping[SegmentMask, float] = problem.costs) -> float:
            try:
                cover = of.solve(costs, look=lambda _: {}, limit_bytes=limit_bytes)
            except NoRoom:
                return -1.0
            return cover.cost_us if cover else math.inf

        calls = Calls()
        expected = us(CoverProblem(problem.hypergraph, bytes_, beat=lambda calls=calls: calls(lambda: None)))
        for at in range(calls.count):
            again = Calls(at)
            half = CoverProblem(problem.hypergraph, bytes_, beat=lambda again=again: again(lambda: None))
            with pytest.raises(KeyboardInterrupt):
                us(half)
            assert us(half) == expected
            cancelled += 1
    assert cancelled > (100 if WHOLE else 20)


def test_of_an_interrupted_search_large_plans_are_not_explained_at_length() -> None:
    """An interrupted search explains large plans as briefly as one whose budget is spent, even with time left."""
    text = "what each kernel could cost was not compared"
    for atoms in (MANY_ATOMS - 10, MANY_ATOMS + 10):
        x = X
        for i in range(atoms):
            x = make("exp" if i % 2 else "sin", [x])
        plan, _ = search_of(graph_of(x), FakeBench(seed=5, interrupt_at=3), seconds=30.0, most=3)
        why = [r.text for r in plan.reasons if text in r.text]
        assert why == ([f"{INTERRUPTED}: {text}"] if atoms > MANY_ATOMS else [])


def test_a_budget_that_ends_while_segments_are_looked_for() -> None:
    """Asking families takes time on this clock: what was found by half of the budget is what is chosen from."""
    bench = FakeBench(seed=5)

    class Slow(FakeFamily):
        def accepts(self, segment: Graph, device: Device) -> Reject | None:
            bench.clock.now += 0.05
            return super().accepts(segment, device)

    found: dict[float, Plan] = {}
    for seconds in (0.01, 2.0, 8.0, 1000.0):
        bench.clock.now = 0.0
        slow = {"fused": Slow(kinds=ALL, most=3), "one": FakeNaive("one", schedules=("only",))}
        found[seconds] = tune(diamond(), DEVICE, Budget(seconds), Memory(), bench, families=slow, clock=bench.clock)
    segments, inputs = every_segment(), random_inputs(diamond(), 0)
    for plan in found.values():
        for got, right in zip(run_plan(plan, segments, inputs), interpret(diamond(), inputs), strict=True):
            assert same_bits(got, right)
    counts = [plan.search.candidates for plan in found.values()]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    ended = [any("finding segments ended" in r.text for r in plan.reasons) for plan in found.values()]
    assert ended == [True, True, False, False] or ended == [True, True, True, False]
    assert not any(r.text.startswith("was not asked") for plan in found.values() for r in plan.reasons)
