"""`fuseplan trials`: what was stored is what is shown, for a graph and for a plan."""

import csv
import io
import json
from pathlib import Path

import pytest

from fusion_ir.formats import read
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import CompileReport, Measurement, Moment, Status, Surroundings
from fusion_ir.text.printing import print_graph
from service.cli.commands.trials import FIELDS
from tests.service.cli.conftest import GRAPH, Cli
from tests.support.devices import CUDA_DEVICE
from tests.support.stored_plans import DEVICE, chain, plan_of, sha, store_plan
from tuning_db.measurements import Trial
from tuning_db.store import Store

SEGMENT = plan_of(chain()).steps[0].segment_key


def measured(schedule: str, *samples_us: float, segment: str = SEGMENT, **changed: object) -> Measurement:
    values: dict[str, object] = {
        "segment_key": segment,
        "device_key": DEVICE.class_key,
        "family": "pointwise",
        "schedule": f"pointwise{{{schedule}}}",
        "status": Status.ok,
        "samples_us": samples_us,
        "race": "r1",
    }
    return Measurement(**values | changed)  # pyright: ignore[reportArgumentType]


ROWS = [
    measured("vec=8", 12.0, 12.5, 13.0),
    measured("vec=16", status=Status.crashed, detail="signal 11"),
    measured("vec=8", 11.0, 11.5, 12.0, race="r2"),
    measured("vec=4", 9.0, 9.5, 10.0, device_key="cpu-other"),
]


@pytest.fixture
def plan_key(tmp_path: Path) -> str:
    """Key of a stored plan with one step."""
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        store.trials.record(ROWS, "0.1.0")
        return store_plan(store, chain())


@pytest.fixture
def searched(tmp_path: Path, graph_file: Path) -> Path:
    """The file of a graph with two segments that something was tried on."""
    named = read(GRAPH, filename="graph.fuseplan.txt")
    text = print_graph(named.graph)
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        for segment in (text, "another"):
            store.segments.put(graph_key(named.graph), segment)
            store.trials.record([measured("vec=8", 5.0, segment=sha(segment))], "0.1.0")
    return graph_file


def test_a_plan_shows_what_was_tried_on_its_device(cli: Cli, plan_key: str) -> None:
    ended = cli("trials", plan_key[:10])
    assert ended.code == 0
    for words in ("2 candidates, 1 crashed", "vec=8", "11.5 µs", "crashed: signal 11"):
        assert words in ended.out, words
    assert "12.5 µs" not in ended.out, "a later try of the same candidate"
    assert "vec=4" not in ended.out, "another device"
    assert "12.5 µs" in cli("trials", plan_key[:10], "--all").out


def test_what_the_plan_has_stands_first(cli: Cli, tmp_path: Path) -> None:
    """The trial of the plan's own schedule stands first even if other races, without it, had faster ones."""
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        step = plan_of(chain()).steps[0]
        own = measured("", 20.0).model_copy(update={"family": step.family, "schedule": step.schedule})
        store.trials.record([measured(f"vec={n}", 10.0 + n, race=f"r{n}") for n in range(14)], "0.1.0")
        store.trials.record([own.model_copy(update={"race": "other"})], "0.1.0")
        key = store_plan(store, chain())
    rows = [line for line in cli("trials", key[:10]).out.splitlines() if "{" in line]
    assert step.schedule.partition("{")[0] in rows[0]
    assert "20.0 µs" in rows[0]
    assert "10.0 µs" in rows[1]
    out = " ".join(cli("trials", key[:10]).out.split())
    assert out.count("in the plan") == 1


def test_endings_name_the_race_and_have_units(cli: Cli, tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        rows = [measured("vec=8", 10.0), measured("vec=2", 32.0, detail="stopped, 3.2x the best; warm 1.891e+04 us")]
        store.trials.record([rows[0], rows[1].model_copy(update={"warm_us": 18910.0})], "0.1.0")
        key = store_plan(store, chain())
    out = " ".join(cli("trials", key[:10]).out.split())
    assert "stopped, 3.2× the best of its race, which took 10.0 µs; warm 18.9 ms" in out


def test_csv_holds_every_try(cli: Cli, plan_key: str) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("trials", plan_key[:10], "--csv").out)))
    assert tuple(rows[0]) == FIELDS
    assert [(r["schedule"], r["status"], r["samples_us"], r["race"]) for r in rows] == [
        ("pointwise{vec=8}", "ok", "12.0 12.5 13.0", "r1"),
        ("pointwise{vec=16}", "crashed", "", "r1"),
        ("pointwise{vec=8}", "ok", "11.0 11.5 12.0", "r2"),
    ]
    assert {r["segment"] for r in rows} == {SEGMENT}


def test_conditions_are_shown_where_asked_for(cli: Cli, tmp_path: Path) -> None:
    """The table shows conditions with --details, CSV and JSON always; unknown values are left empty."""
    start, end = Moment(clock_mhz=(3100.0, 2900.0), load=0.5), Moment(clock_mhz=(2000.0, 2900.0), load=0.5)
    surroundings = Surroundings(start=start, end=end, seconds=0.2, cpus=(0, 1), steal_ms=40.0, ceilings=DEVICE.ceilings)
    rows = [
        measured("vec=8", 12.0, warm_us=7.5, input_sets=17, report=CompileReport(code_bytes=797, frame_bytes=8),
                 surroundings=surroundings, toolchain="g++ 12.2"),
        measured("vec=4", 13.0),
    ]  # fmt: skip
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        store.trials.record(rows, "0.1.0")
        store.trials.add([Trial(measured("vec=2", 9.0), "0.0.9", 1.0)])
        key = store_plan(store, chain())[:10]
    plain, detailed = cli("trials", key).out, cli("trials", key, "--details").out
    assert "7.50 µs" in plain
    assert "imported" in plain
    assert "code 797 B" not in plain
    words = " ".join(detailed.split())
    for shown in ("797 B", "2900→2000 MHz", "0.5 load", "40 ms stolen", "10.0 GB/s", "g++ 12.2"):
        assert shown in words, shown
    assert max(map(len, plain.splitlines())) <= 100
    first, second, third = csv.DictReader(io.StringIO(cli("trials", key, "--csv").out))
    assert (first["warm_us"], first["code_bytes"], first["registers"], first["toolchain"]) == (
        "7.5",
        "797",
        "",
        "g++ 12.2",
    )
    assert json.loads(first["surroundings"])["end"]["clock_mhz"] == [2000.0, 2900.0]
    assert (second["code_bytes"], second["surroundings"], second["origin"]) == ("", "", "")
    assert (third["origin"], third["version"]) == ("imported", "0.0.9")
    found = json.loads(cli("trials", key, "--json").out)["trials"]
    assert found[0]["surroundings"]["steal_ms"] == 40.0
    assert found[1]["surroundings"] is None


def test_a_graph_shows_all_its_segments(cli: Cli, searched: Path) -> None:
    found = json.loads(cli("trials", searched, "--json").out)["trials"]
    assert [r["time_us"] for r in found] == [5.0, 5.0]
    assert len({r["segment"] for r in found}) == 2
    assert "1 exp, 1 neg" in cli("trials", searched).out


def test_nothing_tried(cli: Cli, graph_file: Path) -> None:
    ended = cli("trials", graph_file)
    assert (ended.code, ended.out) == (0, "")
    assert "Nothing was tried" in ended.err
    assert cli("trials", graph_file, "--csv").out.strip() == ",".join(FIELDS)
    assert cli("trials", graph_file, "--csv", "--json").code == 2
    assert cli("trials", "0123456789").code == 2


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (None, {"vec=8", "vec=16", "vec=32"}),
        ("cpu", {"vec=8"}),
        ("cuda", {"vec=16", "vec=32"}),
        ("h100", {"vec=16"}),
        ("h200", {"vec=32"}),
        ("a100", set[str]()),
    ],
)
def test_those_of_one_target(cli: Cli, tmp_path: Path, graph_file: Path, target: str | None, found: set[str]) -> None:
    """A graph's trials on devices that are not here, by what drivers call them."""
    named = read(GRAPH, filename="graph.fuseplan.txt")
    text = print_graph(named.graph)
    here, *there = (
        DEVICE,
        CUDA_DEVICE.model_copy(update={"name": "NVIDIA H100 80GB HBM3"}),
        CUDA_DEVICE.model_copy(update={"name": "NVIDIA H200"}),
    )
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        store.segments.put(graph_key(named.graph), text)
        for device, schedule in zip((here, *there), ("vec=8", "vec=16", "vec=32"), strict=True):
            store.devices.put(device)
            store.trials.record([measured(schedule, 5.0, segment=sha(text), device_key=device.class_key)], "0.1.0")
        plan_key = store_plan(store, chain())
        store.trials.record([measured("vec=4", 5.0, device_key=there[1].class_key)], "0.1.0")
    words = () if target is None else ("--target", target)
    rows = json.loads(cli("trials", graph_file, "--json", *words).out)["trials"]
    assert {row["schedule"].removeprefix("pointwise{").removesuffix("}") for row in rows} == found
    if not found:
        assert "Nothing was tried on it for a100" in cli("trials", graph_file, *words).err
    if target == "h200":
        rows = json.loads(cli("trials", plan_key, "--json", *words).out)["trials"]
        assert [row["schedule"] for row in rows] == ["pointwise{vec=4}"], "of a plan on another device than its own"
        assert cli("trials", graph_file, "--target", "cuda:1").code == 2
