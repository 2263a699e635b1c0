"""Plans from one database to another: made anew and checked, and refused where they are not what they say."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import PlanTiming, Workbench
from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.named import NamedGraph
from fusion_ir.errors import FormatError
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import make, make_input
from fusion_ir.records import Plan, Status
from fusion_ir.text.printing import parse_graph
from scheduler.budget import Budget
from scheduler.plans import compose
from scheduler.plans.whole_time import BY_STEPS
from service.planning.planner import plan_graph
from service.transfer import importing, making
from service.transfer.importing import Importer, ImportOutcome
from service.transfer.reading import read_export
from tests.support.constants import with_constants
from tests.support.exports import Lines, changed, exported, of_kind
from tests.support.kernels import dense, graph_of
from tests.support.known_machine import know_machine
from tuning_db.store import Store

ROWS = dense(2, 1 << 17)
SPLIT = graph_of((ROWS,), build.softmax(make_input(0, ROWS)))  # both reductions in parts, and rescaled
SQUARE = dense(128, 128)
X, W1, W2 = (make_input(i, SQUARE) for i in range(3))
FOLDED = with_constants(graph_of((SQUARE,) * 3, build.matmul(X, build.matmul(W1, W2))), {1: "a@1", 2: "b@1"})
SMALL_SPEC = dense(64, 64)
SMALL = graph_of((SMALL_SPEC,), make("neg", [make("exp", [make_input(0, SMALL_SPEC)])]))


@dataclass(frozen=True)
class Source:
    """A database with a plan for each graph, and what they export as. names: those that the tensors were sent with."""

    url: str
    cache: ObjectCache
    keys: dict[str, str]

    def plan(self, name: str) -> Plan:
        with Store(self.url) as store:
            return Plan.model_validate_json(store.plans.plan(self.keys[name]) or b"")

    def export(self, *names: str) -> bytes:
        with Store(self.url) as store:
            return exported(store, [self.keys[name] for name in names])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("source")
    cache, url = know_machine(ObjectCache(folder / "cache")), f"sqlite:///{folder / 'plans.db'}"
    keys: dict[str, str] = {}
    plans: list[Plan] = []
    with Store(url) as store:
        for name, graph in (("split", SPLIT), ("small", SMALL), ("folded", FOLDED)):
            inputs = tuple(f"{name}_x{i or ''}" for i in range(len(graph.inputs)))
            named = NamedGraph(graph, inputs, (f"{name}_y",))
            answer = plan_graph(named, "cpu", Budget(0.5), store, cache)
            keys[name] = answer.plan_key
            plans.append(answer.plan)
        time_steps(plans, store, cache)
    return Source(url, cache, keys)


def time_steps(plans: Sequence[Plan], store: Store, cache: ObjectCache) -> None:
    """Records a trial of the schedule of each step: the seconds of a short search go into whole plans."""
    with Workbench(plans[0].device, cache, Limits(timing_seconds=0.02)) as bench:
        for step in (step for plan in plans for step in plan.steps):
            graph = parse_graph(store.segments.segment(step.segment_key) or "").graph
            kernel = FAMILIES[step.family].emit(graph, step.schedule, bench.device)
            store.trials.record(bench.measure(graph, step.segment_key, [kernel]))


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty database."""
    monkeypatch.setattr(making, "PLAN_SECONDS", 0.2)
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        yield store


def take(store: Store, cache: ObjectCache, data: bytes, *, force: bool = False) -> tuple[list[ImportOutcome], int]:
    content = read_export(BytesIO(data))
    with Importer(store, cache, {"cpu": "cpu"}, force=force) as importer:
        outcomes = importer.plans(content)
        return outcomes, importer.measurements(content)


def decisions(plan: Plan) -> Any:
    return plan.aliases, [(s.segment_key, s.family, s.schedule, s.reads, s.writes, s.nodes) for s in plan.steps]


def is_empty(store: Store) -> bool:
    found = store.plans.plans().items, store.devices.devices(), store.graphs.graph(graph_key(SMALL))
    return not any(found)


@pytest.mark.turn("plans that travel")
def test_a_prologue_comes_along(source: Source, target: Store, tmp_path: Path) -> None:
    original = source.plan("folded")
    assert [s.prologue for s in original.steps] == [True, False], "the inner product, of constants"
    (outcome,), _ = take(target, know_machine(ObjectCache(tmp_path / "cache")), source.export("folded"))
    assert outcome.result == "stored", outcome
    made = Plan.model_validate_json(target.plans.plan(outcome.plan_key or "") or b"")
    assert decisions(made) == decisions(original)
    assert [s.prologue for s in made.steps] == [True, False]
    assert made.buffers == original.buffers
    assert original.prologue_us
    assert made.prologue_us


@pytest.mark.turn("plans that travel")
def test_a_round_trip_of_rewritten_reductions(source: Source, target: Store, tmp_path: Path) -> None:
    """Decisions as they were; code, times and rows of here: from a cache that is empty, too."""
    original = source.plan("split")
    assert original.rewrites, "the graph was chosen for being rewritten"
    data = source.export("split", "small")
    cache = know_machine(ObjectCache(tmp_path / "cache"))
    outcomes, rows = take(target, cache, data)
    assert [o.result for o in outcomes] == ["stored", "stored"], outcomes
    with Store(source.url) as store:
        tried = [store.trials.trials(key) for graph in (SPLIT, SMALL) for key in store.segments.of(graph_key(graph))]
    assert rows == sum(map(len, tried)) > 0
    made = Plan.model_validate_json(target.plans.plan(outcomes[0].plan_key or "") or b"")
    assert decisions(made) == decisions(original)
    assert (made.rewrites, made.numerics, made.buffers) == (original.rewrites, original.numerics, original.buffers)
    assert made.time_us == outcomes[0].time_us != original.time_us
    assert all(s.time_us for s in made.steps)
    assert all(target.plans.binary(s.binary) for s in made.steps)
    stored = target.graphs.graph(graph_key(SPLIT))
    assert stored is not None
    assert stored.names.inputs == ("split_x",)
    inputs = [np.random.default_rng(1).standard_normal((2, 1 << 17), np.float32)]
    with Workbench(made.device, cache) as bench:
        assert compare(bench.run(made, inputs), reference(SPLIT, inputs)).ok
    found = [t for key in target.segments.of(graph_key(SPLIT)) for t in target.trials.trials(key)]
    own = {t.measurement.segment_key for t in found if not t.measurement.origin}
    assert own == {s.segment_key for s in made.steps}
    assert {t.measurement.origin for t in found} == {"", "imported"}, "those of the file beside them"
    again = exported(target, [o.plan_key or "" for o in outcomes])
    ours, theirs = (of_kind([*map(json.loads, d.splitlines())], "plan") for d in (again, data))
    assert [p["steps"] for p in ours] == [p["steps"] for p in theirs]


def test_a_second_import_changes_nothing(source: Source, target: Store) -> None:
    data = source.export("small")
    first, rows = take(target, source.cache, data)
    before = [len(target.trials.trials(k)) for k in target.segments.of(graph_key(SMALL))]
    again, none = take(target, source.cache, data)
    assert (first[0].result, again[0].result) == ("stored", "known")
    assert again[0].plan_key == first[0].plan_key
    assert rows > 0 == none
    assert [len(target.trials.trials(k)) for k in target.segments.of(graph_key(SMALL))] == before
    with Store(source.url) as store:
        assert take(store, source.cache, data)[1] == 0, "where the rows are from"


@pytest.mark.turn("plans that travel")
def test_only_a_clearly_faster_plan_replaces(source: Source, target: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By samples of one race, whatever else is known of either; --force replaces all the same."""
    wins: list[bool] = []
    monkeypatch.setattr(importing, "beats", lambda mine, theirs: wins[-1])
    fast, slow = source.export("small"), other_schedule(source)
    (stored,), _ = take(target, source.cache, fast)
    wins.append(False)
    (kept,), _ = take(target, source.cache, slow)
    assert (kept.result, kept.plan_key) == ("kept", stored.plan_key)
    (forced,), _ = take(target, source.cache, slow, force=True)
    assert forced.result == "stored"
    assert [row.plan_key for row in target.plans.plans().items] == [forced.plan_key]
    wins.append(True)
    (back,), _ = take(target, source.cache, fast)
    assert back.result == "stored"
    assert [row.plan_key for row in target.plans.plans().items] == [back.plan_key]


def other_schedule(source: Source) -> bytes:
    """The small plan with another schedule of its family."""
    (step,) = source.plan("small").steps
    graph = _segment(source, step.segment_key)
    others = [s for s in making.FAMILIES[step.family].space(graph, source.plan("small").device) if s != step.schedule]

    def change(lines: Lines) -> None:
        of_kind(lines, "plan")[0]["steps"][0]["schedule"] = others[0]

    return changed(source.export("small"), change)


def _segment(source: Source, key: str) -> Graph:
    with Store(source.url) as store:
        return parse_graph(store.segments.segment(key) or "").graph


def test_a_plan_of_another_device(source: Source, target: Store) -> None:
    """Its measurements stay true there."""

    def change(lines: Lines) -> None:
        device = of_kind(lines, "device")[0]
        moved = source.plan("small").device.model_copy(update={"name": "Another CPU"})
        device["device"]["name"], device["key"] = moved.name, moved.class_key
        of_kind(lines, "plan")[0]["device"] = moved.class_key
        for line in of_kind(lines, "measurement"):
            line["measurement"]["device_key"] = moved.class_key

    (outcome,), rows = take(target, source.cache, changed(source.export("small"), change))
    assert outcome.result == "elsewhere"
    assert "Another CPU" in outcome.detail
    assert not target.plans.plans().items
    (device,) = target.devices.devices()
    assert device.device.name == "Another CPU"
    assert device.device.ceilings is not None
    found = [t for key in target.segments.of(graph_key(SMALL)) for t in target.trials.trials(key, device.class_key)]
    assert len(found) == rows > 0


def _schedule(value: str) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        of_kind(lines, "plan")[0]["steps"][0]["schedule"] = value

    return change


def _step(name: str, value: object) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        of_kind(lines, "plan")[0]["steps"][0][name] = value

    return change


def _another_graph(lines: Lines) -> None:
    """The plan of one graph for another, every key right: only running it shows."""
    graph = of_kind(lines, "graph")[0]
    graph["text"] = graph["text"].replace("neg(", "abs(")
    graph["key"] = graph_key(parse_graph(graph["text"]).graph)
    of_kind(lines, "plan")[0]["graph"] = graph["key"]


def _another_segment(lines: Lines) -> None:
    """A step that computes something else, every key right."""
    step = of_kind(lines, "plan")[0]["steps"][0]
    for segment in of_kind(lines, "segment"):
        if segment["key"] == step["segment"]:
            segment["text"] = segment["text"].replace("neg(", "abs(")
            segment["key"] = step["segment"] = graph_key(parse_graph(segment["text"]).graph)
    of_kind(lines, "graph")[0]["segments"] = []
    lines[:] = [line for line in lines if line["kind"] != "measurement"]


def _nothing_to_do(lines: Lines) -> None:
    plan = of_kind(lines, "plan")[0]
    plan["steps"], plan["aliases"] = [], [[0, {"place": "in", "index": 0}]]


REFUSED: dict[str, tuple[Callable[[Lines], None], str]] = {
    "no schedule": (_schedule("pointwise"), "/steps/0/schedule: expected a schedule"),
    "absurd schedule": (_schedule("pointwise{lanes=1000000007}"), "/steps/0/schedule: expected a schedule"),
    "other family's": (_schedule("gemv{rows=8}"), "/steps/0/schedule: expected a schedule"),
    "no family": (_step("family", "pointwize"), "did you mean 'pointwise'"),
    "reads too much": (_step("reads", [{"place": "in", "index": 0}] * 2), "/steps/0/reads: expected 1 tensors"),
    "reads nothing": (_step("reads", [{"place": "tmp", "index": 0}]), "expected an input, or a tensor"),
    "reads beyond": (_step("reads", [{"place": "in", "index": 7}]), "expected an input, or a tensor"),
    "writes an input": (_step("writes", [{"place": "in", "index": 0}]), "expected one of 1 outputs"),
    "writes no output": (_step("writes", [{"place": "tmp", "index": 0}]), "expected a step that writes out0"),
    "another graph": (_another_graph, "wrong_result"),
    "another segment": (_another_segment, "wrong_result"),
    "no kernels": (_nothing_to_do, "expected kernels, got none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_plans_that_are_not_what_they_say(source: Source, target: Store, name: str) -> None:
    """Nothing of them, of their graphs, and of what was measured on these is stored."""
    change, words = REFUSED[name]
    (outcome,), rows = take(target, source.cache, changed(source.export("small"), change), force=True)
    assert outcome.result == "refused", outcome
    assert words in outcome.detail
    assert rows == 0
    assert is_empty(target)


@pytest.mark.turn("plans that travel")
def test_a_refused_plan_does_not_spoil_the_other(source: Source, target: Store) -> None:
    data = changed(source.export("small", "split"), _schedule("pointwise"))
    (small, split), rows = take(target, source.cache, data)
    assert (small.result, split.result) == ("refused", "stored")
    assert rows > 0
    assert target.segments.of(graph_key(SMALL)) == []


@pytest.mark.turn("plans that travel")
def test_rewrites_of_another_version_rest_on_the_check(
    source: Source, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the importer splits nothing: the steps make another graph of it, which still computes the same. As `exact`
    that cannot be shown."""
    monkeypatch.setattr(compose, "split_tasks", lambda device: 0)
    data = source.export("split")
    (outcome,), _ = take(target, source.cache, data)
    assert outcome.result == "stored", outcome
    made = Plan.model_validate_json(target.plans.plan(outcome.plan_key or "") or b"")
    assert [s.schedule for s in made.steps] == [s.schedule for s in source.plan("split").steps]
    assert made.numerics == "reassociate"
    assert any("rests on the check" in reason.text for reason in made.reasons)

    def exact(lines: Lines) -> None:
        of_kind(lines, "plan")[0]["asked"] = ["exact"]

    (refused,), _ = take(target, source.cache, changed(data, exact), force=True)
    assert (refused.result, "exact rewrites" in refused.detail) == ("refused", True)


def test_outputs_that_need_no_kernel(source: Source, target: Store, tmp_path: Path) -> None:
    x = make_input(0, SMALL_SPEC)
    graph = Graph((SMALL_SPEC,), (OutputSpec(x, SMALL_SPEC.strides), OutputSpec(x, SMALL_SPEC.strides)))
    with Store(f"sqlite:///{tmp_path / 'from.db'}") as store:
        key = plan_graph(NamedGraph.unnamed(graph), "cpu", Budget(0.5), store, source.cache).plan_key
        data = exported(store, [key])
    (outcome,), _ = take(target, source.cache, data)
    assert outcome.result == "stored", outcome
    made = Plan.model_validate_json(target.plans.plan(outcome.plan_key or "") or b"")
    assert (made.steps, [slot for slot, _ in made.aliases]) == ((), [0, 1])


def test_a_predicted_answer_makes_way(source: Source, target: Store) -> None:
    plan_graph(NamedGraph.unnamed(SMALL), "cpu", Budget(0.0), target, source.cache)
    (outcome,), _ = take(target, source.cache, source.export("small"))
    assert outcome.result == "stored"
    (row,) = target.plans.plans().items
    assert (row.plan_key, row.state) == (outcome.plan_key, "measured")


@pytest.mark.turn("plans that travel")
def test_a_plan_that_is_judged_by_its_steps(
    source: Source, target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There as here: no whole plan agrees, each step does, and a plan that says nothing of this is refused."""
    measure = Workbench.measure_plans

    def amplified(bench: Workbench, *args: Any, **how: Any) -> list[PlanTiming]:
        return [replace(t, status=Status.wrong_result, detail="far off") for t in measure(bench, *args, **how)]

    monkeypatch.setattr(Workbench, "measure_plans", amplified)
    with Store(f"sqlite:///{tmp_path / 'from.db'}") as store:
        (stored,), _ = take(store, source.cache, changed(source.export("small"), _judged))
        assert stored.result == "stored", stored
        assert "each step checked" in stored.detail
        data = exported(store, [stored.plan_key or ""])
    (outcome,), _ = take(target, know_machine(ObjectCache(tmp_path / "cache")), data)
    assert outcome.result == "stored", outcome
    made = Plan.model_validate_json(target.plans.plan(outcome.plan_key or "") or b"")
    assert (made.judged_by_steps, made.max_rel_error) == (True, None)
    assert made.time_us
    assert decisions(made) == decisions(source.plan("small"))
    assert BY_STEPS in [reason.text for reason in made.reasons]
    (known,), _ = take(target, source.cache, data)
    assert known.result == "known"
    (silent,), _ = take(target, source.cache, source.export("small"), force=True)
    assert (silent.result, "far off" in silent.detail) == ("refused", True)
    monkeypatch.setattr(importing, "_decisions", lambda plan: plan.version + str(plan.time_us))
    monkeypatch.setattr(importing, "_is_faster", lambda us, than_us: False)
    (kept,), _ = take(target, source.cache, data)
    assert (kept.result, kept.plan_key) == ("kept", outcome.plan_key), "one that is as good is there"


def _judged(lines: Lines) -> None:
    of_kind(lines, "plan")[0]["judged_by_steps"] = True


@pytest.mark.turn("plans that travel")
@pytest.mark.parametrize("name", ["another graph", "another segment"])
def test_what_is_judged_by_its_steps_is_proved_to_be_of_its_graph(source: Source, target: Store, name: str) -> None:
    """Its outputs as a whole are not looked at: so nothing but this version's own rewrites will do."""

    def change(lines: Lines) -> None:
        REFUSED[name][0](lines)
        _judged(lines)

    (outcome,), rows = take(target, source.cache, changed(source.export("small"), change), force=True)
    assert (outcome.result, rows) == ("refused", 0)
    assert "does not compute the graph: wrong_result" in outcome.detail
    assert is_empty(target)


def test_an_export_holds_no_code(source: Source) -> None:
    """Nor a word of it, nor where it was made."""
    data = source.export("split", "small")
    for word in (b"\\u007fELF", b"#include", b"void ", str(source.cache.folder).encode()):
        assert word not in data
    for step in source.plan("split").steps:
        assert step.source.encode() not in data


def test_a_file_that_changed_on_its_way(source: Source) -> None:
    """Any byte: by the digest at the latest."""
    data = source.export("small")
    for at in range(0, len(data), 211):
        with pytest.raises(FormatError):
            read_export(BytesIO(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]))
