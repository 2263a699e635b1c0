"""Planning one graph: the class of numerics, a bound that a kernel beat, and times that are none of now."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir import building as build
from fusion_ir.core.named import NamedGraph
from fusion_ir.formats import read
from fusion_ir.ops import make_input
from fusion_ir.records import Ceilings, Device, Measurement, Numerics, Status
from fusion_ir.text.printing import print_graph
from scheduler.budget import Budget
from service.planning import planner
from service.planning import search as searching
from tests.support.kernels import dense, graph_of
from tests.support.known_machine import know_machine
from tests.support.stored_plans import DEVICE, chain, sha
from tests.support.whole import in_turn
from tuning_db.store import Store

CRAWLING = Ceilings(copy_gbps=((0, 0.001),), read_gbps=((0, 0.001),), launch_us=0.01, fma_gflops=1000.0)
EXAMPLE = Path(__file__).parents[2] / "examples" / "momentum_step.json"


@pytest.mark.soak
@pytest.mark.parametrize("numerics", in_turn(["exact", "reassociate"], 1))
def test_a_plan_keeps_to_the_numerics_asked_for(tmp_path: Path, numerics: Numerics) -> None:
    spec = dense(2, 1 << 17)
    graph = graph_of((spec,), build.softmax(make_input(0, spec)))
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        cache = know_machine(ObjectCache(tmp_path / "cache"))
        plan = planner.plan_graph(
            NamedGraph(graph, ("x",), ("y",)), "cpu", Budget(1.0), store, cache, numerics=numerics
        ).plan
    assert plan.numerics == numerics
    assert ("rescale-sum" in plan.rewrites) == (numerics == "reassociate")


@pytest.mark.turn("planner")
def test_a_plan_that_beats_its_bound_gets_raised_ceilings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings from a moment in which memory crawled give a bound of seconds: the plan must not keep it."""
    cache = ObjectCache(tmp_path / "cache")

    def crawling(target: str, cache: ObjectCache, **_: object) -> Device:
        return detect(target, cache, ceilings=False).model_copy(update={"ceilings": CRAWLING})

    monkeypatch.setattr(planner, "detect", crawling)
    named = read(EXAMPLE.read_text(), filename=EXAMPLE.name)
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        answer = planner.plan_graph(named, "cpu", Budget(2.0), store, cache)
    assert answer.plan.device.ceilings != CRAWLING
    assert answer.plan.lower_bound_us < 1e6


@pytest.mark.turn("planner")
def test_a_plan_timed_under_another_compiler_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times from under another compiler only say what to try first; the new plan has times of its own."""
    cache = know_machine(ObjectCache(tmp_path / "cache"))
    named = read(EXAMPLE.read_text(), filename=EXAMPLE.name)

    def with_toolchain(text: str) -> planner.PlanAnswer:
        device = detect("cpu", cache).model_copy(update={"toolchain": text})
        monkeypatch.setattr(planner, "detect", lambda _target, _cache, **_: device)
        with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
            return planner.plan_graph(named, "cpu", Budget(1.0), store, cache)

    first, hit, after = (with_toolchain(text) for text in ("g++ 12", "g++ 12", "g++ 13"))
    assert [answer.cache for answer in (first, hit, after)] == ["miss", "hit", "miss"]
    assert after.plan.search.measured > 0 or after.plan.spread is not None, "kernels or, where it is busy, the whole"


def test_what_is_asked_about_others_belongs_to_no_graph(tmp_path: Path) -> None:
    """Segments of other graphs say what to try first: they are no part of this one for that."""
    segment, one, other = chain(), "e" * 64, "f" * 64
    row = Measurement(
        segment_key=sha(print_graph(segment)),
        device_key=DEVICE.class_key,
        family="pointwise",
        schedule="s",
        status=Status.ok,
        samples_us=(3.0,),
        race="race",
    )
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        store.devices.put(DEVICE)
        searching.StoredCosts(store, DEVICE.class_key, one).record(segment, [row])
        costs = searching.StoredCosts(store, DEVICE.class_key, other)
        assert [tuned.times for tuned in costs.others("pointwise")] == [{"s": 3.0}]
        assert store.segments.of(other) == []
        assert costs.known(row.segment_key)
        assert store.segments.of(other) == [row.segment_key]


@pytest.mark.turn("planner")
def test_a_plan_whose_graph_is_damaged_answers_again_without_a_search(tmp_path: Path) -> None:
    """The graph is at hand, and the plan was right."""
    cache, url = know_machine(ObjectCache(tmp_path / "cache")), f"sqlite:///{tmp_path / 'plans.db'}"
    named = read(EXAMPLE.read_text(), filename=EXAMPLE.name)
    with Store(url) as store:
        first = planner.plan_graph(named, "cpu", Budget(1.0), store, cache)
    with closing(sqlite3.connect(tmp_path / "plans.db")) as raw:
        raw.execute("UPDATE graphs SET text = text || ' '")
        raw.commit()
    with Store(url) as store:
        again = planner.plan_graph(named, "cpu", Budget(1.0), store, cache)
        assert (again.cache, again.plan_key) == ("hit", first.plan_key)
        assert store.graphs.graph(first.plan.graph_key) is not None
