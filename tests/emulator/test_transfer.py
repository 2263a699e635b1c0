"""A plan for the emulator from one database to another: each of its kernels is checked there as here."""

from io import BytesIO
from pathlib import Path

from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.core.named import NamedGraph
from fusion_ir.ops import make, make_input
from fusion_ir.records import Plan
from scheduler.budget import Budget
from service.planning.planner import plan_graph
from service.transfer.importing import Importer
from service.transfer.reading import read_export
from tests.support.exports import Lines, changed, exported, of_kind
from tests.support.kernels import dense, graph_of
from tuning_db.store import Store

SPEC = dense(64, 64)
GRAPH = graph_of((SPEC,), make("neg", [make("exp", [make_input(0, SPEC)])]))


def _no_schedule(lines: Lines) -> None:
    of_kind(lines, "plan")[0]["steps"][0]["schedule"] = "pointwise{vec=3}"


def test_an_emulated_plan_travels(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache")
    with Store(f"sqlite:///{tmp_path / 'from.db'}") as store:
        plan = plan_graph(NamedGraph.unnamed(GRAPH), "emulator", Budget(0.0), store, cache).plan
        data = exported(store, [plan.plan_key])
    with Store(f"sqlite:///{tmp_path / 'to.db'}") as store, Importer(store, cache, {}) as importer:
        (outcome,) = importer.plans(read_export(BytesIO(data)))
        assert outcome.result == "stored", outcome
        assert "in the emulator" in outcome.detail
        made = Plan.model_validate_json(store.plans.plan(outcome.plan_key or "") or b"")
        assert [s.binary for s in made.steps] == [s.binary for s in plan.steps]
        assert (made.time_us, made.predicted_us) == (None, None)
        assert made.max_rel_error == plan.max_rel_error
        (row,) = store.plans.plans().items
        assert row.state == "predicted"
        (known,) = importer.plans(read_export(BytesIO(data)))
        assert known.result == "known"
        (refused,) = importer.plans(read_export(BytesIO(changed(data, _no_schedule))))
        assert refused.result == "refused"
