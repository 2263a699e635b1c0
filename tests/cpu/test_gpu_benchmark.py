"""`make bench-gpu`, tried out on the CPU: what is measured, what is written, and that a wrong plan is noticed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.gpu import Disagreement, Row, agree, summary  # noqa: E402  needs PyTorch
from benchmarks.gpu_entries import DEPTHS, entries  # noqa: E402
from benchmarks.gpu_stage import rounds  # noqa: E402
from benchmarks.racing import Ratio  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)


def test_a_dry_run_compares_every_side_and_writes_all(tmp_path: Path) -> None:
    stem = tmp_path / "dry"
    options = ("--dry", "--no-compile", "--budget", "0.3", "--race", "0.05", "--out", str(stem))
    ended = run("--case", "linear_gelu_residual_k[2]56 bf16", *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "left out for time: 0" in ended.stdout
    found = json.loads(stem.with_suffix(".json").read_text())
    assert found["dry"] is True
    assert {"device", "driver", "torch", "clock", "commit"} <= found["facts"].keys()
    (row,) = found["rows"]
    assert row["problem"] == ""
    assert row["times"].keys() == {"plan", "eager", "product alone", "copy"}
    assert row["ratios"].keys() == {"eager", "product alone", "copy"}
    assert all(len(side["samples_us"]) >= 5 for side in row["times"].values())


def test_what_does_not_fit_is_listed() -> None:
    ended = run("--dry", "--case", "softmax bf16", "--minutes", "0")
    assert ended.returncode == 0, ended.stderr
    assert "left out for time: 1: softmax bf16" in ended.stdout


def test_entries_begin_with_what_matters_most() -> None:
    names = [e.name for e in entries()]
    assert len(names) == len(set(names))
    assert names[: 2 + len(DEPTHS)] == [
        "product_4096 bf16", "product_8192 bf16", *(f"linear_gelu_residual_k{k} bf16" for k in DEPTHS),
    ]  # fmt: skip
    first = list(entries())[2 + len(DEPTHS) : 2 + len(DEPTHS) + 10]
    assert len({e.topic for e in first}) == 10, "a case of every topic before the second of any"


def test_a_wrong_plan_is_noticed() -> None:
    x = torch.rand(64, 64) + 1
    right = (x @ x).numpy()
    agree([right], lambda t: (t @ t,), [x])
    wrong = right.copy()
    wrong[3, 4] *= 1.001
    with pytest.raises(Disagreement, match="out0 is up to"):
        agree([wrong], lambda t: (t @ t,), [x])
    with pytest.raises(Disagreement, match="out0"):
        agree([np.full_like(right, np.nan)], lambda t: (t @ t,), [x])


def test_rounds_are_whole_and_in_random_order() -> None:
    seen: list[str] = []
    made = rounds(["a", "b", "c"], seen.append, lambda: None, 0.0, 1)
    assert made == 5
    in_rounds = [tuple(seen[i : i + 3]) for i in range(0, len(seen), 3)]
    assert all(set(r) == {"a", "b", "c"} for r in in_rounds)
    assert len(set(in_rounds)) > 1


def test_losses_are_named() -> None:
    ratio = Ratio("eager", "plan", 0.9, 0.8, 0.95)
    lost, failed = Row("slow f32", "t", {}, ratios={"eager": ratio}), Row("bad f32", "t", {}, problem="crashed")
    text = summary([lost, failed], ["late f32"])
    assert "slower than PyTorch: slow f32 0.90 (eager)" in text
    assert "failed: bad f32: crashed" in text
    assert "left out for time: 1: late f32" in text
