"""The command line in this process, with a home, database and cache of its own, and without compilers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from codegen.sandbox.object_cache import ObjectCache
from service.cli import main
from service.cli.commands import tune
from service.planning.planner import PlanAnswer
from tests.support.known_machine import know_machine
from tests.support.stored_plans import plan_of
from tuning_db.store import Store

GRAPH = """fuseplan.graph 1
in0 x: f32[8] align 16
%0 = in0: f32[8]
%1 = exp(%0): f32[8]
%2 = neg(%1): f32[8]
out0 y: %2
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ended]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs `fuseplan` with arguments. Its database is tmp_path/plans.db."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "FUSEPLAN_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FUSEPLAN_DB", f"sqlite:///{tmp_path / 'plans.db'}")
    monkeypatch.setenv("FUSEPLAN_CACHE", str(tmp_path / "cache"))

    def run(*arguments: object) -> Ended:
        capfd.readouterr()
        code = main([str(a) for a in arguments])
        printed = capfd.readouterr()
        return Ended(code, printed.out, printed.err)

    return run


@pytest.fixture
def known_machine(tmp_path: Path) -> None:
    """Ceilings of this machine in the command line's cache: measuring them takes some seconds."""
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        know_machine(ObjectCache(tmp_path / "cache", store.seal()))


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    """-exp(x) on f32[8], as text."""
    path = tmp_path / "graph.fuseplan.txt"
    path.write_text(GRAPH)
    return path


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Replaces the search by a plan that was never searched for. The list gets target and seconds of every call."""
    calls: list[tuple[str, float]] = []

    def plan_graph(named, target, budget, store, cache, progress=None, *, numerics, again=False, tell=None):  # type: ignore[no-untyped-def]
        calls.append((target, budget.seconds))
        plan = plan_of(named.graph).model_copy(update={"numerics": numerics})
        return PlanAnswer(plan, plan.plan_key, "hit" if len(calls) > 1 else "miss", "measured")

    monkeypatch.setattr(tune, "plan_graph", plan_graph)
    return calls
