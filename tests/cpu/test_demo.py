"""The demo, and the command line asking a running server: real processes, a real compiler, loopback only."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli import main
from tests.support.service_process import ROOT, server

EXAMPLE = ROOT / "examples" / "momentum_step.json"


def demo(temporary: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The demo's process, with a place of its own for temporary folders."""
    command, env = [sys.executable, "-m", "service.demo", *arguments], {**os.environ, "TMPDIR": str(temporary)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, cwd=ROOT, check=False)


@pytest.mark.turn("clients")
def test_the_demo_shows_plan_hit_and_page(tmp_path: Path) -> None:
    ended = demo(tmp_path, "--graph", str(EXAMPLE), "--seconds", "2")
    assert ended.returncode == 0, ended.stderr
    for words in (
        "First answer, a miss",
        "measured",
        "this plan",
        "one kernel per op",
        "copying its bytes",
        "lower bound",
    ):
        assert words in ended.stdout, words
    assert re.search(r"Second answer, a hit: [0-9.]+ ms over HTTP", ended.stdout)
    assert len(set(re.findall(r"/plans/([0-9a-f]{64})$", ended.stdout, re.MULTILINE))) == 1
    assert len(re.findall(r"/plans/[0-9a-f]{64}$", ended.stdout, re.MULTILINE)) == 2, "an address is never broken"
    assert re.search(r"^  \S*fuseplan serve --db sqlite:///\S+ --cache \S+$", ended.stdout, re.MULTILINE)
    assert ended.stderr == ""
    [kept] = tmp_path.iterdir()
    assert f"sqlite:///{kept}/" in ended.stdout


def test_the_demo_names_what_it_cannot_read(tmp_path: Path) -> None:
    ended = demo(tmp_path, "--graph", str(tmp_path / "none.json"))
    assert ended.returncode == 2
    assert "none.json: No such file or directory" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.turn("clients")
def test_tune_on_a_server(known_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server(known_machine, db=f"sqlite:///{known_machine / 'plans.db'}") as (_, port):
        address = f"http://127.0.0.1:{port}"
        answers: list[dict[str, object]] = []
        for _ in range(2):
            capsys.readouterr()
            assert main(["tune", str(EXAMPLE), "--server", address, "--seconds", "1", "--json"]) == 0
            answers.append(json.loads(capsys.readouterr().out))
        assert [a["cache"] for a in answers] == ["miss", "hit"]
        assert answers[0]["plan_key"] == answers[1]["plan_key"]
        assert main(["tune", str(EXAMPLE), "--server", address, "--seconds", "1"]) == 0
        assert f"{address}/plans/{answers[0]['plan_key']}" in capsys.readouterr().out, "an address is never broken"
        assert main(["tune", str(EXAMPLE), "--server", address, "--target", "cuda:9"]) == 2
        assert "CUDA" in capsys.readouterr().err
