"""Predicted plans from one database to another: made anew where nothing can be run, measured where it can."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from codegen.devices.detection import DeviceError, detect
from codegen.kernel import Kernel
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary
from codegen.workbench.outcome import Outcome as Ran
from codegen.workbench.outcome import measurement
from codegen.workbench.timing_child import TimingChild
from codegen.workbench.workbench import PlanTiming, Workbench
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.ops import make_input
from fusion_ir.records import Device, Measurement, Plan, Status
from scheduler.budget import Budget
from scheduler.plans import compose
from service.planning.planner import plan_graph
from service.transfer import making, places
from service.transfer.importing import Importer, ImportOutcome
from service.transfer.reading import read_export
from tests.support.exports import Lines, changed, exported, of_kind
from tests.support.kernels import dense, graph_of
from tuning_db.store import Store

ROWS = dense(2, 1 << 17)
SPLIT = graph_of((ROWS,), build.softmax(make_input(0, ROWS)))  # both reductions in parts, and rescaled


@dataclass(frozen=True)
class Source:
    """A plan for an H200, as a file."""

    cache: ObjectCache
    plan: Plan
    data: bytes


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("source")
    cache = ObjectCache(folder / "cache")
    with Store(f"sqlite:///{folder / 'plans.db'}") as store:
        plan = plan_graph(NamedGraph(SPLIT, ("scores",), ("weights",)), "h200", Budget(0.0), store, cache).plan
        return Source(cache, plan, exported(store, [plan.plan_key]))


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty database on a machine without a GPU, where nothing is ever run."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing is run for a device that is not there")

    def without(target: str, cache: ObjectCache) -> Device:
        if target.startswith("cuda"):
            raise DeviceError("no CUDA device")
        return detect(target, cache)

    monkeypatch.setattr(TimingChild, "call", never)
    monkeypatch.setattr(places, "detect", without)
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        yield store


def take(store: Store, cache: ObjectCache, data: bytes, *, force: bool = False) -> ImportOutcome:
    """Imports a file with one plan, and its measurements; the plan's outcome."""
    bundle = read_export(BytesIO(data))
    with Importer(store, cache, {}, force=force) as importer:
        (outcome,) = importer.plans(bundle)
        importer.measurements(bundle)
    return outcome


def decisions(plan: Plan) -> Any:
    return plan.aliases, plan.buffers, [(s.segment_key, s.family, s.schedule, s.reads, s.writes) for s in plan.steps]


def stored(store: Store, outcome: ImportOutcome) -> Plan:
    return Plan.model_validate_json(store.plans.plan(outcome.plan_key or "") or b"")


def test_a_predicted_plan_is_made_anew_and_predicted(source: Source, target: Store, tmp_path: Path) -> None:
    """An import into an empty cache compiles the original's code and predicts its times; the imported plan answers
    requests there, and can be exported again."""
    outcome = take(target, ObjectCache(tmp_path / "cache"), source.data)
    assert outcome.result == "stored", outcome
    assert "nothing of it ran" in outcome.detail
    made, original = stored(target, outcome), source.plan
    assert original.rewrites, "the graph was chosen for being rewritten"
    assert decisions(made) == decisions(original)
    assert (made.device, made.rewrites, made.numerics) == (original.device, original.rewrites, original.numerics)
    assert (made.time_us, outcome.time_us) == (None, None)
    assert made.predicted_us == outcome.predicted_us == pytest.approx(original.predicted_us)
    assert [s.binary for s in made.steps] == [s.binary for s in original.steps]
    assert all(target.plans.binary(s.binary) and target.plans.source(s.source) and s.report for s in made.steps)
    (row,) = target.plans.plans().items
    assert row.state == "predicted"
    assert [d.device.name for d in target.devices.devices()] == ["NVIDIA H200"]
    named = NamedGraph(SPLIT, ("x",), ("y",))
    again = plan_graph(named, "h200", Budget(0.0), target, source.cache)
    assert (again.cache, again.state, again.plan_key) == ("hit", "predicted", outcome.plan_key)
    assert take(target, source.cache, source.data).result == "known"
    assert take(target, source.cache, exported(target, [outcome.plan_key or ""])).result == "known"


def slower(source: Source) -> bytes:
    """The source's export with the first step's schedule replaced by the one that is predicted to be the slowest."""
    step, device = source.plan.steps[0], source.plan.device
    bundle = read_export(BytesIO(source.data))
    segment = bundle.segments[step.segment_key]
    space = [s for s in making.FAMILIES[step.family].space(segment, device) if s != step.schedule]

    def change(lines: Lines) -> None:
        of_kind(lines, "plan")[0]["steps"][0]["schedule"] = space[-1]

    return changed(source.data, change)


def test_a_better_prediction_stays(source: Source, target: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever comes first; `--force` replaces it all the same."""
    predict = making.predicted_kernel_us
    usual = {s.schedule for s in source.plan.steps}

    def doubled(traffic: Any, kernel: Kernel, *rest: Any) -> float:
        return predict(traffic, kernel, *rest) * (1.0 if kernel.schedule in usual else 20.0)

    monkeypatch.setattr(making, "predicted_kernel_us", doubled)
    first = take(target, source.cache, slower(source))
    assert first.result == "stored", first
    better = take(target, source.cache, source.data)
    assert better.result == "stored", better
    kept = take(target, source.cache, slower(source))
    assert (kept.result, kept.plan_key) == ("kept", better.plan_key)
    assert "the stored plan is predicted to take" in kept.detail
    assert [row.plan_key for row in target.plans.plans().items] == [better.plan_key]
    assert take(target, source.cache, slower(source), force=True).result == "stored"


def moved_to(device: Device) -> Callable[[Lines], None]:
    """All that was made for a device, for another one."""

    def change(lines: Lines) -> None:
        (line,) = of_kind(lines, "device")
        line["device"], line["key"] = device.model_dump(mode="json"), device.class_key
        of_kind(lines, "plan")[0]["device"] = device.class_key
        for row in of_kind(lines, "measurement"):
            row["measurement"]["device_key"] = device.class_key

    return change


def test_a_plan_that_was_measured_elsewhere_is_predicted(source: Source, target: Store) -> None:
    """A plan for a GPU that is not here is stored for the device of that GPU's data sheet."""
    real = source.plan.device.model_copy(update={"origin": "detected", "driver": "580.1"})
    outcome = take(target, source.cache, changed(source.data, moved_to(real)))
    assert outcome.result == "stored", outcome
    assert stored(target, outcome).device == source.plan.device


def test_a_gpu_that_nobody_knows_is_refused(source: Source, target: Store) -> None:
    unknown = source.plan.device.model_copy(update={"name": "NVIDIA Z9"})
    outcome = take(target, source.cache, changed(source.data, moved_to(unknown)))
    assert outcome.result == "refused"
    assert "for NVIDIA Z9" in outcome.detail
    assert "can neither be measured nor predicted here" in outcome.detail
    assert not target.plans.plans().items


def test_rewrites_of_another_version_are_not_believed(
    source: Source, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs, so nothing would show that the steps compute the graph."""
    monkeypatch.setattr(compose, "split_tasks", lambda device: 0)
    outcome = take(target, source.cache, source.data)
    assert outcome.result == "refused"
    assert "rewritten by another version's rules" in outcome.detail
    assert not target.plans.plans().items


def test_a_plan_that_needs_more_memory_than_was_allowed(source: Source, target: Store) -> None:
    """It ended the import of all others with a fault of the program's."""

    def change(lines: Lines) -> None:
        of_kind(lines, "plan")[0]["memory_bytes"] = source.plan.temporary_bytes - 1

    outcome = take(target, source.cache, changed(source.data, change))
    needed = f"made here it needs {source.plan.temporary_bytes:,}"
    assert (outcome.result, needed in outcome.detail) == ("refused", True), outcome
    assert not target.plans.plans().items


def test_where_the_gpu_is_it_is_measured(source: Source, target: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the launches, of which there are none here: each kernel is checked and timed, then the plan, and it answers
    for the device that is there. What was predicted for it before makes way."""
    real = source.plan.device.model_copy(update={"origin": "detected", "driver": "580.1"})
    checked: list[str] = []

    def measure(bench: Workbench, segment: Graph, key: str, kernels: Sequence[Kernel], **_: Any) -> list[Measurement]:
        assert bench.device == real
        checked.append(key)
        (binary,) = bench.compile(kernels)
        assert isinstance(binary, Binary)
        return [measurement(bench.device, key, kernels[0], binary, Ran(Status.ok, samples_us=(3.0,) * 20), "r")]

    def measure_plans(bench: Workbench, graph: Graph, plans: Sequence[Plan], **_: Any) -> list[PlanTiming]:
        assert graph == SPLIT
        return [PlanTiming((7.0,) * 20, 1e-6, Status.ok) for _ in plans]

    monkeypatch.setattr(places, "detect", lambda target, cache: real)
    monkeypatch.setattr(Workbench, "measure", measure)
    monkeypatch.setattr(Workbench, "measure_plans", measure_plans)
    predicted = take(target, source.cache, source.data)
    assert predicted.result == "stored", predicted
    made = stored(target, predicted)
    assert (made.device, made.time_us, predicted.time_us, made.max_rel_error) == (real, 7.0, 7.0, 1e-6)
    assert decisions(made) == decisions(source.plan)
    assert checked == list(dict.fromkeys(s.segment_key for s in source.plan.steps))
    (row,) = target.plans.plans().items
    assert row.state == "measured"
    assert take(target, source.cache, source.data).result == "known"
