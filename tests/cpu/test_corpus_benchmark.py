"""The benchmark over the corpus: a contest at a small size, the choice of cases, and what a summary says. No times."""

import ctypes
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: the extra `bench`")

from benchmarks.corpus import CASES  # noqa: E402
from benchmarks.corpus.case import Case  # noqa: E402
from benchmarks.corpus.pytorch import to_torch  # noqa: E402
from benchmarks.cpu import run as cpu  # noqa: E402
from benchmarks.cpu.contest import COMPILED, COPY, EAGER, MOVE, PLAN, Disagreement, Outcome, Place, hold, identity  # noqa: E402
from benchmarks.cpu.copying import KERNELS, copies, copy_library, moves  # noqa: E402
from benchmarks.cpu.report import Report, line  # noqa: E402
from benchmarks.cpu.summary import summarise  # noqa: E402
from benchmarks.machine import RESULTS  # noqa: E402
from benchmarks.plan_runner import PlanRunner, unpinned_pool  # noqa: E402
from benchmarks.racing import Contestant, Ratio, paired_ratio, race  # noqa: E402
from codegen.devices.detection import detect  # noqa: E402
from codegen.launch.cpu import CpuStep, bind_steps, entry_address  # noqa: E402
from codegen.sandbox.object_cache import ObjectCache  # noqa: E402
from codegen.toolchain.compiler import Binary  # noqa: E402
from codegen.workbench.workbench import Workbench  # noqa: E402
from fusion_ir.records import Plan  # noqa: E402
from tests.support.folding import sum_plan  # noqa: E402
from tests.support.kernels import sum_kernel  # noqa: E402
from tests.support.whole import in_turn  # noqa: E402
from tuning_db.store import Store  # noqa: E402


@pytest.fixture(scope="module")
def place(measured: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(measured, folder, dirs_exist_ok=True)
    cache = ObjectCache(folder / "cache")
    pool = unpinned_pool(2, cache)
    with Store(f"sqlite:///{folder / 'b.db'}") as store:
        yield Place(store, cache, pool, copy_library(cache), budget_s=0.5, rounds=5, seed=0)
    pool.close()


@pytest.fixture(autouse=True)
def compiler_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here compiles with PyTorch, so there is nothing to reset: importing what would do so takes seconds."""
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)


def small(name: str) -> Case:
    case = CASES[name]
    return replace(case, sizes=case.small[2])


@pytest.mark.turn("contests")
@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "dtype"), in_turn([("scale_bias_relu_nhwc", "f32"), ("product_k4", "bf16")], 1, "contests")
)
def test_contest(name: str, dtype: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)  # tens of seconds
    case = small(name)
    outcome = hold(case, "topic", dtype, place)
    assert list(outcome.times) == [PLAN, EAGER, COMPILED, COPY, MOVE]
    assert {len(t.samples_us) for t in outcome.times.values()} == {5}
    assert outcome.kernels
    assert outcome.better in (EAGER, COMPILED)
    assert all(0 < r.low <= r.median <= r.high for r in outcome.ratios.values())
    assert hold(case, "topic", dtype, place).cached  # the second time, the plan is there


@pytest.mark.turn("contests")
def test_contest_without_a_compiler_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("no backend\nand more")

    monkeypatch.setattr(torch, "compile", lambda function, **_: broken)
    outcome = hold(small("residual_add"), "topic", "f32", place)
    assert outcome.better == EAGER
    assert outcome.notes == ("compile: RuntimeError: no backend",)


def test_contest_notices_a_disagreement(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    case = replace(small("residual_add"), torch=lambda x, y: x - y)
    with pytest.raises(Disagreement, match="PyTorch says"):
        hold(case, "topic", "f32", place)
    outcome = cpu._hold(case, "topic", "f32", place)
    assert outcome.problem.startswith("Disagreement: out0")
    assert "failed" in line(outcome)


@pytest.mark.turn("contests")
def test_runner_checks_strides(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    case = small("scale_bias_relu_nhwc")
    body = place.store.plans.plan(hold(case, "topic", "f32", place).plan_key)
    assert body is not None
    runner = PlanRunner(Plan.model_validate_json(body), place.cache, place.pool)
    x, scale, bias = (to_torch(a) for a in case.instance("f32").sample(0))
    (out,) = runner(x, scale, bias)
    assert torch.equal(out, case.torch(x, scale, bias))
    with pytest.raises(ValueError, match=r"expected f32.* with strides"):
        runner(x.contiguous(), scale, bias)


def test_runner_computes_what_depends_on_constants_once(place: Place) -> None:
    with Workbench(detect("cpu", place.cache, ceilings=False), place.cache) as bench:
        (add,) = bench.compile_for_plans([sum_kernel(1000, "runner_add")])
        assert isinstance(add, Binary)
        _, plan = sum_plan(1000, bench.device, add, tasks=2)
    runner = PlanRunner(plan, place.cache, place.pool)
    x, w, other = torch.rand(1000), torch.rand(1000), torch.rand(1000)

    def expected(w: Any) -> Any:
        a = x + (w + w)
        return (a + x) + a

    before = w.clone()
    assert torch.equal(runner(x, w)[0], expected(before))
    w.numpy()[:] += 1  # nobody counts this
    assert torch.equal(runner(x, w)[0], expected(before))
    w.mul_(2)
    assert torch.equal(runner(x, w)[0], expected(w))
    assert torch.equal(runner(x, other)[0], expected(other))


def test_copies_move_their_bytes(place: Place) -> None:
    calls = copies(place.copying, place.pool, 1 << 20)
    assert tuple(calls) == KERNELS
    for call in calls.values():
        call()


@pytest.mark.parametrize(("read", "written"), [(1 << 16, 1 << 20), (1 << 20, 1 << 16), (0, 12345), (12345, 0)])
def test_what_is_moved_is_written(place: Place, read: int, written: int) -> None:
    for call in moves(place.copying, place.pool, read, written).values():
        call()
    source, target = np.zeros(read + 64, np.uint8), np.full(written + 64, 7, np.uint8)
    sizes = np.array([read, written, 4096], np.int64)
    table = np.array([[source.ctypes.data, -(-target.ctypes.data // 64) * 64, sizes.ctypes.data]], np.uint64)
    entry = entry_address(ctypes.CDLL(str(place.copying)), "ceiling_move")
    place.pool.run(bind_steps([CpuStep(entry, (0, 1, 2), place.pool.threads)], table))
    assert written - 128 * place.pool.threads < (target != 7).sum() <= written


def test_chosen_entries() -> None:
    assert len(cpu.entries()) == sum(len(case.bench_dtypes) for case in CASES.values())
    assert [(case.name, dtype) for _, case, dtype in cpu.entries("softmax*", "bf16")] == [
        ("softmax", "bf16"),
        ("softmax_backward", "bf16"),
    ]
    assert cpu.entries("nothing") == []


def test_list_and_unknown_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["cpu", "--list", "--case", "product_k?"])
    assert cpu.main() == 0
    assert [text.split()[0] for text in capsys.readouterr().out.splitlines()[::2]] == [
        f"product_k{k}" for k in (1, 2, 4, 8)
    ]
    monkeypatch.setattr(sys, "argv", ["cpu", "--case", "nothing"])
    assert cpu.main() == 2


def test_a_part_of_the_corpus_does_not_replace_the_results() -> None:
    assert cpu.destination(None, cpu.entries("softmax")) is None
    assert cpu.destination(Path("here"), cpu.entries("softmax")) == Path("here")
    assert cpu.destination(None, cpu.entries()) == RESULTS / "cpu_corpus"


def test_race_takes_every_side_once_a_round() -> None:
    called: list[str] = []
    times = race({name: (lambda name=name: called.append(name)) for name in "ab"}, 6, 0, warm_up=1)
    assert [len(t.samples_us) for t in times.values()] == [6, 6]
    assert called.count("a") == called.count("b") == 2 * 7
    assert all(called[i] == called[i + 1] for i in range(0, len(called), 2))  # one to wake it, one that is timed
    assert len(race({"a": lambda: None}, 9, 0, seconds=0.0)["a"].samples_us) == 5


def test_paired_ratio_is_that_of_rounds() -> None:
    ratio = paired_ratio(Contestant("a", (2.0, 20.0, 200.0)), Contestant("b", (1.0, 10.0, 100.0)))
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 2.0)


def outcome(name: str, dtype: str, speedup: float, floor: float, kind: str = "memory", problem: str = "") -> Outcome:
    given = {**identity(CASES["softmax"], "topic", dtype), "name": name, "kind": kind}
    if problem:
        return Outcome(**given, problem=problem)
    plan = 100.0
    us = {PLAN: plan, EAGER: plan * speedup * 2, COMPILED: plan * speedup, COPY: plan / floor * 2, MOVE: plan / floor}
    ratios = {
        EAGER: Ratio(EAGER, PLAN, speedup * 2, speedup, speedup * 3),
        COMPILED: Ratio(COMPILED, PLAN, speedup, speedup, speedup),
        COPY: Ratio(PLAN, COPY, floor / 2, floor / 2, floor / 2),
        MOVE: Ratio(PLAN, MOVE, floor, floor, floor),
    }
    times = {side: Contestant(side, (t,)) for side, t in us.items()}
    return Outcome(**given, times=times, ratios=ratios, bound_us=50.0, kernels=("pointwise{lanes=8}", "naive{}"))


def test_summary_and_page(tmp_path: Path) -> None:
    outcomes = (
        outcome("fast", "f32", 4.0, 1.1),
        outcome("slow", "bf16", 0.9, 1.6),
        outcome("product", "f32", 1.0, 9.0, "matmul"),
        outcome("product", "f16", 0.5, 9.0, "matmul"),
        outcome("broken", "f32", 1.0, 1.0, problem="NoPlan: why"),
    )
    summary = summarise(outcomes)
    memory = summary.groups["memory-bound"]
    assert memory.geometric_mean == pytest.approx((4.0 * 0.9) ** 0.5)
    assert (memory.slowest, memory.slowest_ratio) == ("slow bf16", 0.9)
    assert [summary.groups[g].count for g in ("matmul, f32", "matmul, 16 bits")] == [1, 1]
    assert (summary.near_floor, summary.near_copy, summary.floors_known, summary.failed) == (1, 2, 2, 1)
    assert summary.slower == ("slow bf16 (0.90)", "product f16 (0.50)")
    assert summary.far_from_floor == ("slow bf16 (1.60)",)
    data, page = Report({"device": "a machine"}, ("a note",), outcomes).write(tmp_path / "out" / "corpus")
    assert "| fast | f32 | 100 | 800 | 400 | **4.00** | 4.00 to 4.00 | 1.10 | 0.55 | 2.00 | 2: pointwise, naive |" in (
        page.read_text()
    )
    assert "- broken f32: NoPlan: why" in page.read_text()
    assert json.loads(data.read_text())["outcomes"][0]["times"]["plan"]["samples_us"] == [100.0]
    assert Report({"device": "a machine"}, ()).markdown().startswith("# ")
