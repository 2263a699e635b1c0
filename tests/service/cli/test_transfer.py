"""`fuseplan plans export` and `import`: files, exit codes, and what is said; without compilers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from codegen.devices.detection import DeviceError
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Device, Measurement, Status
from fusion_ir.text.printing import print_graph
from service.transfer import export, places
from tests.service.cli.conftest import Cli
from tests.support.exports import changed, of_kind
from tests.support.stored_plans import DEVICE, chain, plan_of, store_plan
from tuning_db.store import Store

KEY = graph_key(chain())


@pytest.fixture
def plan_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Key of a stored plan with a measured segment, for a device that no machine has."""
    whole = plan_of(chain())
    step = whole.steps[0].model_copy(update={"segment_key": KEY})
    monkeypatch.setattr("tests.support.stored_plans.plan_of", lambda *_: whole.model_copy(update={"steps": (step,)}))
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        key = store_plan(store, chain())
        store.segments.put(KEY, print_graph(chain()))
        row = Measurement(
            segment_key=KEY, device_key=DEVICE.class_key, family="pointwise", schedule="s", status=Status.crashed
        )
        store.trials.record([row], "0.1.0")
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


OTHERS = {
    "empty": (b"", "it is empty"),
    "blank": (b" \n\n", "it has nothing but white space"),
    "graph": (
        b'{"format": "fuseplan.graph", "version": 1}\n',
        "it looks like a graph (json), which `fuseplan tune` takes",
    ),
    "laid out": (b'{\n  "format": "fuseplan.graph"\n}\n', "it looks like a graph (json), which `fuseplan tune` takes"),
    "text": (print_graph(chain()).encode(), "it looks like a graph (text), which `fuseplan tune` takes"),
    "json": (b'{\n  "a": 1\n}\n', "it is other JSON, or none, and begins with "),
    "list": (b"[1, 2]\n", "it is other JSON, or none, and begins with '[1, 2]'"),
    "binary": (bytes(range(256)) * 600, "it is no text"),
    "null": (b"abc\0def", "it is no text"),
    "weights": (b"\x10\0\0\0\0\0\0\0" + b'{"x": {"dtype": "F32"}}', "it is no text"),
    "prose": ("für\n".encode() * 40_000, "it begins with 'für\\nfür"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_that_is_no_export_is_called_what_it_is(cli: Cli, tmp_path: Path, name: str) -> None:
    content, words = OTHERS[name]
    file = tmp_path / "other.json"
    file.write_bytes(content)
    ended = cli("plans", "import", file)
    said = " ".join(ended.err.split())
    assert (ended.code, ended.out) == (2, "")
    assert (
        f"{file}: no file of `fuseplan plans export`, whose first line is of the kind fuseplan.export: {words}" in said
    )


def test_an_export_that_is_cut_is_still_called_one(cli: Cli, plan_key: str, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    cli("plans", "export", "--all", "-o", file)
    data = file.read_bytes()
    for length, words in (
        (40, ":1: the file is cut off within this line"),
        (len(data) - 30, "the file is cut off within"),
    ):
        file.write_bytes(data[:length])
        ended = cli("plans", "import", file)
        assert (ended.code, words in ended.err) == (2, True), ended.err


def test_a_folder_and_a_name_that_is_near(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("")
    ended = cli("plans", "import", tmp_path)
    assert (ended.code, "expected a file of `fuseplan plans export`, got a folder" in " ".join(ended.err.split())) == (
        2,
        True,
    )
    assert "did you mean 'out.jsonl'?" in " ".join(cli("plans", "import", tmp_path / "out.json").err.split())


@pytest.mark.parametrize("content", [b"\x10\0\0\0\0\0\0\0" + b'{"x": 1}' * 100, b"not a database, " * 200])
def test_some_other_file_as_database_is_not_to_be_moved_away(cli: Cli, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "in.safetensors"
    file.write_bytes(content)
    for command in (("plans", "list"), ("doctor",)):
        ended = cli(*command, "--db", f"sqlite:///{file}")
        said = " ".join((ended.out + ended.err).split())
        assert ended.code != 0
        assert "the file is no SQLite database; see first whether the path is the one you mean" in said
        assert "move" not in said
        assert file.read_bytes() == content
