"""GRAPH|PLAN_KEY arguments: a file, or else a key, or else one message that says both."""

import json
from pathlib import Path

import numpy as np
import pytest

from service.cli.commands import tune
from service.cli.tensor_files import write_tensors
from service.planning.planner import PlanningError
from tests.service.cli.conftest import GRAPH, Cli
from tests.support.stored_plans import chain, store_plan
from tuning_db.refusals import Refusal
from tuning_db.store import Store

BOTH = ("explain", "run", "trials", "source", "plans show")  # the commands that take either
FILES = ("tune", "convert")


def words(command: str, subject: object, folder: Path) -> list[object]:
    """The command on a subject, with what else it wants."""
    inputs = folder / "in.safetensors"
    if not inputs.exists():
        write_tensors(inputs, {"x": np.zeros(8, np.float32)})
    more: dict[str, list[object]] = {
        "run": ["--inputs", inputs, "--outputs", folder / "out"],
        "convert": ["--to", "json"],
    }
    return [*command.split(), subject, *more.get(command, [])]


def said(cli: Cli, *arguments: object) -> str:
    ended = cli(*arguments)
    assert ended.code == 2 and ended.out == "", ended
    return " ".join(ended.err.split())


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("command", BOTH)
@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ("zzzz", "zzzz: no file of that name, and no plan's key begins with it: keys have hex digits"),
        ("abc", "abc: no file of that name, and no plan's key begins with it: give at least 4 of its digits"),
        ("deadbeef", "deadbeef: no file of that name, and no plan's key in "),
        ("0" * 64, f"{'0' * 64}: no file of that name, and no plan's key in "),
        ("0" * 65, f"{'0' * 65}: no file of that name, and no plan's key begins with it: keys have hex digits"),
        ("a\0b", r"'a\x00b': no file of that name, and no plan's key begins with it"),
        ("x" * 5000, "'xxxxxxxx"),
    ],
)
def test_neither(cli: Cli, tmp_path: Path, command: str, subject: str, message: str) -> None:
    assert message in said(cli, *words(command, subject, tmp_path))


@pytest.mark.parametrize("command", BOTH)
def test_a_file_with_a_name_that_is_near(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "swiglu.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for subject in ("swiglu.jsn", tmp_path / "swigul.json"):
        assert said(cli, *words(command, subject, tmp_path)).endswith("; did you mean 'swiglu.json'?")


@pytest.mark.parametrize("command", FILES)
def test_commands_that_take_files_alone(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "swiglu.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert "zzzz: No such file or directory" in said(cli, *words(command, "zzzz", tmp_path))
    near = said(cli, *words(command, "swiglu", tmp_path))
    assert near.endswith("swiglu: No such file or directory; did you mean 'swiglu.json'?")
    key = said(cli, *words(command, "deadbeef", tmp_path))
    assert key.endswith(
        "deadbeef: no file of that name; a plan's key goes with explain, run, source, trials and plans show, not here"
    )


def test_a_file_is_a_file_whatever_its_name(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that may be the beginning of a key, too."""
    monkeypatch.chdir(tmp_path)
    Path("deadbeef").write_text(GRAPH)
    assert cli("convert", "deadbeef", "--to", "json").code == 0
    assert cli("trials", "deadbeef").code == 0


@pytest.mark.parametrize("command", ["explain", "run"])
def test_numerics_of_the_plan_that_is_asked_for(
    cli: Cli, graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    asked: list[str] = []

    def plan_graph(*_: object, numerics: str, **__: object) -> None:
        asked.append(numerics)
        raise PlanningError("enough")

    monkeypatch.setattr(tune, "plan_graph", plan_graph)
    for more in ((), ("--numerics", "exact")):
        assert cli(*words(command, graph_file, tmp_path), *more).code == 1
    assert asked == ["reassociate", "exact"]


def test_a_plan_shows_why_clients_refused_it(cli: Cli, tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        key = store_plan(store, chain())
        plain = cli("plans", "show", key)
        for i in range(12):
            store.refusals.put(key, Refusal(f"{i:032x}", "unusable", "no such symbol\x1b[2J"))
        store.refusals.put(key, Refusal("f" * 32, "wrong", "out0 is off"))
    assert "refused" not in plain.out
    ended = cli("plans", "show", key[:12])
    assert ended.out.startswith(plain.out.split("measured")[0])
    assert " refused 13 times: 1 wrong, 12 unusable\n" in ended.out
    assert "wrong, its outputs disagreed with what they should be: out0 is off\n" in ended.out
    assert ended.out.count(r"it could not be loaded: no such symbol\x1b[2J") == 9
    told = json.loads(cli("plans", "show", key, "--json").out)
    assert [r["why"] for r in told["refusals"]] == ["wrong"] + 12 * ["unusable"]
