"""Faults of the input end a command with one message on stderr that names the place, exit code 2 and no traceback."""

import json
from pathlib import Path

import numpy as np
import pytest

from fusion_ir.formats.json.wire import to_wire
from fusion_ir.text.printing import parse_graph
from service.cli.tensor_files import write_tensors
from service.settings import TARGET_WORDS
from service.wording.formatting import parse_size
from tests.service.cli.conftest import GRAPH, Cli

WIRE = json.dumps(to_wire(parse_graph(GRAPH)))


def ends_with_message(cli: Cli, *arguments: object, place: str) -> None:
    ended = cli(*arguments)
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert place in ended.err.replace("\n", " ")
    assert "Traceback" not in ended.err
    assert len(ended.err) < 2000


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("command", [("tune",), ("convert", "--to", "json"), ("explain",)])
@pytest.mark.parametrize(
    ("text", "place"),
    [
        (GRAPH.replace("exp(", "exqp("), ":4:"),
        (GRAPH.replace("exp(%0)", "exp(%0, %0)"), ":4:"),
        (GRAPH.replace("exp(%0): f32[8]", "exp(%0): f32[9]"), ":4:"),
        (GRAPH.replace("neg(%1)", "neg(%7)"), ":5:"),
        (GRAPH.replace("f32[8] align", "f32[9223372036854775808] align"), ":2:"),
        (GRAPH.replace("f32[8] align 16", "f32[8] strides [-1] align 16"), ":2:"),
        (GRAPH[: len(GRAPH) // 2], ":3:"),
        ("import os\nos.system('true')\n", ":1:"),
        ("__import__('os').system('true')\n", ":1:"),
        ('{"inputs": [', ":1:"),
        (WIRE.replace('"alignment": 16', '"alignment": 1e999'), ": /inputs/0/"),
        (WIRE.replace("[8]", "[NaN]"), ": /inputs/0/"),
    ],
)
def test_a_bad_graph(cli: Cli, tmp_path: Path, command: tuple[str, ...], text: str, place: str) -> None:
    path = tmp_path / "bad.graph"
    path.write_text(text)
    ends_with_message(cli, command[0], path, *command[1:], place=f"{path}{place}")
    assert not (tmp_path / "cache").exists(), "nothing may be stored"


def test_a_graph_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    ends_with_message(cli, "tune", tmp_path / "none.py", place=f"{tmp_path / 'none.py'}: No such file or directory")
    ends_with_message(cli, "explain", tmp_path, place=f"{tmp_path}: Is a directory")


def test_a_graph_that_is_too_large(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(b" " * 60_000_000)
    ends_with_message(cli, "tune", path, place=f"{path}: ")


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "1e9", "soon"])
def test_seconds(cli: Cli, graph_file: Path, seconds: str) -> None:
    ends_with_message(cli, "tune", graph_file, "--seconds", seconds, place="--seconds")


@pytest.mark.parametrize("memory", ["0", "-1", "8 gibibytes", "GiB", "1e9", "nan", "0.1B", "8EiB", "9999999999GiB", ""])
@pytest.mark.parametrize("command", ["tune", "explain"])
def test_memory(cli: Cli, graph_file: Path, command: str, memory: str) -> None:
    ends_with_message(cli, command, graph_file, f"--memory={memory}", place="--memory")


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1", 1), ("4096 B", 4096), ("64MiB", 64 << 20), ("1.5gib", 3 << 29), ("2 GB", 2_000_000_000), ("0.3kB", 300)],
)
def test_sizes(text: str, bytes_: int) -> None:
    assert parse_size(text) == bytes_


@pytest.mark.parametrize("target", ["gpu", "cuda:x", "cpu:0", ""])
def test_target(cli: Cli, graph_file: Path, target: str) -> None:
    ends_with_message(cli, "tune", graph_file, "--target", target, place="--target")


@pytest.mark.parametrize("command", [("tune", "{graph}"), ("explain", "{graph}"), ("devices",), ("serve",)])
def test_a_target_in_the_environment(
    cli: Cli, graph_file: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("FUSEPLAN_TARGET", "gpu")
    words = [w.format(graph=graph_file) for w in command]
    ends_with_message(
        cli,
        *words,
        place=f"FUSEPLAN_TARGET: expected {TARGET_WORDS}, got 'gpu'",
    )


def test_unknown_options_and_commands(cli: Cli, graph_file: Path) -> None:
    ends_with_message(cli, "tune", graph_file, "--colour", "blue", place="--colour")
    ends_with_message(cli, "tone", graph_file, place="tone")
    ends_with_message(cli, "convert", graph_file, "--to", "yaml", place="yaml")


@pytest.mark.parametrize("command", [("plans", "list"), ("db", "current"), ("tune", "{graph}"), ("explain", "{graph}")])
def test_a_database_that_cannot_be_written(
    cli: Cli, graph_file: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    below_a_file = graph_file / "plans.db"
    words = [w.format(graph=graph_file) for w in command]
    ends_with_message(cli, *words, "--db", f"sqlite:///{below_a_file}", place=str(below_a_file))


def test_a_newer_schema(cli: Cli, tmp_path: Path) -> None:
    import sqlite3

    assert cli("db", "current").code == 0
    with sqlite3.connect(tmp_path / "plans.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    ends_with_message(cli, "plans", "list", place="9999")


def test_a_bad_settings_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    path.write_text("port = 'many'\n")
    monkeypatch.setenv("FUSEPLAN_CONFIG", str(path))
    ends_with_message(cli, "config", "show", place="port")


@pytest.mark.parametrize("key", ["zzzz", "abc", "0" * 64, "deadbeef", "x" * 5000])
def test_a_plan_that_is_not_there(cli: Cli, key: str) -> None:
    ends_with_message(cli, "plans", "show", key, place=key[:40])
    ends_with_message(cli, "plans", "evict", key, place=key[:40])


@pytest.mark.parametrize(
    ("tensors", "place"),
    [
        ({}, "'x' is missing"),
        ({"x": np.zeros(8, np.float32), "z": np.zeros(1, np.float32)}, "'z' is no input"),
        ({"x": np.zeros(9, np.float32)}, "'x' is float32[9], expected float32[8]"),
        ({"x": np.zeros(8, np.float64)}, "'x' is float64[8], expected float32[8]"),
    ],
)
def test_inputs_that_do_not_fit(
    cli: Cli, graph_file: Path, tmp_path: Path, tensors: dict[str, np.ndarray], place: str, planned: list[object]
) -> None:
    inputs = tmp_path / "in.safetensors"
    write_tensors(inputs, tensors)
    ends_with_message(cli, "run", graph_file, "--inputs", inputs, "--outputs", tmp_path / "out", place=place)
    assert planned == [], "inputs are checked before the search"


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}x"])
def test_inputs_that_are_no_safetensors(cli: Cli, graph_file: Path, tmp_path: Path, content: bytes) -> None:
    inputs = tmp_path / "in.safetensors"
    inputs.write_bytes(content)
    ends_with_message(cli, "run", graph_file, "--inputs", inputs, "--outputs", tmp_path / "out", place=f"{inputs}: ")


def test_an_unknown_dtype_in_a_file(cli: Cli, graph_file: Path, tmp_path: Path) -> None:
    header = json.dumps({"x": {"dtype": "U32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    inputs = tmp_path / "in.safetensors"
    inputs.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    ends_with_message(
        cli, "run", graph_file, "--inputs", inputs, "--outputs", tmp_path / "out", place="'x' has dtype U32"
    )


def test_a_server_address(cli: Cli, graph_file: Path) -> None:
    ends_with_message(cli, "tune", graph_file, "--server", "localhost:8080", place="--server")


def test_a_server_that_does_not_answer_is_a_failure(cli: Cli, graph_file: Path) -> None:
    ended = cli("tune", graph_file, "--server", "http://127.0.0.1:9")
    assert ended.code == 1
    assert "127.0.0.1:9" in ended.err
    assert "Traceback" not in ended.err


def test_an_address_that_is_not_loopback(cli: Cli) -> None:
    ends_with_message(cli, "serve", "--host", "0.0.0.0", place="0.0.0.0")


def test_continue_needs_time_and_no_server(cli: Cli, graph_file: Path) -> None:
    for more, words in (
        (("--seconds", "0"), "above 0, got 0"),
        (("--server", "http://localhost:1"), "without --server"),
    ):
        ended = cli("tune", graph_file, "--continue", *more)
        assert ended.code == 2 and "--continue: " in ended.err and words in ended.err
