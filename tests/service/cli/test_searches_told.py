"""What commands say of the searches that they make."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.cli import tune
from service.continued import Continued
from service.planner import PlanAnswer
from tests.service.cli.conftest import Cli
from tests.support.stored_plans import plan_of


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
