"""The search on a bench whose times are known beforehand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from codegen.kernel import Kernel
from fusion_ir.accuracy.comparison import Difference
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.ops import OpKind, make, make_input
from fusion_ir.records import Cost, Measurement, Plan, Ref, Status, Step
from fusion_ir.reference.interpreter import interpret
from fusion_ir.units import duration
from scheduler.budget import Budget, Event
from scheduler.no_plan import Disagreement, NoPlan
from scheduler.plan_maker import PLAIN, STREAM
from scheduler.plan_selection import UNFUSED
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate, CandidateSettings
from scheduler.settings import TuneSettings
from scheduler.tune import tune
from scheduler.tuning.trials import Ledger
from testing.random_graphs import Seeded, any_graph
from tests.support.partitions import execution_order, partitions
from tests.support.whole import WHOLE, in_turn, some
from tests.unit.scheduler.fakes import (
    DEVICE,
    Clock,
    FakeBench,
    Memory,
    Timing,
    families,
    random_inputs,
    run_plan,
    same_bits,
)

ALL = frozenset(OpKind) - {OpKind.REDUCTION}
SPEC = InputSpec(shape_of((512, 1024)), f32, (1024, 1))
X, Y = make_input(0, SPEC), make_input(1, SPEC)


def graph_of(*outputs: Node) -> Graph:
    return Graph((SPEC, SPEC), tuple(OutputSpec(o, dense_strides(o.sizes)) for o in outputs))


def diamond() -> Graph:
    """Seven computations, two outputs, a reduction in the middle that the fusing family refuses."""
    a = make("exp", [make("neg", [X])])
    row = make("max", [a], {"axes": (1,)})
    wide = make("broadcast_in_dim", [row], {"shape": shape_of((512, 1024)), "dims": (0,)})
    b = make("sub", [a, wide])
    return graph_of(make("mul", [make("abs", [b]), Y]), make("sin", [Y]))


def search(
    graph: Graph,
    bench: FakeBench | None = None,
    seconds: float = 10_000.0,
    costs: Memory | None = None,
    progress: object = None,
    **kwargs: object,
) -> tuple[Plan, FakeBench]:
    bench = bench or FakeBench()
    settings = TuneSettings(candidates=CandidateSettings(max_atoms=30))
    plan = tune(
        graph, DEVICE, Budget(seconds, seed=3), costs or Memory(), bench, progress,  # type: ignore[arg-type]
        families=families(kinds=ALL, **kwargs), settings=settings, clock=bench.clock,
    )  # fmt: skip
    return plan, bench


def best_possible(graph: Graph, bench: FakeBench, first: bool = False, **kwargs: object) -> float:
    """Cheapest acyclic partition with the best (or the first) schedule of every segment, by brute force."""
    ledger = Ledger(DEVICE, families(kinds=ALL, **kwargs), Memory(), None, 0)
    atoms = cut(prepare(graph).graph, ledger.acceptor.computable)
    best: dict[int, float] = {}

    def cost(members: int) -> float:
        if members not in best:
            answer = ledger.acceptor.ask(atoms, atoms.piece(members)) if atoms.is_convex(members) else None
            best[members] = math.inf
            if isinstance(answer, Candidate):
                entry = ledger.logs.open(answer)
                segment = answer.segment.canonical.graph
                best[members] = min(
                    bench.time_us(segment, ledger.kernel(answer, v)) for v in entry.pending[: 1 if first else None]
                )
        return best[members]

    found = math.inf
    for blocks in partitions(len(atoms)):
        total = sum(cost(b) for b in blocks)
        if total < found and execution_order(atoms.preds, blocks) is not None:
            found = total
    return found


@pytest.mark.parametrize("seed", range(12))
def test_complete_search_finds_the_cheapest_cover(seed: int) -> None:
    bench = FakeBench(seed=seed, slowest=1.5 + seed / 4)
    plan, _ = search(diamond(), bench, most=4)
    assert plan.search.complete
    assert plan.time_us is not None
    assert plan.time_us >= best_possible(diamond(), bench, most=4) - 1e-9
    # Every segment's first schedule is proved against; others are tried where the best cover so far has them.
    assert plan.time_us <= best_possible(diamond(), bench, first=True, most=4) * 1.011
    assert plan.search_gap is not None
    assert plan.search_gap >= 1.0


@pytest.mark.soak
def test_complete_search_proves_first_schedules() -> None:
    for seed in some(range(25), 8, "proves"):
        bench = FakeBench(seed=seed, slowest=4.0)
        plan, _ = search(diamond(), bench, most=3, schedules=("only",))
        assert plan.search.complete
        # Whole plans within 1% of each other count as equal, then the simpler one stays.
        best = best_possible(diamond(), bench, first=True, most=3, schedules=("only",))
        assert plan.time_us is not None
        assert plan.time_us <= best * 1.011, seed
        assert plan.search_gap is not None
        assert plan.search_gap <= 1.011


@pytest.mark.soak
def test_plans_compute_their_graphs() -> None:
    several = shared = 0
    for seed in some(range(80), 25, "plans"):
        graph = any_graph(Seeded(seed), steps=14)
        bench = FakeBench(seed=seed)
        plan, _ = search(graph, bench, seconds=30.0, most=3)
        inputs = random_inputs(graph, seed)
        segments = bench.segments | unmeasured_segments(graph, most=3)
        for got, expected in zip(run_plan(plan, segments, inputs), interpret(graph, inputs), strict=True):
            assert same_bits(got, expected), seed
        several += len(plan.steps) > 2
        temporaries = {ref for step in plan.steps for ref in step.writes if ref.place == "tmp"}
        written = sum(ref.place == "tmp" for step in plan.steps for ref in step.writes)
        shared += len(temporaries) < written
        assert {p for s in plan.steps for p in s.nodes} <= set(range(len(graph.nodes)))
    assert several > 10 or not WHOLE
    assert shared or not WHOLE, "some plan must reuse a buffer"


def unmeasured_segments(graph: Graph, **kwargs: object) -> dict[str, Graph]:
    """Single atoms by key: plans may hold some that were never timed."""
    ledger = Ledger(DEVICE, families(kinds=ALL, **kwargs), Memory(), None, 0)
    atoms = cut(prepare(graph).graph, ledger.acceptor.computable)
    answers = [ledger.acceptor.ask(atoms, atoms.piece(1 << a)) for a in range(len(atoms))]
    return {a.segment.key: a.segment.canonical.graph for a in answers if isinstance(a, Candidate)}


@pytest.mark.soak
def test_more_budget_is_never_worse() -> None:
    improved = 0
    for seed in in_turn(range(6), 2, "budget"):
        times: list[float] = []
        for seconds in (5, 10, 20, 40, 80, 160, 320, 640):
            plan, _ = search(diamond(), FakeBench(seed=seed), seconds=float(seconds), most=3)
            assert plan.time_us is not None
            times.append(plan.time_us)
        assert all(later <= earlier * 1.01 for earlier, later in pairwise(times)), times
        improved += times[-1] < times[0]
    assert improved > (2 if WHOLE else 0), "one seed of six finds its best within the least"


def test_same_measurements_give_the_same_plan() -> None:
    plans = [search(diamond(), FakeBench(seed=7), seconds=60.0, most=3)[0] for _ in range(2)]
    assert plans[0] == plans[1]


def test_known_costs_are_not_measured_again() -> None:
    memory = Memory()
    first, bench = search(diamond(), costs=memory, most=3)
    assert first.search.measured == len(set(bench.calls))
    again = FakeBench(times=bench.times)
    second, _ = search(diamond(), again, costs=memory, most=3)
    assert again.calls == []
    assert second.steps == first.steps
    assert second.search.measured == 0
    assert second.search.complete


@pytest.mark.parametrize("at", [1, 2, 10])
def test_interruption_gives_the_best_so_far(at: int) -> None:
    plan, bench = search(diamond(), FakeBench(interrupt_at=at), most=3)
    assert len(bench.calls) == at
    assert not plan.search.complete
    assert any("interrupted" in r.text for r in plan.reasons)
    assert {s.segment_key for s in plan.steps}
    assert plan.time_us is not None, "the first cover was timed whole before anything else"
    assert plan.search.cut_short == "the search was interrupted"


def test_interruption_by_progress() -> None:
    events: list[Event] = []

    def progress(event: Event) -> None:
        events.append(event)
        if event.measured == 6:
            raise KeyboardInterrupt

    plan, _ = search(diamond(), progress=progress, most=3)
    assert plan.time_us is not None
    assert [e.phase for e in events[:2]] == ["candidates", "segments"]


def test_progress_tells_every_phase() -> None:
    events: list[Event] = []
    search(diamond(), progress=events.append, most=3)
    assert list(dict.fromkeys(e.phase for e in events)) == ["candidates", "segments", "plans", "done"]
    assert all(a.seconds <= b.seconds and a.measured <= b.measured for a, b in pairwise(events))
    best = [e.best_us for e in events if e.best_us is not None]
    assert best == sorted(best, reverse=True)


def test_failing_kernels_lose() -> None:
    plan, _ = search(diamond(), FakeBench(fails=frozenset({"default"})), most=3)
    assert plan.time_us is not None
    assert not any("default" in s.schedule for s in plan.steps)
    assert plan.search.failed > 0


def test_no_kernel_at_all_is_an_error_that_says_why() -> None:
    with pytest.raises(NoPlan, match=r"no kernel for .* can be used: .*crashed signal 11"):
        search(diamond(), FakeBench(fails=frozenset({"fused", "one"})))


WRONG = "out0[3, 1] is 2.5 (0x40200000), expected 2.0 (0x40000000) +- 0.25 (bound 0.25, perturbed 0.125); 1 of 8"


@dataclass
class Disagreeing(FakeBench):
    """Plans of at most `most` steps give what no error explains; so do kernels where `each` says so."""

    most: int = 0
    each: bool = False

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        rows = super().measure(segment, segment_key, kernels, seed=seed)
        wrong = {"status": Status.wrong_result, "detail": WRONG, "samples_us": ()}
        return [row.model_copy(update=wrong) for row in rows] if self.each else rows

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[Timing]:
        right = super().measure_plans(graph, plans, seed=seed, seconds=seconds)
        wrong = Timing((), status=Status.wrong_result, detail=WRONG)
        return [wrong if len(p.steps) <= self.most else t for p, t in zip(plans, right, strict=True)]


def test_where_no_fused_plan_agrees_the_unfused_one_is_the_answer() -> None:
    plan, _ = search(diamond(), Disagreeing(most=6), most=3)
    assert len(plan.steps) == 7  # a kernel for each op
    assert plan.unfused_us is not None
    assert any("wrong_result" in reason.text and "out0[3, 1]" in reason.text for reason in plan.reasons)


class Uncopying(Disagreeing):
    """Kernels that copy and compute are wrong."""

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        ops = {n.op for n in segment.nodes} - {"input"}
        self.each = "cat" in ops and len(ops) > 1
        return super().measure(segment, segment_key, kernels, seed=seed)


def test_where_no_cover_agrees_the_unfused_graph_is_the_answer() -> None:
    """It stores what a cover computes where it is read."""
    graph = graph_of(make("neg", [make("cat", [make("exp", [X]), make("exp", [Y])], {"axis": 0})]))
    plan, _ = search(graph, Uncopying(), most=3)
    assert plan.time_us == plan.unfused_us
    assert UNFUSED in [reason.text for reason in plan.reasons]


@pytest.mark.parametrize("each", [False, True])
def test_where_no_plan_agrees_the_error_names_node_element_values_and_tolerances(each: bool) -> None:
    said = r"out0\[3, 1\] is 2\.5 .*expected 2\.0 .*bound 0\.25, perturbed 0\.125"
    with pytest.raises(Disagreement, match=said) as found:
        search(diamond(), Disagreeing(most=99, each=each), most=3)
    assert found.value.difference == Difference(0, (3, 1), 2.5, 2.0, 0.25, 0.125)
    assert str(found.value).startswith(str(found.value.node))


def test_what_does_not_compile_is_replaced() -> None:
    plan, _ = search(diamond(), FakeBench(uncompilable=frozenset({"default"})), most=3)
    assert not any("default" in s.schedule for s in plan.steps)


def test_without_a_bench_the_plan_is_a_prediction() -> None:
    plan = tune(diamond(), DEVICE, Budget(30.0), Memory(), None, families=families(kinds=ALL))
    assert plan.time_us is None
    assert plan.search_gap is None
    assert [s.binary for s in plan.steps] == [""] * len(plan.steps)
    assert plan.search.measured == 0
    assert plan.lower_bound_us > 0


def test_without_time_kernels_are_compiled_and_not_timed() -> None:
    plan, bench = search(diamond(), seconds=0.0)
    assert bench.calls == []
    assert plan.time_us is None
    assert all(s.binary and s.source for s in plan.steps)


def test_aliases_alone_need_no_kernel() -> None:
    plan, _ = search(graph_of(X, Y))
    assert plan.steps == ()
    assert plan.aliases == ((0, Ref(place="in", index=0)), (1, Ref(place="in", index=1)))
    assert plan.time_us == 0.0


def test_fused_and_unfused() -> None:
    """One kernel where fusing wins; the unfused graph takes a kernel per computation and per concatenation."""
    part = make("cat", [make("neg", [X]), make("exp", [Y])], {"axis": 0})
    graph = graph_of(make("abs", [part]))
    plan, _ = search(graph, FakeBench(slowest=1.0))
    assert len(plan.steps) == 1
    bytes_ = 512 * 1024 * 4
    fused, each = 4 * bytes_ / 60e3, 2 * bytes_ / 60e3
    assert plan.time_us == pytest.approx(fused)
    assert plan.unfused_us == pytest.approx(2 * each + 2 * (4 * bytes_ / 60e3))
    assert plan.lower_bound_us == pytest.approx(fused)
    assert plan.search_gap == 1.0
    assert plan.search.complete


def test_the_unfused_plan_is_told_where_it_lost() -> None:
    graph = graph_of(make("abs", [make("cat", [make("neg", [X]), make("exp", [Y])], {"axis": 0})]))
    lost: list[Plan] = []
    bench = FakeBench(slowest=1.0)
    plan = tune(
        graph, DEVICE, Budget(10_000.0, seed=3), Memory(), bench, families=families(kinds=ALL), clock=bench.clock,
        on_unfused=lost.append,
    )  # fmt: skip
    assert [(len(p.steps), p.time_us) for p in lost] == [(4, plan.unfused_us)]
    lone: list[Plan] = []
    tune(
        graph_of(make("neg", [X])), DEVICE, Budget(10_000.0, seed=3), Memory(), bench, families=families(kinds=ALL),
        clock=bench.clock, on_unfused=lone.append,
    )  # fmt: skip
    assert lone == [], "it is the plan itself"


def test_reasons_name_neighbours_in_different_kernels() -> None:
    plan, _ = search(diamond())
    rejected = next(r for r in plan.reasons if r.kind == "rejected" and any("max" in f.text for f in r.refusals))
    assert {diamond().nodes[p].op for p in rejected.nodes} >= {"max"}


def test_reasons_give_both_times_where_fusing_was_slower() -> None:
    graph = graph_of(make("exp", [make("neg", [X])]))
    for seed in range(40):
        plan, bench = search(graph, FakeBench(seed=seed, slowest=12.0), schedules=("only",))
        if len(plan.steps) == 2:
            reason = next(r for r in plan.reasons if r.kind == "measured_worse")
            together = max(bench.times.values())
            times = [s.time_us or 0.0 for s in plan.steps]
            assert f"together {duration(together)}" in reason.text
            assert all(duration(time) in reason.text for time in times)
            assert reason.together == Cost(us=together, measured=True)
            assert reason.apart == Cost(us=sum(times), measured=True)
            assert reason.edges == ((0, 1),)
            return
    raise AssertionError("no seed made fusing slower")


def test_clock_is_the_only_source_of_time() -> None:
    clock = Clock()
    plan, _ = search(diamond(), FakeBench(clock=clock), seconds=50.0, most=3)
    assert plan.search.seconds == pytest.approx(clock.now)


class Caches(FakeBench):
    """A bench on which a kernel that stores past the caches is the faster one by itself, and the step that reads what
    it stored takes long."""

    def factor(self, entry: str) -> float:
        return 1.0 if self.past.get(entry, True) else 1.3

    past: dict[str, bool] = {}  # noqa: RUF012  by entry

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[Timing]:
        self.clock.now += seconds
        return [Timing((sum(map(self._step_us, plan.steps)),) * 20) for plan in plans]

    def _step_us(self, step: Step) -> float:
        waits = STREAM in step.schedule and step.writes[0].place == "tmp"
        return step.bound_us * (4.0 if waits else 1.0 if STREAM in step.schedule else 1.3)

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        self.past.update({k.entry: STREAM in k.schedule for k in kernels})
        return super().measure(segment, segment_key, kernels, seed=seed)


def test_what_a_later_step_reads_stays_in_the_caches() -> None:
    plan, bench = search(diamond(), Caches(), schedules=(f"{STREAM}", f"{PLAIN}"))
    assert any(bench.past.values())
    places = {(step.writes[0].place, step.schedule) for step in plan.steps if step.family == "fused"}
    assert ("out", f"fused{{{STREAM}}}") in places
    assert all(schedule == f"fused{{{PLAIN}}}" for place, schedule in places if place == "tmp")
    assert any(place == "tmp" for place, _ in places)
