"""`fuseplan source`: the generated source of a plan's kernels, with what each argument is."""

import json
from pathlib import Path

import pytest

from tests.service.cli.conftest import Cli
from tests.support.stored_plans import chain, store_plan
from tuning_db import Names, Store

SOURCE = "// two ops\nvoid k(void* const* args) {}\n"


@pytest.fixture
def stored(tmp_path: Path) -> str:
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        return store_plan(store, chain(), Names(("hidden\x1b[2J",), ("outb",)), SOURCE)


def test_every_argument_is_named_as_in_the_graph(cli: Cli, stored: str) -> None:
    ended = cli("source", stored[:8])
    assert ended.code == 0
    assert SOURCE in ended.out
    assert "// kernel 0 of 1: pointwise{lanes=8}" in ended.out
    assert "//   in0: hidden\\x1b[2J, the plan's in0, f32[8]" in ended.out, "what a terminal obeys is shown"
    assert "//   out0: outb, the plan's out0, f32[8]" in ended.out


def test_one_kernel_as_json(cli: Cli, stored: str) -> None:
    found = json.loads(cli("source", stored, "--step", "0", "--json").out)
    assert found["plan_key"] == stored
    (step,) = found["steps"]
    assert step["source"] == SOURCE
    assert step["arguments"] == ["in0", "out0"]


def test_a_kernel_that_the_plan_has_not(cli: Cli, stored: str) -> None:
    ended = cli("source", stored, "--step", "1")
    assert ended.code == 2
    assert "expected 0 to 0, got 1" in ended.err
