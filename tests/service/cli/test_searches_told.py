"""Messages of commands about the searches that they make."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegen.devices import ceilings
from codegen.devices.detection import DeviceError
from codegen.devices.detection import detect as detect_device
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.slot import SlotError
from fusion_ir.core.graph import Graph
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Device, Plan
from fusion_ir.text.printing import print_graph
from service.cli.answer import Answer, origin
from service.cli.commands import devices, tune
from service.cli.graph_argument import read_graph
from service.planning import planner
from service.planning import search as searching
from service.planning.plan_request import PlanRequest
from service.planning.planner import PlanAnswer
from service.wording.continued_search import Continued
from tests.service.cli.conftest import Cli
from tests.support.stored_plans import BINARY, DEVICE, chain, plan_of, sha
from tuning_db.reading.graphs import Names
from tuning_db.requests import RequestKey, Searched
from tuning_db.store import Store


def test_continue_says_what_it_came_to(cli: Cli, graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan_graph(named: Any, *_: Any, again: bool = False, **__: Any) -> PlanAnswer:
        plan = plan_of(named.graph)
        return PlanAnswer(plan, plan.plan_key, "miss", "measured", None, Continued(plan.search, "faster", 1.128))

    monkeypatch.setattr(tune, "plan_graph", plan_graph)
    ended = cli("tune", graph_file, "--continue")
    assert "searched 1.50 s more: 2 kernels timed; 1.13× faster than the stored plan\nstored in" in ended.out.replace(
        "\n ", "\n"
    )
    assert json.loads(cli("tune", graph_file, "--continue", "--json").out)["continued"] == {
        "outcome": "faster",
        "speed_up": 1.128,
    }


KINDS = ["absent", "cut short", "predicted", "stale", "other", "whole"]
TOLD = {
    "absent": "no plan in the database: searching up to 27 s",
    "cut short": "the stored plan was cut short: searching up to 27 s more (--seconds 0: as it is)",
    "predicted": "nothing of the stored plan was timed: searching up to 27 s more (--seconds 0: as it is)",
    "stale": "the stored plan was timed under another driver, compiler or version: searching up to 27 s for one of now",
    "other": "the stored plan was searched for under other conditions (--numerics, --memory): "
    "searching up to 27 s more (--seconds 0: as it is)",
    "whole": None,
}


@pytest.fixture
def searching_quickly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[float]:
    """A device that is known, and searches of no time that find a plan at 9 us. Their budgets."""
    searched: list[float] = []
    ObjectCache(tmp_path / "cache").put(BINARY)

    def search(graph: Graph, request: PlanRequest, *_: object) -> tuple[Plan, None]:
        searched.append(request.budget.seconds)
        return plan_of(graph).model_copy(update={"time_us": 9.0}), None

    monkeypatch.setattr(planner, "detect", lambda _target, _cache, **_: DEVICE)
    monkeypatch.setattr(searching, "search", search)
    return searched


def store(kind: str, path: Path, graph: Graph) -> None:
    if kind == "absent":
        return
    cut = Searched(3.0, "the budget ended")
    plan = plan_of(graph)
    if kind == "predicted":
        plan = plan.model_copy(update={"time_us": None, "spread": None, "predicted_us": 20.0})
        cut = Searched(0.0, planner.NOTHING_TIMED)
    if kind == "stale":
        plan = plan_of(graph, version="0.0.1")
    key = RequestKey(graph_key(graph), DEVICE.class_key, numerics="exact" if kind == "other" else "reassociate")
    plan = plan.model_copy(update={"numerics": key.numerics})
    with Store(f"sqlite:///{path / 'plans.db'}") as opened:
        opened.graphs.put(key.graph_key, print_graph(graph), Names(("x",), ("y",)))
        state = "predicted" if kind == "predicted" else "measured"
        searched = Searched() if kind in ("whole", "other", "stale") else cut
        opened.plans.put(key, plan, state, {sha(BINARY): BINARY}, {}, searched)


@pytest.mark.sweep(0.35)
@pytest.mark.parametrize("command", ["tune", "explain"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_line_says_that_a_search_begins_and_why(
    cli: Cli, graph_file: Path, tmp_path: Path, searching_quickly: list[float], kind: str, command: str
) -> None:
    """On stderr, in a pipe as well."""
    store(kind, tmp_path, read_graph(str(graph_file), None).graph)
    ended = cli(command, graph_file, "--seconds", "27")
    said = [line for line in ended.err.splitlines() if "searching" in line]
    assert (ended.code, said) == (0, [TOLD[kind]] if TOLD[kind] else [])
    assert searching_quickly == ([27.0] if TOLD[kind] else [])
    again = cli(command, graph_file, "--seconds", "27")
    assert "searching" not in again.err, "that one is a hit"


def test_who_goes_on_is_told_so(cli: Cli, graph_file: Path, tmp_path: Path, searching_quickly: list[float]) -> None:
    store("whole", tmp_path, read_graph(str(graph_file), None).graph)
    ended = cli("tune", graph_file, "--seconds", "27", "--continue")
    assert "going on where the search for the stored plan ended: searching up to 27 s more" in ended.err
    assert searching_quickly == [27.0]


def test_of_several_graphs_a_line_each_is_enough(cli: Cli, graph_file: Path, searching_quickly: list[float]) -> None:
    ended = cli("tune", graph_file, graph_file, "--seconds", "27")
    assert (ended.code, searching_quickly) == (0, [27.0])
    assert "searching" not in ended.err


@pytest.mark.parametrize(
    ("cache", "outcome", "words"),
    [
        ("hit", None, "found in the database"),
        ("miss", None, "made by a search of 1.50 s"),
        ("miss", "faster", "made by a search of 1.50 s"),
        ("miss", "as fast", "made by a search of 1.50 s"),
        ("miss", "kept", "found in the database, and not beaten by a search of 1.50 s more"),
        ("miss", "same", "found in the database, and not beaten by a search of 1.50 s more"),
    ],
)
def test_run_says_where_its_plan_is_from(cache: str, outcome: Any, words: str) -> None:
    plan = plan_of(chain())
    continued = Continued(plan.search, outcome, 1.0) if outcome else None
    assert origin(Answer(plan, "cpu", "measured", cache, "here", continued=continued)) == words


def test_ceilings_are_not_measured_without_a_word(
    cli: Cli, graph_file: Path, monkeypatch: pytest.MonkeyPatch, searching_quickly: list[float]
) -> None:
    def detect(_target: str, _cache: object, *, on_measuring: Callable[[], None] | None = None) -> Device:
        assert on_measuring is not None
        on_measuring()
        return DEVICE

    monkeypatch.setattr(planner, "detect", detect)
    monkeypatch.setattr(devices, "detect", detect)
    for arguments in (("tune", graph_file), ("tune", graph_file, graph_file), ("explain", graph_file), ("devices",)):
        assert "measuring what this machine can reach, once: about 10 s\n" in cli(*arguments).err, arguments


def test_ceilings_are_told_of_where_they_are_measured_and_only_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[str] = []
    cache = ObjectCache(tmp_path / "of_ceilings")
    monkeypatch.setattr(ceilings, "runtime_library", lambda *_: (_ for _ in ()).throw(SlotError("no compiler")))
    with pytest.raises(DeviceError):
        detect_device("cpu", cache, on_measuring=lambda: told.append("measuring"))
    assert told == ["measuring"]
    device = detect_device("cpu", cache, ceilings=False, on_measuring=lambda: told.append("none wanted"))
    assert DEVICE.ceilings is not None
    cache.remember(ceilings._cpu_key(device), DEVICE.ceilings.model_dump_json())  # pyright: ignore[reportPrivateUsage]
    detect_device("cpu", cache, on_measuring=lambda: told.append("again"))
    assert told == ["measuring"]
