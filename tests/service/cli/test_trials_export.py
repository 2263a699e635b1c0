"""`fuseplan trials export`: what was tried, as studies that Optuna reads."""

from pathlib import Path

import optuna
import pytest

from fusion_ir.records import Measurement, Status
from fusion_ir.text.printing import parse_graph, print_graph
from tests.service.cli.conftest import Cli
from tests.support.stored_plans import DEVICE, chain, plan_of, sha, store_plan
from tuning_db.store import Store

GRAPH = parse_graph(print_graph(chain())).graph
TEXT = print_graph(GRAPH)
SEGMENT = sha(TEXT)
SCHEDULE = "pointwise{{lanes={},fetch=1024,store=stream,tile=4096,block=0,interleave=0,tasks=1,rows=1}}"


def row(lanes: object, *samples_us: float, race: str = "r1", **changed: object) -> Measurement:
    values: dict[str, object] = {
        "segment_key": SEGMENT, "device_key": DEVICE.class_key, "family": "pointwise",
        "schedule": SCHEDULE.format(lanes), "status": Status.ok, "samples_us": samples_us, "race": race,
    }  # fmt: skip
    return Measurement(**values | changed)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'studies.db'}"


@pytest.fixture
def tried(tmp_path: Path) -> str:
    """The key of a stored plan whose segment was tried in two races."""
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        key = store_plan(store, chain())
        store.devices.put(DEVICE)
        store.segments.put(plan_of(chain()).graph_key, TEXT)
        rows = [
            row(32, 10.0),
            row(64, 20.0),
            row(16, status=Status.crashed, detail="signal 11"),
            row(64, 10.0, race="r2"),  # the machine is twice as fast now
            row(8, 30.0, race="r2", detail="cold, 4 input sets in turn; stopped, 3.0x the best"),
            row(32, 5.0, race="r2", family="no family of this version"),
        ]
        store.trials.record(rows, "0.1.0")
    return key


def studies(storage: str) -> dict[str, optuna.Study]:
    names = optuna.get_all_study_names(storage)
    return {name: optuna.load_study(study_name=name, storage=storage) for name in names}


@pytest.mark.parametrize("times", [1, 2])
def test_a_study_has_every_candidate_with_its_end(cli: Cli, tried: str, storage: str, times: int) -> None:
    """Also where it was exported before."""
    for _ in range(times):
        ended = cli("trials", "export", "--optuna", storage)
        assert ended.code == 0, ended.err
        assert "1 study with 4 trials" in " ".join((ended.out + ended.err).split())
    (study,) = studies(storage).values()
    by_lanes = {t.params["lanes"]: t for t in study.trials}
    assert {n: (t.state.name, t.intermediate_values.get(0, t.value)) for n, t in by_lanes.items()} == {
        32: ("COMPLETE", 10.0), 64: ("COMPLETE", 20.0), 16: ("FAIL", None), 8: ("PRUNED", 60.0)
    }  # fmt: skip
    assert by_lanes[16].user_attrs["detail"] == "signal 11"
    assert study.best_params["lanes"] == 32
    assert study.user_attrs["segment"] == SEGMENT
    assert (study.user_attrs["family"], study.user_attrs["unit"]) == ("pointwise", "us")


def test_of_one_graph_and_of_one_target(cli: Cli, tried: str, storage: str, tmp_path: Path) -> None:
    graph = tmp_path / "g.fuseplan"
    graph.write_text(TEXT)
    assert cli("trials", "export", str(graph), "--optuna", storage, "--json").out.count("pointwise") == 1
    told = cli("trials", "export", "--optuna", storage, "--target", "h200")
    assert (told.code, "Nothing to write" in told.out + told.err) == (0, True)


def test_a_study_of_somebody_else_stays(cli: Cli, tried: str, storage: str) -> None:
    cli("trials", "export", "--optuna", storage)
    (name,) = studies(storage)
    optuna.delete_study(study_name=name, storage=storage)
    optuna.create_study(study_name=name, storage=storage)
    ended = cli("trials", "export", "--optuna", storage)
    assert (ended.code, "that is not one of Fuseplan's" in ended.err) == (2, True)
    assert not studies(storage)[name].trials


@pytest.mark.parametrize("url", ["nonsense", "sqlite:////no/such/folder/s.db", "postgresql://u:secret@127.0.0.1:1/x"])
def test_a_storage_that_cannot_be_opened(cli: Cli, tried: str, url: str) -> None:
    ended = cli("trials", "export", "--optuna", url)
    assert (ended.code, ended.err.count("\n") <= 3) == (2, True), ended.err
    assert ended.err.startswith("error: --optuna: ")
    assert "secret" not in ended.err


def test_trials_of_a_plan_are_still_a_command_by_itself(cli: Cli, tried: str) -> None:
    assert cli("trials", tried[:10]).code == 0
    assert "trials export" in cli("trials", "--help").out
    assert "--optuna" in cli("trials", "export", "--help").out
