"""Output of the commands, for a person and as JSON. The search is replaced by a plan that was never searched for."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from codegen.toolchain.compiler import CompilerMissing
from fusion_ir.records import Alternative, Contraction, Cost, FamilyCost, Reason, Refusal, TensorAccess
from service.cli import terminal
from service.cli.app import COMMANDS, EXIT_CODES, GROUPS, commands, exit_code
from service.cli.commands import doctor
from service.cli.tensor_files import write_tensors
from service.settings import Settings
from service.wording.key_prefixes import KEY_DIGITS
from tests.service.cli.conftest import GRAPH, Cli
from tests.support.stored_plans import chain, plan_of, put_plan, store_alike, store_plan
from tuning_db.store import Store

TUNE_FIELDS = (
    "plan_key graph_key device target state cache time_us predicted_us unfused_us lower_bound_us search_gap "
    "max_rel_error warm_us prologue_us temporary_bytes kept_bytes steps numerics rewrites reasons search cut_short "
    "refining continued"
).split()


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """The key of a plan in the command line's database."""
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        return store_plan(store, chain())


@pytest.mark.usefixtures("known_machine")
def test_tune_as_json(cli: Cli, graph_file: Path, planned: list[tuple[str, float]]) -> None:
    first, second = (json.loads(cli("tune", graph_file, "--seconds", "3", "--json").out) for _ in range(2))
    assert list(first) == TUNE_FIELDS
    step = "family schedule time_us predicted_us report bytes nodes reads writes prologue"
    assert list(first["steps"][0]) == step.split()
    assert list(first["search"]) == "seconds candidates measured memory_bytes spent".split()
    assert first["steps"][0]["reads"] == ["in0"]
    assert first["steps"][0]["writes"] == ["out0"]
    assert (first["cache"], second["cache"]) == ("miss", "hit")
    assert planned == [("cpu", 3.0), ("cpu", 3.0)]
    assert first["target"] == "cpu"


def test_the_numerics_asked_for_reach_the_search(cli: Cli, graph_file: Path, planned: list[object]) -> None:
    asked = ("--numerics", "exact")
    assert json.loads(cli("tune", graph_file, "--json", *asked).out)["numerics"] == "exact"
    assert cli("tune", graph_file, "--numerics", "fast").code == 2


def test_tune_for_a_person(cli: Cli, graph_file: Path, planned: list[object], tmp_path: Path) -> None:
    ended = cli("tune", graph_file)
    for words in (
        "pointwise",
        "lanes=8",
        "x → y",
        "12.5 µs",
        "100 µs",
        "80 %",
        "measured",
        "~/plans.db",
        "fuseplan explain",
    ):
        assert words in ended.out, words
    assert ended.err == "", "progress is for terminals"
    assert "\x1b" not in ended.out


def test_seconds_of_0_ask_for_a_prediction(cli: Cli, graph_file: Path, planned: list[tuple[str, float]]) -> None:
    assert cli("tune", graph_file, "--seconds", "0").code == 0
    assert planned == [("cpu", 0.0)]


def test_a_graph_from_standard_input(
    cli: Cli, planned: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "typed"
    path.write_text(GRAPH)
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert cli("tune", "-").code == 0
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert cli("convert", "-", "--to", "text").out == GRAPH


def test_convert_there_and_back(cli: Cli, graph_file: Path, tmp_path: Path) -> None:
    wire = tmp_path / "graph.json"
    wire.write_text(cli("convert", graph_file, "--to", "json").out)
    assert cli("convert", wire, "--to", "text").out == GRAPH


def test_what_a_dump_leaves_open_is_stated_beside_it(cli: Cli, tmp_path: Path) -> None:
    """--shapes names a file with the extents and strides that a dump leaves open; assumptions are noted on stderr."""
    dump = tmp_path / "dump.txt"
    statement = "%kernel_math {\nT1_g_float[iS2{i0}, iS3{8}]\n   = expf(T0_g_float[iS0{i0}, iS1{8}]);\n}\n"
    dump.write_text(
        f"Inputs:\n  T0_g_float[iS0{{i0}}, iS1{{8}}]\nOutputs:\n  T1_g_float[iS2{{i0}}, iS3{{8}}]\n{statement}"
    )
    shapes = tmp_path / "shapes.json"
    refused = cli("convert", dump, "--to", "text")
    assert refused.code == 2 and f"{dump}:2:18: i0 is symbolic" in refused.err
    shapes.write_text('{"extents": {"i0": 4}}')
    ended = cli("convert", dump, "--to", "text", "--shapes", shapes)
    assert "T0: f32[4, 8] align" in ended.out
    assert ended.err == "note: the dump does not say how inputs lie in memory: T0 taken as dense\n"
    shapes.write_text('{"extents": {"i0": 4}, "inputs": {"T0": {"strides": [16, 1]}}}')
    ended = cli("convert", dump, "--to", "text", "--shapes", shapes)
    assert "T0: f32[4, 8] strides [16, 1] align" in ended.out
    assert ended.err == ""
    for text, place in (('{"extents"', ":1:"), ('{"extents": {"i9": 4, "i0": 4}}', ": /extents/i9: is not used")):
        shapes.write_text(text)
        refused = cli("convert", dump, "--to", "text", "--shapes", shapes)
        assert refused.code == 2 and f"{shapes}{place}" in refused.err


def test_explain_a_stored_plan_by_the_beginning_of_its_key(cli: Cli, stored: str) -> None:
    ended = cli("explain", stored[:8])
    assert ended.code == 0
    assert "1 exp, 1 neg" in ended.out
    nodes = json.loads(cli("explain", stored[:8], "--json").out)["steps"][0]["nodes"]
    assert nodes == [{"node": 1, "op": "exp"}, {"node": 2, "op": "neg"}]


def test_explain_shows_refusals_costs_and_widths_of_a_stored_plan(cli: Cli, tmp_path: Path) -> None:
    refusal = Refusal(families=("matmul", "gemv"), text="takes one contraction")
    reason = Reason(kind="rejected", nodes=(1, 2), text="no family takes both", edges=((0, 1),), refusals=(refusal,))
    costs = (
        FamilyCost(family="aten", schedule="aten{rows=1}", cost=Cost(us=7.5, measured=True), chosen=True),
        FamilyCost(family="wgmma", schedule="wgmma{rows=64}", cost=Cost(us=8.25, measured=False)),
    )
    alone = Alternative(nodes=(1,), costs=costs, refusals=(refusal,))
    late = Refusal(families=("aten",), text="adds nothing")
    fused = Alternative(nodes=(1, 2), costs=costs[1:], refusals=(refusal, late), apart=Cost(us=9.0, measured=True))
    made = plan_of(chain(), reasons=[reason])
    step = made.steps[0].model_copy(update={"accesses": (TensorAccess(argument=0, kind="vector", width=4, bytes=16),)})
    update = {"steps": (step,), "contractions": (Contraction(nodes=(1,), alternatives=(alone, fused)),)}
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        key = put_plan(store, chain(), None, made.model_copy(update=update))
    lines = [" ".join(line.split()) for line in cli("explain", key[:8]).out.splitlines()]
    for line in (
        "accesses reads x0: vector of 4 (16 B)",
        "kernels 0 and 1: no family takes both (%1 exp, %2 neg)",
        "matmul, gemv: takes one contraction",
        "What each family costs for %1 exp",
        "alone aten in the plan rows=1 7.50 µs",
        "wgmma rows=64 ~8.25 µs",
        "with %2 neg wgmma rows=64 ~8.25 µs 9.00 µs",
        "matmul, gemv, alone: takes one contraction",
        "aten, with %2 neg: adds nothing",
    ):
        assert line in lines, line
    body = json.loads(cli("explain", key[:8], "--json").out)
    assert body["reasons"][0]["refusals"] == [{"families": ["matmul", "gemv"], "text": "takes one contraction"}]
    assert body["contractions"][0]["alternatives"][0]["costs"][0] == {
        "family": "aten", "schedule": "aten{rows=1}", "cost": {"us": 7.5, "measured": True}, "chosen": True,
    }  # fmt: skip
    widths = [{"tensor": "in0", "argument": 0, "kind": "vector", "width": 4, "bytes": 16}]
    assert body["steps"][0]["accesses"] == widths


def test_explain_a_graph(cli: Cli, graph_file: Path, planned: list[object]) -> None:
    assert "1 exp, 1 neg" in cli("explain", graph_file).out


def test_plans_list_show_and_evict(cli: Cli, stored: str) -> None:
    assert stored[:12] in cli("plans", "list").out
    rows = json.loads(cli("plans", "list", "--json").out)["plans"]
    assert [row["plan_key"] for row in rows] == [stored]
    assert json.loads(cli("plans", "list", "--family", "matmul", "--json").out) == {"plans": []}
    assert stored in cli("plans", "show", stored[:6]).out
    assert json.loads(cli("plans", "show", stored, "--json").out)["graph_key"] == rows[0]["graph_key"]
    assert json.loads(cli("plans", "evict", stored[:6], "--json").out) == {"evicted": stored}
    assert json.loads(cli("plans", "list", "--json").out) == {"plans": []}


def test_a_beginning_that_two_plans_share(cli: Cli, tmp_path: Path) -> None:
    """Every command that takes a key says which plans there are, and takes what it says."""
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        beginning, keys = store_alike(store)
    none, file = tmp_path / "none", tmp_path / "none.safetensors"
    write_tensors(file, {"x0": np.zeros(8, np.float32)})
    for words in (
        ("plans", "show"),
        ("source",),
        ("explain",),
        ("trials",),
        ("run", "--inputs", file, "--outputs", none),
        ("plans", "bundle"),
        ("plans", "export"),
        ("plans", "evict"),
    ):
        folder = (none,) if words == ("plans", "bundle") else ()
        ended = cli(*words, beginning, *folder)
        assert (ended.code, ended.out) == (2, ""), words
        listed = f"{beginning}: 2 plans begin with it: {keys[0][:12]}, {keys[1][:12]}; give more digits"
        assert listed in " ".join(ended.err.split()), words
        unknown = cli(*words, "0123456789", *folder)
        assert unknown.code == 2, words
        assert "begins with it" in " ".join(unknown.err.split()), words
    assert [cli("plans", "show", key[:12]).code for key in keys] == [0, 0]
    assert cli("plans", "evict", keys[0][:12]).code == 0
    assert cli("plans", "show", beginning).code == 0, "which is the only one now"


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_every_key_in_a_list_is_an_argument(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(terminal, "PLAIN_WIDTH", width)
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        keys = {store_plan(store, chain(size)) for size in range(1, 6)}
    printed = [re.match(r" ?([0-9a-f]+)", line) for line in cli("plans", "list").out.splitlines()[2:]]
    shown = [found[1] for found in printed if found]
    assert [len(key) for key in shown] == [KEY_DIGITS] * 5, "none is cut"
    assert {json.loads(cli("plans", "show", key, "--json").out)["plan_key"] for key in shown} == keys


def test_config_show_lists_every_setting_with_its_origin(cli: Cli, tmp_path: Path) -> None:
    shown = json.loads(cli("config", "show", "--json").out)
    assert list(shown) == list(Settings.__dataclass_fields__)
    assert shown["db"]["origin"] == "environment"
    assert shown["port"] == {"value": 8080, "origin": "default", "variable": "FUSEPLAN_PORT"}
    assert "max_body_bytes" in cli("config", "show").out


def test_db_current_and_upgrade(cli: Cli) -> None:
    current = json.loads(cli("db", "current", "--json").out)
    assert json.loads(cli("db", "upgrade", "--json").out) == current
    assert current["revision"] in cli("db", "current").out


def test_doctor_examines_every_part(cli: Cli, tmp_path: Path) -> None:
    ended = cli("doctor", "--json")
    parts = {f["what"]: f for f in json.loads(ended.out)["findings"]}
    expected = (
        "Fuseplan, C++ compiler, NVRTC, GPU, GPUs elsewhere, database, object cache, quarantined devices, dashboard"
    )
    assert list(parts) == expected.split(", ")
    assert parts["database"]["level"] == "ok"
    assert str(tmp_path / "plans.db") in parts["database"]["detail"]
    assert ended.code == int(any(f["level"] == "broken" for f in parts.values()))


def test_doctor_asks_for_nvrtc_as_searches_do(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy that this process can import says nothing of the isolated ones that compile."""

    def nothing() -> str:
        raise CompilerMissing("no CUDA compiler (No module named 'cupy'): what to do")

    monkeypatch.setattr(doctor, "nvrtc_version", nothing)
    monkeypatch.setattr(doctor, "find_spec", lambda name: object())
    parts = {f["what"]: f for f in json.loads(cli("doctor", "--json").out)["findings"]}
    assert [parts[what]["level"] for what in ("NVRTC", "GPUs elsewhere")] == ["absent", "absent"]
    assert "No module named 'cupy'" in parts["NVRTC"]["detail"]
    monkeypatch.setattr(doctor, "nvrtc_version", lambda: "NVRTC 13.0")
    parts = {f["what"]: f for f in json.loads(cli("doctor", "--json").out)["findings"]}
    assert [parts[what]["level"] for what in ("NVRTC", "GPUs elsewhere")] == ["ok", "ok"]


def test_doctor_fails_where_something_is_broken(cli: Cli, graph_file: Path) -> None:
    ended = cli("doctor", "--db", f"sqlite:///{graph_file}/x.db")
    assert ended.code == 1
    assert "broken" in ended.out


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").out.startswith("fuseplan ")
    overview = cli("--help").out
    for name in commands():
        assert name.split()[0] in overview
        ended = cli(*name.split(), "--help")
        assert ended.code == 0
        assert "Usage" in ended.out


def test_progress_never_reaches_a_pipe(cli: Cli, graph_file: Path, planned: list[object]) -> None:
    ended = cli("tune", graph_file, "--json")
    json.loads(ended.out)
    assert ended.err == ""


@pytest.mark.parametrize("place", EXIT_CODES)
def test_every_exception_that_ends_a_command_with_a_message_exists(place: str) -> None:
    module, _, name = place.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    assert issubclass(kind, Exception)
    assert exit_code(kind) == exit_code(type("Special", (kind,), {})) == EXIT_CODES[place]
    assert exit_code(ArithmeticError) is None


def test_every_command_is_of_a_group_and_has_a_line_that_fits() -> None:
    names = [row.name for row in COMMANDS]
    assert len(set(names)) == len(names)
    assert {name.partition(" ")[0] for name in names if " " in name} - set(names) == set(GROUPS)
    assert [row.name for row in COMMANDS if not row.summary.endswith(".") or len(row.summary) > 60] == []
