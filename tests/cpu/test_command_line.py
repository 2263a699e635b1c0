"""The command line with a real compiler: search, cached answer, running a graph and a plan on tensors from files."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from codegen.workbench.workbench import Workbench
from fusion_ir.records import Plan
from service.cli import main
from service.cli.tensor_files import read_tensors, write_tensors
from tests.support.whole import in_turn

GRAPH = """fuseplan.graph 1
in0 x: bf16[33, 20] align 16
in1 "row scale": bf16[33, 20] strides [1, 0] align 16
%0 = in0: bf16[33, 20]
%1 = in1: bf16[33, 20]
%2 = mul(%0, %1): bf16[33, 20]
%3 = permute(%2) {dims=[1, 0]}: bf16[20, 33]
%4 = neg(%2): bf16[33, 20]
out0 t: %3
out1 n: %4
"""
CHAIN = """fuseplan.graph 1
in0 a: f32[128, 6] align 16
in1 b: f32[6, 8] align 16
in2 c: f32[8, 128] align 16
%0 = in0: f32[128, 6]
%1 = in1: f32[6, 8]
%2 = contract(%0, %1) {a_axes=[0, -1, 1], acc=f32, b_axes=[-1, 1, 0], out_dtype=f32, reduced=1}: f32[128, 8]
%3 = in2: f32[8, 128]
%4 = contract(%2, %3) {a_axes=[0, -1, 1], acc=f32, b_axes=[-1, 1, 0], out_dtype=f32, reduced=1}: f32[128, 128]
out0 y: %4
"""


@pytest.fixture
def home(known_machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUSEPLAN_DB", f"sqlite:///{known_machine / 'plans.db'}")
    monkeypatch.setenv("FUSEPLAN_CACHE", str(known_machine / "cache"))
    monkeypatch.setenv("HOME", str(known_machine))
    (known_machine / "graph.txt").write_text(GRAPH)
    return known_machine


def fuseplan(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:  # type: ignore[type-arg]
    """Runs a command with --json; it must succeed."""
    capsys.readouterr()
    code = main([*map(str, arguments), "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return json.loads(printed.out)


def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((33, 20)).astype(ml_dtypes.bfloat16)
    scale = np.broadcast_to(rng.standard_normal((33, 1)).astype(ml_dtypes.bfloat16), (33, 20))
    return {"x": x, "row scale": scale}


@pytest.mark.turn("commands")
def test_search_then_hit_then_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = home / "graph.txt"
    first = fuseplan(capsys, "tune", graph, "--seconds", 1)
    assert (first["cache"], first["state"]) == ("miss", "measured")
    assert first["time_us"] > 0
    assert first["lower_bound_us"] > 0
    second = fuseplan(capsys, "tune", graph, "--seconds", 1)
    assert second["cache"] == "hit"
    assert second["plan_key"] == first["plan_key"]

    given = tensors()
    write_tensors(home / "in.safetensors", given)
    out = home / "out.safetensors"
    ran = fuseplan(capsys, "run", graph, "--inputs", home / "in.safetensors", "--outputs", out, "--check")
    assert ran["check"]["ok"]
    product = (given["x"].astype(np.float32) * given["row scale"].astype(np.float32)).astype(ml_dtypes.bfloat16)
    got = read_tensors(out)
    assert sorted(got) == ["n", "t"], "the graph's names"
    assert got["t"].tobytes() == np.ascontiguousarray(product.T).tobytes()
    assert got["n"].tobytes() == (-product).tobytes()

    # By its key, with an empty object cache: binaries come from the database.
    write_tensors(home / "plan.safetensors", {"in0": given["x"], "in1": given["row scale"]})
    again = home / "again.safetensors"
    elsewhere = ("--cache", home / "other cache")
    fuseplan(
        capsys,
        "run",
        first["plan_key"][:10],
        "--inputs",
        home / "plan.safetensors",
        "--outputs",
        again,
        "--check",
        *elsewhere,
    )
    assert [read_tensors(again)[f"out{i}"].tobytes() for i in range(2)] == [got["t"].tobytes(), got["n"].tobytes()]
    fuseplan(capsys, "run", first["plan_key"][:10], "--inputs", home / "in.safetensors", "--outputs", again)
    assert again.read_bytes() == out.read_bytes(), "by the names of the graph, as stored"


def test_a_prediction_needs_no_time(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predicted = fuseplan(capsys, "tune", home / "graph.txt", "--seconds", 0)
    assert predicted["state"] == "predicted"
    assert predicted["time_us"] is None


@pytest.mark.turn("commands")
def test_check_notices_one_wrong_element(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tensors(home / "in.safetensors", tensors())
    run = Workbench.run

    def wrong(bench: Workbench, plan: Plan, inputs: list[np.ndarray]) -> list[np.ndarray]:
        results = run(bench, plan, inputs)
        results[1][32, 19] *= 2
        return results

    monkeypatch.setattr(Workbench, "run", wrong)
    files = ("--inputs", str(home / "in.safetensors"), "--outputs", str(home / "out.safetensors"))
    assert main(["run", str(home / "graph.txt"), "--seconds", "0.3", *files]) == 0
    assert main(["run", str(home / "graph.txt"), "--seconds", "0.3", *files, "--check"]) == 1
    assert "out1[32, 19]" in capsys.readouterr().err


@pytest.mark.turn("commands")
def test_check_allows_what_the_plan_may_compute(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of few terms, multiplied in another order than the graph's."""
    (home / "chain.txt").write_text(CHAIN)
    rng = np.random.default_rng(0)
    sizes = {"a": (128, 6), "b": (6, 8), "c": (8, 128)}
    given = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    write_tensors(home / "in.safetensors", given)
    monkeypatch.setattr(Workbench, "run", lambda _, plan, inputs: [inputs[0] @ (inputs[1] @ inputs[2])])
    files = ("--inputs", str(home / "in.safetensors"), "--outputs", str(home / "out.safetensors"))
    for order, code in (("any", 0), ("own", 1)):
        monkeypatch.setattr("service.cli.commands.run.order_of", lambda plan, order=order: order)
        assert main(["run", str(home / "chain.txt"), *files, "--check", "--seconds", "0.3"]) == code, order


DUMPS = [
    ("mistral_rope_first_part.kernel_math.txt", {"pointwise"}),
    ("distilgpt2_attention_tail.migraphx.txt", {"matmul", "aten"}),
]


@pytest.mark.turn("commands")
@pytest.mark.soak
@pytest.mark.parametrize(("name", "families"), in_turn(DUMPS, 1, "dumps"))
def test_the_dumps_of_other_compilers_are_planned_and_explained(
    home: Path, capsys: pytest.CaptureFixture[str], name: str, families: set[str]
) -> None:
    graph = Path(__file__).parents[2] / "examples" / name
    answer = fuseplan(capsys, "tune", graph, "--seconds", "2")
    assert answer["state"] == "measured"
    assert families & {step["family"] for step in answer["steps"]}, "a busy machine may leave others unmeasured"
    assert main(["explain", str(graph), "--seconds", "2"]) == 0, "with more it may find another plan"
    printed = capsys.readouterr().out
    for number, step in enumerate(answer["steps"]):
        assert f"kernel {number}  {step['family']}" in printed
