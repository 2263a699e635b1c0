"""`make bench-gpu`, tried out on the CPU: what is measured, what is written, and that a wrong plan is noticed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.gpu.agreement import Disagreement, agree  # noqa: E402
from benchmarks.gpu.ahead import prepared  # noqa: E402
from benchmarks.gpu.copies import copied_floats, with_copies  # noqa: E402
from benchmarks.gpu.entries import DEPTHS, entries  # noqa: E402
from benchmarks.gpu.row import Row  # noqa: E402
from benchmarks.gpu.run import print_again  # noqa: E402  needs PyTorch
from benchmarks.gpu.stage import placed, rounds  # noqa: E402
from benchmarks.gpu.summary import figures, page, summary  # noqa: E402
from benchmarks.gpu.workers import Done  # noqa: E402
from benchmarks.machine import RESULTS  # noqa: E402
from benchmarks.racing import Contestant, Ratio  # noqa: E402
from tests.support.whole import WHOLE  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)


@pytest.mark.soak
@pytest.mark.skipif(not WHOLE, reason="takes most of a minute: `make soak` runs it")
def test_a_dry_run_compares_every_side_and_writes_all(tmp_path: Path) -> None:
    stem = tmp_path / "dry"
    options = ("--dry", "--jobs", "2", "--budget", "0.3", "--race", "0.05", "--out", str(stem))
    ended = run("--case", "linear_gelu_residual_k[2]56 bf16", *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "left out for time: 0" in ended.stdout
    found = json.loads(stem.with_suffix(".json").read_text())
    assert found["dry"] is True
    assert {"device", "driver", "torch", "clock", "commit"} <= found["facts"].keys()
    (row,) = found["rows"]
    assert row["problem"] == ""
    assert {"plan", "eager", "compile", "product alone", "copy"} <= row["times"].keys()
    assert row["ratios"].keys() == row["times"].keys() - {"plan"}
    assert row["moves"] is False
    assert not [note for note in row["notes"] if "compiled anew" in note], "what the worker compiled was not found"
    assert row["plans_s"] > 0
    assert row["peers_s"] > 0
    assert found["summary"]["better"]["count"] == 1
    assert "linear_gelu_residual_k256 bf16" in stem.with_suffix(".md").read_text()
    assert all(len(side["samples_us"]) >= 5 for side in row["times"].values())


@pytest.mark.turn("contests")
def test_what_does_not_fit_is_listed() -> None:
    ended = run("--dry", "--no-compile", "--case", "softmax bf16", "--minutes", "0")
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
    right = x @ x
    agree([right], lambda t: (t @ t,), [x])
    wrong = right.clone()
    wrong[3, 4] *= 1.001
    with pytest.raises(Disagreement, match="out0 is up to"):
        agree([wrong], lambda t: (t @ t,), [x])
    with pytest.raises(Disagreement, match="out0"):
        agree([torch.full_like(right, torch.nan)], lambda t: (t @ t,), [x])


def test_rounds_are_whole_and_in_random_order() -> None:
    seen: list[str] = []
    made = rounds(["a", "b", "c"], seen.append, lambda: None, 0.0, 1)
    assert made == 5
    in_rounds = [tuple(seen[i : i + 3]) for i in range(0, len(seen), 3)]
    assert all(set(r) == {"a", "b", "c"} for r in in_rounds)
    assert len(set(in_rounds)) > 1


def test_losses_are_named() -> None:
    lost = Row(
        "slow f32", "norms", {}, 8, True,
        times={"copy": Contestant("copy", (1.0,)), "plan": Contestant("plan", (2.0,))},
        ratios={
            "eager": Ratio("eager", "plan", 0.9, 0.8, 0.95),
            "compile": Ratio("compile", "plan", 2.0, 1.9, 2.1),
            "max-autotune": Ratio("max-autotune", "plan", 0.5, 0.4, 0.6),
            "unfused": Ratio("plan", "unfused", 1.02, 1.01, 1.03),
            "copy": Ratio("plan", "copy", 2.0, 1.9, 2.1),
        },
    )  # fmt: skip
    won = Row("fast f32", "norms", {}, ratios={"compile": Ratio("compile", "plan", 2.0, 1.9, 2.1)})
    lost, won = with_copies([lost, won])
    found = figures([lost, won, Row("bad f32", "t", {}, problem="crashed")], ["late f32"])
    assert (found.better.count, found.compiled.count) == (2, 2)
    assert found.compiled.ratio == pytest.approx(1.0)
    assert found.at_limits.ratio == pytest.approx((2 * 0.5 / 0.5) ** 0.5), "the slow one twice as fast"
    assert found.below_copy_aim == {"slow f32": 0.5}
    text = summary(found)
    assert "slower than the best of PyTorch: slow f32 0.50 (max-autotune)" in text
    assert "slower than our own unfused plan by more than 1%, of 1 raced: slow f32 1.02 (unfused)" in text
    assert "failed: bad f32: crashed" in text
    assert "left out for time: 1: late f32" in text
    assert "| slow f32 |" in page("Title", {}, [lost], found)


def test_limits_are_those_of_copies_and_products() -> None:
    def share(moves: bool, **over: float) -> float:
        ratios = {side.replace("_", " "): Ratio("plan", side, r, r, r) for side, r in over.items()}
        times = {"plan": Contestant("plan", (over["copy"],))}
        return Row("r", "t", {}, copied_us=1.0, moves=moves, times=times, ratios=ratios).share_of_limit

    assert share(True, copy=1.25) == pytest.approx(0.8)
    assert share(True, copy=0.7) == 1.0, "faster than a copy that reads what this need not"
    assert share(False, copy=5.0, product_alone=2.0) == pytest.approx(0.5)
    assert share(False, copy=5.0) == 1.0, "several products: nothing is known"


def copying(name: str, bytes_: int, us: float) -> Row:
    return Row(name, "t", {}, bytes_, times={"plan": Contestant("plan", (50.0,)), "copy": Contestant("copy", (us,))})


def test_plans_are_measured_against_the_fastest_copy_of_about_their_size() -> None:
    """A copy of halves that end within a page took 1.36x to 1.60x as long as others of its size."""
    rows = [copying("odd", 1000, 30.0), copying("even", 1024, 20.48), copying("large", 2048, 70.0), Row("bad", "t", {})]
    odd, even, large, bad = with_copies(rows)
    assert odd.copied_us == pytest.approx(20.0)
    assert odd.share_of_copy == pytest.approx(0.4)
    assert (even.copied_us, large.copied_us, bad.copied_us) == (20.48, 70.0, None), "of other sizes nothing is known"


@pytest.mark.parametrize("bytes_", [0, 1, 4096, 33562624, 100663296, 12345678, 8 * 1024 * 1000 + 4096])
def test_copies_are_of_whole_pages(bytes_: int) -> None:
    floats = copied_floats(bytes_)
    assert floats % 1024 == 0 and floats > 0
    assert abs(8 * floats - bytes_) <= 8192


@pytest.mark.parametrize("stem", ["gpu", "gpu_f32"])
def test_tables_are_those_of_their_data(stem: str, tmp_path: Path) -> None:
    """The committed result files are those that today's code prints from the committed samples."""
    for end in (".json", ".md"):
        (tmp_path / f"{stem}{end}").write_text((RESULTS / f"{stem}{end}").read_text())
    print_again(tmp_path / stem)
    for end in (".json", ".md"):
        assert (tmp_path / f"{stem}{end}").read_text() == (RESULTS / f"{stem}{end}").read_text(), end


def test_tensors_keep_their_strides() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    for tensor in (base.t(), base[:, :4], base[:1].expand(3, 6), base[:0]):
        there = placed(tensor, "cpu")
        assert (there.stride(), there.tolist()) == (tensor.stride(), tensor.tolist())


class Prompt:
    """A crew that is through with two tasks whenever it is asked, those of "slow" last."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def submit(self, task: Any) -> None:
        self.tasks.append(task)

    def outcomes(self, seconds: float) -> list[Done]:
        done = sorted(self.tasks, key=lambda t: t.entry == "slow")[:2]
        self.tasks = [t for t in self.tasks if t not in done]
        return [Done(t) for t in done]


def test_an_entry_that_takes_long_keeps_nobody_waiting() -> None:
    crew: Any = Prompt()
    assert [name for name, _ in prepared(["slow", "b", "c"], crew, 2, lambda: True)] == ["b", "slow", "c"]


def test_no_entry_begins_when_time_is_over() -> None:
    answers, crew = iter([True, True, False]), Prompt()
    there: Any = crew
    assert [name for name, _ in prepared(["a", "b", "c"], there, 3, lambda: next(answers))] == ["a"]
    assert not [t for t in crew.tasks if t.entry == "a"]
