"""Plans of large graphs by stretches: right, linear in the graph, and in time."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from codegen.kernel import Kernel
from codegen.toolchain.compiler import OutOfTime
from fusion_ir.accuracy.comparison import Difference
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import make
from fusion_ir.records import Measurement, Plan, Status
from fusion_ir.reference.interpreter import interpret
from scheduler.budget import Budget
from scheduler.large_graphs import ALONE
from scheduler.no_plan import Disagreement, MemoryExceeded
from scheduler.rewrites.prepare import prepare
from scheduler.segments.sections import sections
from scheduler.settings import TuneSettings
from scheduler.tune import tune
from scheduler.verdict import QUICKLY
from testing.random_graphs import Seeded, any_graph
from tests.unit.scheduler.fakes import (
    DEVICE,
    FakeBench,
    Memory,
    Timing,
    families,
    random_inputs,
    run_plan,
    same_bits,
)
from tests.unit.scheduler.test_tune import ALL, SPEC, WRONG, X, Y

STRETCHES = TuneSettings(least_atoms=0, most_atoms=0)  # of every graph


class Compiling(FakeBench):
    """Compiling takes time, too, and is counted; whole plans take the sum of their steps' bounds."""

    def __init__(self, compile_s: float = 0.25, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.compile_s = compile_s
        self.kernels: dict[str, Kernel] = {}
        self.rounds: list[int] = []
        self.quick: list[bool] = []

    def compile_for_plans(
        self,
        kernels: Sequence[Kernel],
        graph: Graph | None = None,
        *,
        seed: int = 0,
        together: bool = False,
        optional: bool = False,
        quickly: bool = False,
    ) -> list:  # type: ignore[type-arg]
        self.quick.append(quickly)
        self.kernels.update((k.entry, k) for k in kernels)
        self.rounds.append(len(kernels))
        self.clock.now += self.compile_s * len(kernels)
        return super().compile_for_plans(kernels, graph, seed=seed, together=together, quickly=quickly)

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[Timing]:
        self.clock.now += seconds
        return [Timing((sum(s.bound_us * self.factor(s.entry) for s in p.steps),) * 20) for p in plans]


def chain(length: int, *, period: int = 5) -> Graph:
    node = X
    for i in range(length):
        node = make("mul", [node, Y]) if i % period == 0 else make(("neg", "sin", "abs", "tanh")[i % 4], [node])
    return Graph((SPEC, SPEC), (OutputSpec(node, dense_strides(node.sizes)),))


def stretched(
    graph: Graph, bench: Compiling | None = None, seconds: float = 60.0, costs: Memory | None = None, **kwargs: object
) -> Plan:
    bench = bench or Compiling()
    return tune(
        graph, DEVICE, Budget(seconds, memory_bytes=kwargs.pop("memory_bytes", None)), costs or Memory(), bench,  # type: ignore[arg-type]
        families=families(kinds=ALL, **kwargs), settings=STRETCHES, clock=bench.clock,
    )  # fmt: skip


class Noting(Memory):
    """Keeps the segments of plans, by key."""

    def __init__(self) -> None:
        super().__init__()
        self.segments: dict[str, Graph] = {}

    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        self.segments[graph_key(segment)] = segment


@pytest.mark.parametrize("most", [1, 3, 50])
def test_sections_hold_every_tensor_once_in_order(most: int) -> None:
    for seed in range(40):
        graph = prepare(any_graph(Seeded(seed))).graph
        written = {n for n in graph.nodes if n.op == "input"}
        for section in sections(graph, most):
            reads = {section.whole[n] for n in section.graph.nodes if n.op == "input"}
            assert reads <= written, "nothing is read before it is written"
            outputs = {section.whole[o.node] for o in section.graph.outputs}
            assert not outputs & written
            written |= outputs
        assert {o.node for o in graph.outputs} <= written


def test_plans_by_stretches_are_right() -> None:
    for seed in range(30):
        graph = any_graph(Seeded(seed))
        costs = Noting()
        plan = stretched(graph, costs=costs, most=4)
        inputs = random_inputs(graph, seed)
        for got, expected in zip(run_plan(plan, costs.segments, inputs), interpret(graph, inputs), strict=True):
            assert same_bits(got, expected), seed


def test_what_repeats_is_compiled_once() -> None:
    bench = Compiling()
    plan = stretched(chain(960), bench)
    assert len(plan.steps) <= 960 / 20
    assert len(bench.kernels) < 40


def test_the_work_grows_with_the_graph() -> None:
    """Asked of families per node, whatever the size."""
    asked: dict[int, float] = {}
    for length in (300, 2400):
        kinds = families(kinds=ALL)
        calls = 0
        accepts = type(kinds["fused"]).accepts

        def counted(*args: object, accepts: object = accepts) -> object:
            nonlocal calls
            calls += 1
            return accepts(*args)  # type: ignore[operator]

        kinds["fused"].accepts = counted.__get__(kinds["fused"])  # type: ignore[method-assign]
        bench = Compiling()
        tune(
            chain(length), DEVICE, Budget(60.0), Memory(), bench, families=kinds, settings=STRETCHES, clock=bench.clock
        )
        asked[length] = calls / length
    assert asked[2400] <= 1.2 * asked[300]


@pytest.mark.parametrize("seconds", [0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("compile_s", [0.01, 0.3])
def test_it_ends_in_time(seconds: float, compile_s: float) -> None:
    """When the time is over, only compilations that were begun, or without which there is no plan, are finished."""
    bench = Compiling(compile_s)
    plan = stretched(chain(400, period=7), bench, seconds)
    least = compile_s * bench.rounds[0]  # kernels without which there is no plan
    assert bench.clock.now <= max(seconds, least) + 1.0 + max(bench.rounds[1:], default=0) * compile_s
    assert plan.search.budget_s == seconds
    assert plan.search.cut_short
    assert len(plan.steps) <= 400


def test_more_time_is_more_fused() -> None:
    steps = [len(stretched(chain(400, period=7), Compiling(0.3), s).steps) for s in (1.0, 10.0, 60.0)]
    assert steps[0] > steps[-1]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_slower_than_its_unfused_is_not_returned(seed: int) -> None:
    plan = stretched(chain(60), Compiling(seed=seed, slowest=30.0))
    assert plan.time_us is not None
    assert plan.unfused_us is not None
    assert plan.time_us <= plan.unfused_us


@pytest.mark.parametrize("compile_s", [0.001, 0.05, 0.5])
@pytest.mark.parametrize("seconds", [1.0, 5.0, 20.0])
def test_what_is_timed_has_its_unfused_or_says_why_not(seconds: float, compile_s: float) -> None:
    for length, period in ((60, 5), (300, 1), (900, 7)):
        plan = stretched(chain(length, period=period), Compiling(compile_s), seconds)
        alone = ALONE in [r.text for r in plan.reasons]
        assert alone == (plan.time_us is not None and plan.unfused_us is None)
        if compile_s < 0.01 and seconds > 1.0 and length == 60:  # others are interpreted for longer, to be checked
            assert plan.unfused_us is not None, "there was time for it"


def test_a_stretch_of_which_no_kernel_can_be_made_is_cut_in_halves() -> None:
    """Such a stretch is halved again and again, not cut into single atoms: 48 atoms become 7 steps."""
    node = X
    for i in range(48):
        node = make("sin" if i == 10 else ("neg", "abs")[i % 2], [node])
    graph = Graph((SPEC,), (OutputSpec(node, dense_strides(node.sizes)),))
    plan = stretched(graph, Compiling(0.1), 10.0, cannot=frozenset({"sin"}))
    assert len(plan.steps) == 7, [len(s.writes) for s in plan.steps]  # of 6, 3, 1, 1, 1, 12 and 24 atoms


def test_what_compilers_have_no_time_for_is_compiled_quickly_and_told() -> None:
    for seconds, short in ((0.01, True), (600.0, False)):
        bench = Compiling(0.3)
        plan = stretched(chain(200, period=7), bench, seconds)
        assert bench.quick[0] == short
        assert (QUICKLY in [r.text for r in plan.reasons]) == short


def test_stretches_that_there_is_no_time_to_begin_with_are_their_atoms() -> None:
    """Kernels of single atoms, without which there is no plan, are compiled however late it is."""

    class Late(Compiling):
        def compile_for_plans(self, *args: Any, optional: bool = False, **how: Any) -> Any:
            if optional:
                raise OutOfTime("4 kernels are not compiled")
            return super().compile_for_plans(*args, optional=optional, **how)

    plan = stretched(chain(60, period=7), Late(0.001))
    assert len(plan.steps) == 60
    assert any("were not compiled: the time was over" in r.text for r in plan.reasons)


def test_a_stretch_that_does_not_compile_is_its_atoms() -> None:
    plan = stretched(chain(60), Compiling(uncompilable=frozenset({"fused"})))
    assert len(plan.steps) == 60
    assert {s.family for s in plan.steps} == {"one"}


class Disagreeing(Compiling):
    """Whole plans of at most `most` steps give what no error explains; so does every kernel by itself."""

    most = 10**6

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        rows = super().measure(segment, segment_key, kernels, seed=seed)
        wrong = {"status": Status.wrong_result, "detail": WRONG, "samples_us": ()}
        return [row.model_copy(update=wrong) for row in rows]

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[Timing]:
        right = super().measure_plans(graph, plans, seed=seed, seconds=seconds)
        wrong = Timing((), status=Status.wrong_result, detail=WRONG)
        return [wrong if len(p.steps) <= self.most else t for p, t in zip(plans, right, strict=True)]


@pytest.mark.parametrize("target", ["cpu", "emulator"])
def test_where_no_plan_agrees_the_error_names_node_element_values_and_tolerances(target: str) -> None:
    """The emulator runs kernels one by one, a device whole plans."""
    bench = Disagreeing()
    device = DEVICE.model_copy(update={"target": target})
    said = r"out0\[3, 1\] is 2\.5 .*expected 2\.0 .*bound 0\.25, perturbed 0\.125"
    with pytest.raises(Disagreement, match=said) as found:
        tune(
            chain(60), device, Budget(60.0), Memory(), bench,  # type: ignore[arg-type]
            families=families(kinds=ALL), settings=STRETCHES, clock=bench.clock,
        )  # fmt: skip
    assert found.value.difference == Difference(0, (3, 1), 2.5, 2.0, 0.25, 0.125)
    assert str(found.value).startswith(str(found.value.node))


class Erring(Compiling):
    """Kernels are off by more and more, one after another."""

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        rows = super().measure(segment, segment_key, kernels, seed=seed)
        return [row.model_copy(update={"max_rel_error": len(self.calls) / 1e6}) for row in rows]


@pytest.mark.parametrize("settings", [STRETCHES, TuneSettings()])
def test_a_plan_for_the_emulator_has_the_largest_error_of_its_kernels(settings: TuneSettings) -> None:
    bench = Erring()
    device = DEVICE.model_copy(update={"target": "emulator"})
    plan = tune(
        chain(60), device, Budget(60.0), Memory(), bench,  # type: ignore[arg-type]
        families=families(kinds=ALL), settings=settings, clock=bench.clock,
    )  # fmt: skip
    errors = {entry: i / 1e6 for i, entry in enumerate(bench.calls, 1)}  # those of the last time
    assert plan.max_rel_error == max(errors[step.entry] for step in plan.steps)


@pytest.mark.parametrize(("seconds", "alone"), [(20.0, False), (1.2, True)])
def test_where_no_fused_plan_agrees_the_unfused_one_is_the_answer(seconds: float, alone: bool) -> None:
    """Also where there was no time to time it beside the other."""
    graph = chain(60, period=1)
    right = stretched(graph, Compiling(0.001), seconds)
    assert (len(right.steps), right.unfused_us is None) == (3, alone)
    bench = Disagreeing(0.001)
    bench.most = 59
    plan = stretched(graph, bench, seconds)
    assert len(plan.steps) == 60
    assert plan.time_us == plan.unfused_us
    assert any("wrong_result" in r.text and "out0[3, 1]" in r.text for r in plan.reasons)


def test_memory_is_limited() -> None:
    one = 512 * 1024 * 4
    plan = stretched(chain(60), memory_bytes=2 * one)
    assert plan.temporary_bytes <= 2 * one
    with pytest.raises(MemoryExceeded, match="at most 100 bytes"):
        stretched(chain(60), memory_bytes=100)


def test_searches_of_few_nodes_and_enough_time_are_thorough() -> None:
    settings = TuneSettings()
    small, large = prepare(chain(30)), prepare(chain(2000))
    assert not settings.too_many(small, 0.1)
    assert "in 10 s" in settings.too_many(large, 10.0)
    assert settings.too_many(large, math.inf)
    assert "in stretches" in settings.too_many(prepare(chain(200)), 5.0)
    assert not settings.too_many(prepare(chain(200)), 30.0)
