"""`fuseplan plans export` and `import`: files, exit codes, and what is said; without compilers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from codegen.devices import DeviceError
from codegen.object_cache import ObjectCache
from fusion_ir.key import graph_key
from fusion_ir.records import Device, Measurement, Status
from fusion_ir.text import print_graph
from service.transfer import export, places
from tests.service.cli.conftest import Cli
from tests.support.exports import changed, of_kind
from tests.support.stored_plans import DEVICE, chain, plan_of, store_plan
from tuning_db import Store

KEY = graph_key(chain())


@pytest.fixture
def plan_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a stored plan with a measured segment, for a device that is nowhere."""
    whole = plan_of(chain())
    step = whole.steps[0].model_copy(update={"segment_key": KEY})
    monkeypatch.setattr("tests.support.stored_plans.plan_of", lambda *_: whole.model_copy(update={"steps": (step,)}))
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        key = store_plan(store, chain())
        store.put_segment(KEY, print_graph(chain()))
        row = Measurement(
            segment_key=KEY, device_key=DEVICE.class_key, family="pointwise", schedule="s", status=Status.crashed
        )
        store.record([row], "0.1.0")
    return key


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[Device | None], None]:
    """Says what this machine's device is; at first it has none."""
    found: list[Device | None] = [None]

    def detect(target: str, cache: ObjectCache) -> Device:
        device = found[-1]
        if device is None:
            raise DeviceError(f"no {target}")
        return device

    monkeypatch.setattr(places, "detect", detect)
    return found.append


def test_to_a_file_and_to_stdout(cli: Cli, plan_key: str, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    ended = cli("plans", "export", plan_key[:10], "-o", file)
    assert (ended.code, ended.out) == (0, "")
    assert "exported 1 plan and 1 measurement" in ended.err
    assert cli("plans", "export", "--all").out == file.read_text()
    kinds = [json.loads(line)["kind"] for line in file.read_text().splitlines()]
    assert kinds == ["fuseplan.export", "device", "segment", "graph", "plan", "measurement", "end"]
    assert list(tmp_path.glob(".out*")) == [], "no file half written"


def test_what_cannot_be_exported(cli: Cli, plan_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "or --all" in cli("plans", "export").err
    assert cli("plans", "export", plan_key, "--all").code == 2
    assert "no plan in" in cli("plans", "export", "0123456789").err
    ended = cli("plans", "export", plan_key, "-o", tmp_path / "no" / "out.jsonl")
    assert (ended.code, "No such file" in ended.err) == (2, True)
    (tmp_path / "empty").mkdir()
    empty = f"sqlite:///{tmp_path / 'empty' / 'plans.db'}"
    assert "there are no plans" in cli("plans", "export", "--all", "--db", empty).err
    monkeypatch.setattr(export, "FILE_BYTES", 2000)
    ended = cli("plans", "export", plan_key, "-o", tmp_path / "out.jsonl")
    assert (ended.code, "export fewer plans" in ended.err) == (1, True)
    assert list(tmp_path.glob("*out*")) == [], "neither a part of it nor what was written so far"


def test_a_plan_for_elsewhere(cli: Cli, plan_key: str, tmp_path: Path, here: Callable[[Device | None], None]) -> None:
    file, db = tmp_path / "out.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    cli("plans", "export", "--all", "-o", file)
    ended = cli("plans", "import", file, "--db", db)
    assert ended.code == 0
    for words in ("elsewhere", plan_key[:12], "Test CPU", "no cpu", "imported 1 measurement;"):
        assert words in ended.err, words
    here(DEVICE.model_copy(update={"units": 99}))
    ended = cli("plans", "import", file, "--db", db, "--json")
    (plan,) = json.loads(ended.out)["plans"]
    assert (plan["key"], plan["result"], plan["plan_key"]) == (plan_key, "elsewhere", None)
    assert json.loads(ended.out)["measurements"] == 0
    assert "imported; crashed" in " ".join(cli("trials", _graph(tmp_path), "--db", db).out.split())


def _graph(folder: Path) -> Path:
    path = folder / "graph.txt"
    path.write_text(print_graph(chain()))
    return path


def test_refusals_name_file_and_line(
    cli: Cli, plan_key: str, tmp_path: Path, here: Callable[[Device | None], None]
) -> None:
    here(DEVICE)
    file, db = tmp_path / "out.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    cli("plans", "export", "--all", "-o", file)
    data = file.read_bytes()
    ended = cli("plans", "import", file, "--db", db)
    assert ended.code == 1, "a schedule of 8 lanes is none of this version's for so little"
    for words in ("refused", "line 5: /steps/0/schedule: expected a schedule of pointwise", "1 plan refused"):
        assert words in ended.err, words
    file.write_bytes(data[:-30])
    ended = cli("plans", "import", file, "--db", db)
    assert ended.code == 2
    assert f"{file}:7: the file is cut off within this line" in ended.err
    file.write_bytes(changed(data, lambda lines: of_kind(lines, "graph")[0].update(key="0" * 64)))
    ended = cli("plans", "import", file, "--db", db)
    assert (ended.code, f"{file}:4: /key: expected {KEY}" in ended.err) == (2, True)
    assert cli("plans", "import", tmp_path / "nowhere", "--db", db).code == 2
    assert cli("plans", "import", tmp_path, "--db", db).code == 2
    assert cli("plans", "list", "--db", db, "--json").out.split() == ['{"plans":', "[]}"]
