"""Interrupts wherever the search calls its surroundings: each gives a plan, the best so far."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pytest

from codegen.kernel import Kernel, Reject
from fusion_ir.graph import Graph
from fusion_ir.interpreter import interpret
from fusion_ir.records import Device, Measurement, Plan
from scheduler.bench import Budget
from scheduler.candidates import Candidate, CandidateSettings
from scheduler.cutting import cut
from scheduler.ledger import Ledger
from scheduler.prepare import prepare
from scheduler.tune import INTERRUPTED, TuneSettings, tune
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
from tests.unit.scheduler.test_tune import ALL, diamond

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
    bench = CountedBench(clock=TickingClock(calls), seed=5, compiles_ahead=True)
    bench.calls_ = calls
    return tune(
        diamond(), DEVICE, Budget(seconds, seed=3), CountedMemory(calls), bench, lambda _: calls(lambda: None),
        families=families(kinds=ALL, most=3), settings=SETTINGS, clock=bench.clock,
    )  # fmt: skip


def every_segment() -> dict[str, Graph]:
    """What some family accepts, by key."""
    ledger = Ledger(DEVICE, families(kinds=ALL, most=3), Memory(), None, 0)
    atoms = cut(prepare(diamond()).graph, ledger.computable)
    sets = [members for members in range(1, 1 << len(atoms)) if atoms.is_convex(members)]
    answers = [ledger.ask(atoms, atoms.piece(members)) for members in sets]
    return {a.segment.key: a.segment.canonical.graph for a in answers if isinstance(a, Candidate)}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_an_interrupt_at_every_call_gives_the_best_plan_so_far(seconds: float, after: bool) -> None:
    """The later, the better: no plan of measured kernels is slower than one that an earlier interrupt gave."""
    total = Calls()
    whole = search(total, seconds)
    assert total.count > 20
    inputs = random_inputs(diamond(), 0)
    expected = interpret(diamond(), inputs)
    segments = every_segment()
    best, untold, checked = float("inf"), 0, set[tuple[str, ...]]()
    for at in range(
        1, total.count, 3 if after else 1
    ):  # the first is the reading of the clock with which a search begins
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
        assert len(checked) > 2
        assert whole.time_us is not None
        assert best <= whole.time_us * 1.011


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
