"""`fuseplan tune` with several graphs: a line each, errors apart, what they share, and an end by Ctrl-C."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fusion_ir.keys.graph_key import graph_key
from service.cli.commands import tune
from service.planning.planner import NOTHING_TIMED, PlanAnswer, PlanningError
from tests.service.cli.conftest import GRAPH, Cli
from tests.support.service_app import wire
from tests.support.stored_plans import plan_of
from tuning_db.errors import DatabaseError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three graphs, one of them in a folder below, and files that are none."""
    folder = tmp_path / "graphs"
    (folder / "more").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "a.txt").write_text(GRAPH)
    (folder / "b.json").write_text(json.dumps(wire(9)))
    (folder / "more" / "c.json").write_text(json.dumps(wire(10)))
    (folder / "README.md").write_text("# Graphs\n")
    (folder / "weights.bin").write_bytes(b"\xff\0" * 1000)
    (folder / ".hidden" / "d.json").write_text("{}")
    return folder


def names(folder: Path) -> list[str]:
    return [str(folder / name) for name in ("a.txt", "b.json", "more/c.json")]


def test_a_line_for_each_graph_and_a_summary(cli: Cli, folder: Path, planned: list[object]) -> None:
    ended = cli("tune", folder)
    assert ended.code == 0
    head, *lines, summary, segments = ended.out.splitlines()
    assert head.split() == ["graph", "state", "cache", "time", "speed-up", "gap"]
    assert [line.split()[0] for line in lines] == names(folder)
    assert lines[0].split()[1:] == ["measured", "miss", "12.5", "µs", "8.00×", "1.04×"]
    assert lines[1].split()[2] == "hit"
    assert summary.startswith("3 graphs: 2 found, 1 tuned, in ")
    assert segments == "0 segments tried, 0 of them distinct: 0 found in an earlier graph"
    assert ended.err.splitlines() == [
        f"skipped {folder / 'README.md'}: no reader recognises it",
        f"skipped {folder / 'weights.bin'}: no reader recognises it",
    ]


@pytest.mark.usefixtures("known_machine")
def test_as_json_lines(cli: Cli, folder: Path, planned: list[object], graph_file: Path) -> None:
    lines = [json.loads(line) for line in cli("tune", graph_file, folder, "--json").out.splitlines()]
    assert [line["graph"] for line in lines[:-1]] == [str(graph_file), *names(folder)]
    single = json.loads(cli("tune", graph_file, "--json").out)
    assert {"graph": str(graph_file), **single, "cache": "miss"} == lines[0]
    assert (lines[-1]["summary"]["graphs"], lines[-1]["summary"]["hits"]) == (4, 3)


def test_a_graph_that_fails_does_not_stop_the_others(cli: Cli, folder: Path, planned: list[object]) -> None:
    (folder / "aa.json").write_text('{"inputs": [')
    missing = folder / "none.json"
    ended = cli("tune", missing, folder, folder / "b.json")
    assert ended.code == 1
    assert [line.split()[0] for line in ended.out.splitlines()[1:4]] == names(folder)
    assert "5 graphs: 2 found, 1 tuned, 2 failed" in ended.out
    assert f"failed: {missing}: No such file" in ended.err
    assert f"failed: {folder / 'aa.json'}:1:" in ended.err
    assert "2 graphs of 5 failed" in ended.err
    lines = [json.loads(line) for line in cli("tune", missing, folder, "--json").out.splitlines()]
    assert list(lines[0]) == ["graph", "error"]
    assert lines[-1]["summary"]["failed"] == 2


def tuning(monkeypatch: pytest.MonkeyPatch, before: dict[int, Any]) -> None:
    """Replaces the search: number n of it calls what `before` has for n, first."""
    calls: list[int] = []

    def plan_graph(named: Any, *_: Any, **__: Any) -> PlanAnswer:
        calls.append(len(calls))
        before.get(calls[-1], lambda: None)()
        plan = plan_of(named.graph)
        return PlanAnswer(plan, plan.plan_key, "miss", "measured")

    monkeypatch.setattr(tune, "plan_graph", plan_graph)


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "words"), [(PlanningError("no kernel"), "no kernel"), (ZeroDivisionError("oops"), "ZeroDivisionError")]
)
def test_a_search_that_fails(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    tuning(monkeypatch, {1: lambda: fail(error)})
    ended = cli("tune", folder)
    assert ended.code == 1
    assert "3 graphs: 2 tuned, 1 failed" in ended.out
    assert f"failed: {folder / 'b.json'}: " in ended.err and words in ended.err
    assert ("Traceback" in ended.err) == isinstance(error, ZeroDivisionError)


def test_what_would_fail_for_every_graph_ends_the_command(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning(monkeypatch, {1: lambda: fail(DatabaseError("the disk is full"))})
    ended = cli("tune", folder)
    assert (ended.code, ended.err.splitlines()[-1]) == (2, "error: the disk is full")
    assert len(ended.out.splitlines()) == 2


def test_an_interrupt_keeps_the_best_so_far_and_sums_up(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)

    def interrupted() -> None:
        """Raises an interrupt and catches it, as a search does that then ends with the best plan so far."""
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)

    tuning(monkeypatch, {1: interrupted})
    ended = cli("tune", folder)
    assert ended.code == 130
    assert [line.split()[0] for line in ended.out.splitlines()[1:3]] == names(folder)[:2]
    assert "3 graphs: 2 tuned, 1 not done" in ended.out
    assert ended.err.endswith("error: interrupted\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_outside_of_a_search(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuning(monkeypatch, {1: lambda: os.kill(os.getpid(), signal.SIGINT)})
    ended = cli("tune", folder)
    assert ended.code == 130
    assert "3 graphs: 1 tuned, 2 not done" in ended.out


def test_segments_that_graphs_share_are_counted(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def plan_graph(named: Any, target: Any, budget: Any, store: Any, *_: Any, **__: Any) -> PlanAnswer:
        plan = plan_of(named.graph)
        calls.append(graph_key(named.graph))
        for segment in ("common", f"own {len(calls)}"):
            store.segments.put(calls[-1], segment)
        return PlanAnswer(plan, plan.plan_key, "miss", "measured")

    monkeypatch.setattr(tune, "plan_graph", plan_graph)
    lines = cli("tune", folder, folder / "a.txt", "--json").out.splitlines()
    assert json.loads(lines[-1])["summary"]["segments"] == {"used": 6, "distinct": 4, "shared": 2}


def test_a_folder_without_graphs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = cli("tune", tmp_path / "empty")
    assert ended.code == 2
    said = " ".join(ended.err.split())
    assert f"{tmp_path / 'empty'}: no file in this folder, or below it, looks like a graph" in said
    for ending in (".fuseplan", ".json", ".nvfuser.py", ".migraphx.txt", ".kernel_math.txt"):
        assert ending in said


def test_a_side_file_goes_with_one_graph(cli: Cli, folder: Path, tmp_path: Path) -> None:
    ended = cli("tune", folder, "--shapes", tmp_path / "shapes.json")
    assert ended.code == 2
    assert "--shapes" in ended.err


@pytest.mark.parametrize(
    ("cut_short", "timed", "spread", "shown"),
    [
        (NOTHING_TIMED, False, None, ["predicted", "miss", "~20.0", "µs", "–", "–"]),
        ("interrupted", False, None, ["predicted", "miss", "~20.0", "µs", "–", "–"]),
        ("the budget ended", True, 0.01, ["cut", "short", "miss", "12.5", "µs", "8.00×", "1.04×"]),
        (None, True, 0.61, ["noisy", "miss", "12.5", "µs", "8.00×", "1.04×"]),
    ],
)
def test_a_line_says_what_is_known_of_a_time(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, cut_short: str | None, timed: bool, spread: float | None,
    shown: list[str],
) -> None:  # fmt: skip
    """Where no seconds were given, nothing was cut short, and there is a prediction."""
    answered(monkeypatch, cut_short, timed, spread)
    ended = cli("tune", folder, "--seconds", "0")
    _, line, *_ = ended.out.splitlines()
    assert line.split()[1:] == shown


def test_who_gives_no_seconds_is_told_of_no_search(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, NOTHING_TIMED, False, None)
    ended = cli("tune", folder / "a.txt", "--seconds", "0")
    assert "cut short" not in ended.out
    assert "nothing was timed, as no seconds were given: search with --seconds above 0" in " ".join(ended.out.split())


def answered(monkeypatch: pytest.MonkeyPatch, cut_short: str | None, timed: bool, spread: float | None) -> None:
    def plan_graph(named: Any, *_: Any, **__: Any) -> PlanAnswer:
        plan = plan_of(named.graph).model_copy(update={"spread": spread})
        untimed = dict.fromkeys(("time_us", "unfused_us", "search_gap"), None)
        plan = plan if timed else plan.model_copy(update={**untimed, "predicted_us": 20.0})
        return PlanAnswer(plan, plan.plan_key, "miss", "measured" if timed else "predicted", cut_short)

    monkeypatch.setattr(tune, "plan_graph", plan_graph)
