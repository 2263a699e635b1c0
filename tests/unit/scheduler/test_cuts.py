"""Reasons and contraction tables of graphs where the answers are known."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from codegen.kernel import Reject
from fusion_ir import building as B
from fusion_ir.building import matmul
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.ops import OpKind, make, make_input
from fusion_ir.records import Contraction, Cost, Device, Plan, Reason, Refusal
from scheduler.budget import Budget
from scheduler.explain.cuts import CutOutcome, explain
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate, Candidates, CandidateSettings
from scheduler.settings import TuneSettings
from scheduler.tune import tune
from scheduler.tuning.trials import Ledger
from tests.unit.scheduler.fakes import DEVICE, FakeBench, FakeFamily, FakeNaive, Memory, Timing

SPEC = InputSpec(shape_of((512, 1024)), f32, (1024, 1))
X = make_input(0, SPEC)
POINTWISE = frozenset({OpKind.POINTWISE})


class Library(FakeFamily):
    """Takes one contraction and nothing else."""

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        ops = [n.op for n in segment.nodes if n.op != "input"]
        return None if ops == ["contract"] else Reject("takes one contraction alone")


class Timed(FakeBench):
    """Kernels take what `by_family` says for each op that they compute."""

    by_family: Mapping[str, float] = {}

    def time_us(self, segment: Graph, kernel: object) -> float:
        work = sum(n.op != "input" for n in segment.nodes)
        return self.by_family[kernel.family] * work  # type: ignore[attr-defined]

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[Timing]:
        each = {s: len(s.nodes) * self.by_family[s.family] if s.time_us is None else s.time_us
                for plan in plans for s in plan.steps}  # fmt: skip
        return [Timing((sum(each[s] for s in plan.steps),) * 20) for plan in plans]


def bench_of(**times: float) -> Timed:
    bench = Timed()
    bench.by_family = times
    return bench


def plan_of(
    graph: Graph, *families: FakeFamily, bench: Timed | None = None, seconds: float = 10_000.0, max_atoms: int = 30
) -> Plan:
    settings = TuneSettings(candidates=CandidateSettings(max_atoms=max_atoms))
    clock = bench.clock if bench else (lambda: 0.0)
    return tune(
        graph, DEVICE, Budget(seconds, seed=1), Memory(), bench,  # type: ignore[arg-type]
        families={f.name: f for f in families}, settings=settings, clock=clock,
    )  # fmt: skip


def chain(*ops: str) -> Graph:
    node: Node = X
    for op in ops:
        node = make(op, [node])
    return Graph((SPEC,), (OutputSpec(node, dense_strides(node.sizes)),))


def product() -> Graph:
    """A product with a pointwise op behind it."""
    x, w = matrix(0, 64, 128), matrix(1, 128, 32)
    return over(make("abs", [matmul(x, w)]))


def matrix(position: int, rows: int, columns: int) -> Node:
    return make_input(position, InputSpec(shape_of((rows, columns)), f32, (columns, 1)))


def over(*outputs: Node) -> Graph:
    """The graph of these outputs of `matrix` inputs."""
    inputs: dict[int, Node] = {}
    stack = list(outputs)
    while stack:
        node = stack.pop()
        stack += node.args
        if node.op == "input":
            inputs[node.attr("position", int)] = node
    specs = tuple(InputSpec(n.shape, n.dtype, dense_strides(n.sizes)) for _, n in sorted(inputs.items()))
    return Graph(specs, tuple(OutputSpec(o, dense_strides(o.sizes)) for o in outputs))


def edges(plan: Plan) -> list[Reason]:
    """The plan's reasons about edges between two steps. Fails where an edge has more than one."""
    found = [r for r in plan.reasons if r.edges]
    told = sorted(e for r in found for e in r.edges)
    assert told == sorted(set(told))
    return found


def test_a_refused_merge_names_every_family_and_those_that_say_the_same_once() -> None:
    wide, one = FakeFamily("wide", most=1), FakeFamily("narrow", most=1)
    plan = plan_of(chain("neg", "exp"), wide, one, FakeNaive("one"))
    [reason] = edges(plan)
    assert (reason.kind, reason.edges, reason.nodes) == ("rejected", ((0, 1),), (1, 2))
    assert reason.refusals == (
        Refusal(families=("wide", "narrow"), text="2 computations, at most 1"),
        Refusal(families=("one",), text="2 nodes; one at a time"),
    )
    assert reason.together is None and reason.apart is None


def test_a_merge_that_is_measured_slower_has_both_times() -> None:
    fused = FakeFamily("fused", schedules=("only",))
    plan = plan_of(chain("neg", "exp"), fused, FakeNaive("one"), bench=bench_of(fused=900.0, one=500.0))
    [reason] = edges(plan)
    assert reason.kind == "measured_worse"
    assert reason.text == "together 1.80 ms, apart 500 µs + 500 µs"
    assert reason.together == Cost(us=1800.0, measured=True)
    assert reason.apart == Cost(us=1000.0, measured=True)


def test_edges_with_the_same_reason_are_told_of_together() -> None:
    fused = FakeFamily("fused", schedules=("only",))
    plan = plan_of(chain("exp", "exp", "exp"), fused, FakeNaive("one"), bench=bench_of(fused=900.0, one=500.0))
    assert [(r.kind, r.edges) for r in edges(plan)] == [("measured_worse", ((0, 1), (1, 2)))]


class Apart(Timed):
    """A whole plan is the faster the more kernels it has."""

    def time_us(self, segment: Graph, kernel: object) -> float:
        return 100.0

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[Timing]:
        return [Timing((1000.0 / len(plan.steps),) * 20) for plan in plans]


def padded(x: Node) -> Node:
    return B.pad(x, (0, 0), (0, 1))


SEEN_THROUGH: dict[str, Callable[[Node, Node], list[Node]]] = {
    "pad": lambda x, y: [B.neg(padded(x))],
    "cat": lambda x, y: [B.neg(B.cat([x, y], 0))],
    "of each other": lambda x, y: [B.neg(padded(B.cat([x, padded(y)], 1)))],
    "two readers": lambda x, y: [B.neg(p := padded(x)), B.abs_(p)],
    "an output": lambda x, y: [p := padded(x), B.neg(p)],
    "a product": lambda x, y: [B.matmul(padded(x), B.transpose(padded(y)))],
    "an atom before": lambda x, y: [B.abs_(B.add(padded(B.neg(x)), padded(B.exp(y))))],
}


@pytest.mark.parametrize("graph", SEEN_THROUGH)
def test_a_winner_that_is_the_unfused_graph_is_explained_by_its_own_tensors(graph: str) -> None:
    """A padding is a tensor of the unfused graph, and segments of other covers see through it: tensors of either are
    numbered from 0."""
    made = SEEN_THROUGH[graph](matrix(0, 64, 32), matrix(1, 64, 32))
    fused = FakeFamily("fused", kinds=frozenset(OpKind), schedules=("only",))
    plan = plan_of(over(*made), fused, FakeNaive("one", schedules=("only",)), bench=Apart())
    assert plan.unfused_us == plan.time_us
    told = [e for r in edges(plan) for e in r.edges]
    writers, read = dict[object, int](), set[tuple[int, int]]()  # buffers serve several tensors one after the other
    for j, step in enumerate(plan.steps):
        read |= {(writers[ref], j) for ref in step.reads if ref in writers}
        writers |= dict.fromkeys(step.writes, j)
    assert sorted(told) == sorted(read)


def of_singles(bench: Timed, caps: tuple[Reason, ...] = (), whole: bool = False, complete: bool = False) -> Reason:
    """Why two ops are apart, each of them measured. whole: the search had both in one launch too, not measured."""
    fused = FakeFamily("fused", schedules=("only",))
    one = FakeNaive("one", schedules=("only",))
    ledger = Ledger(DEVICE, {"fused": fused, "one": one}, Memory(), bench, 0)  # type: ignore[dict-item]
    prepared = prepare(chain("neg", "exp"))
    atoms = cut(prepared.graph, ledger.acceptor.computable)
    pieces = [atoms.piece(1 << a) for a in range(len(atoms))]
    singles = {p: c for p in pieces if isinstance(c := ledger.acceptor.ask(atoms, p), Candidate)}
    for candidate in singles.values():
        ledger.measure(candidate, 2)
    together = ledger.acceptor.ask(atoms, atoms.piece(atoms.all))
    assert isinstance(together, Candidate)
    accepted = singles | ({atoms.piece(atoms.all): together} if whole else {})
    found = Candidates(atoms, accepted, (tuple(p.members for p in singles),), caps)
    outcome = CutOutcome(complete, by_plans=False)
    [reason] = explain(prepared, tuple(singles.values()), found, ledger, outcome)
    return reason


def test_what_a_limit_kept_the_search_from_is_said_with_the_limit() -> None:
    cap = Reason(kind="cap", text="2000 connected segments of up to 9 atoms")
    reason = of_singles(bench_of(fused=900.0, one=500.0), (cap,))
    assert reason.kind == "cap"
    assert reason.text.startswith(
        "not among the segments looked at (2000 connected segments of up to 9 atoms); together "
    )
    assert reason.text.count("(predicted)") == 1, "the two were measured"
    assert reason.together is not None and not reason.together.measured
    assert reason.apart == Cost(us=1000.0, measured=True)


def test_what_was_predicted_faster_and_not_tried_is_said_to_have_lacked_time() -> None:
    """Two segments merged read and write as many bytes as one of them, so that the merge is predicted to take about as
    long as one."""
    reason = of_singles(bench_of(fused=100.0, one=90.0), whole=True)
    assert reason.kind == "cap"
    assert reason.text.endswith("apart 90.0 µs + 90.0 µs; not tried before the time was over")
    assert reason.together is not None and reason.together.us < 180.0
    proved = of_singles(bench_of(fused=40.0, one=30.0), whole=True, complete=True)
    assert proved.kind == "predicted_worse"
    assert proved.text.endswith("µs, it would not win"), "the bound is more than 60 us"


@pytest.mark.parametrize("library_us", [100.0, 900.0])
def test_a_contraction_costs_by_family_alone_and_with_its_epilogue(library_us: float) -> None:
    """600 us an op in one launch, 500 us for a pointwise one alone, the library as given: cheap enough, it wins."""
    kinds = frozenset({OpKind.POINTWISE, OpKind.CONTRACT})
    families = (
        FakeFamily("tiled", kinds=kinds, schedules=("only",)),
        Library("library", schedules=("only",)),
        FakeFamily("pointwise", kinds=POINTWISE, schedules=("only",)),
    )
    graph = product()
    node = next(i for i, n in enumerate(graph.nodes) if n.op == "contract")
    plan = plan_of(graph, *families, bench=bench_of(tiled=400.0, library=library_us, pointwise=100.0))
    [contraction] = plan.contractions
    assert contraction.nodes == (node,)
    alone, fused = contraction.alternatives
    assert alone.nodes == (node,) and alone.apart is None
    costs = {c.family: (c.cost.us, c.cost.measured) for c in alone.costs if c.cost.measured}
    assert costs.items() <= {"library": (library_us, True), "tiled": (400.0, True)}.items()
    assert {c.family for c in alone.costs} == {"library", "tiled"}
    assert [r.families for r in alone.refusals] == [("pointwise",)]
    assert {c.family for c in fused.costs} == {"tiled"}
    assert Refusal(families=("library",), text="takes one contraction alone") in fused.refusals
    chosen = [(c.family, c.schedule) for a in contraction.alternatives for c in a.costs if c.chosen]
    assert chosen == [(s.family, s.schedule) for s in plan.steps if node in s.nodes]
    assert fused.apart is not None


def test_contractions_of_layers_that_are_alike_share_a_table() -> None:
    x, w = matrix(0, 64, 64), matrix(1, 64, 64)
    first = matmul(x, w)
    library = Library("library", schedules=("only",))
    plan = plan_of(over(matmul(first, w), matmul(first, x)), library)
    assert sorted(n for c in plan.contractions for n in c.nodes) == [2, 3, 4]
    assert len(plan.contractions) < 3
    assert all(c.cost.measured is False for t in plan.contractions for a in t.alternatives for c in a.costs)


def test_plans_of_before_are_read_and_keep_their_keys() -> None:
    plan = plan_of(chain("neg"), FakeNaive("one"))
    body = plan.model_dump_json()
    assert plan.contractions == () and "contractions" not in body and "edges" not in body and "accesses" not in body
    assert Plan.model_validate_json(body).plan_key == plan.plan_key
    assert Contraction.model_validate_json('{"nodes": [3], "alternatives": []}').nodes == (3,)
