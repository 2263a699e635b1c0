"""The prologue of a plan, which computes from constants alone, on a stand-in for CuPy: when it runs, on which stream,
what waits for it, and what makes it run again."""

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
from fuseplan_client import CudaPlan, GuardError, PrologueError, load
from fuseplan_client.cuda import launches, prologue, runtime
from fuseplan_client.plan import PlanError, read_plan

from tests.client.test_runtime import FIRST, OUT, SECOND, SPEC, A, B, body, bundled, ref, step, tensors
from tests.support.devices import CUDA_DEVICE
from tests.support.fake_cupy import DEFAULT_STREAM, FakeArray, FakeCupy
from tests.unit.scheduler.test_prologue import chain_plan

DEVICE = ("synchronize", "device")
WEIGHT = {**SPEC, "constant": "w@1"}


def folding(**changes: Any) -> dict[str, Any]:
    """in1 -> tmp0, once; in0, tmp0 -> tmp1 -> out0."""
    steps = [
        step(FIRST, "k_fold", ["in1"], ["tmp0"], prologue=True),
        step(SECOND, "k_second", ["in0", "tmp0"], ["tmp1"]),
        step(SECOND, "k_third", ["tmp1"], ["out0"]),
    ]
    buffers = [{"bytes": 1000, "kept": True}, {"bytes": 300}]
    return body(**{"inputs": [SPEC, WEIGHT], "steps": steps, "buffers": buffers, **changes})


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy(arity={"k_fold": 2, "k_second": 3, "k_third": 2})
    for module in (launches, runtime, prologue):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    return fake


def loaded(folder: Path, **changes: Any) -> CudaPlan:
    return load(bundled(folder / "bundle", folding(**changes)))


def queued(cupy: FakeCupy) -> list[str]:
    """The names of the events in CuPy's log, which is emptied: kernels by their entries, other events in words."""
    names = [e.entry if hasattr(e, "entry") else " ".join(map(str, e[:2])) for e in cupy.log]
    cupy.log.clear()
    return names


FOLDED = ["synchronize device", "k_fold", f"synchronize {DEFAULT_STREAM}"]
REST = ["k_second", "k_third"]
GRAPH = [f"graph {DEFAULT_STREAM}"]


def test_once_before_the_first_call_and_outside_of_the_graph(cupy: FakeCupy, tmp_path: Path) -> None:
    plan, (x, w), outs = loaded(tmp_path), tensors(A, B), tensors(OUT)
    plan.run([x, w], outs)
    (kept, kept_bytes), (scratch, scratch_bytes) = cupy.allocated
    assert (kept_bytes, scratch_bytes) == (1024, 512), "what is kept is no part of the streams' temporaries"
    assert [k.args for k in cupy.log if hasattr(k, "args")] == [(B, kept), (A, kept, scratch), (scratch, OUT)]
    assert queued(cupy) == FOLDED + REST
    plan.run([x, w], outs)
    assert [k.entry for k in cupy.log[-1][2]] == REST
    assert queued(cupy) == GRAPH
    plan.run([*tensors(A + 8192), w], outs)
    assert queued(cupy) == REST, "another activation is nothing new to the prologue"
    assert plan.prologue_runs == 1


def test_another_pointer_or_version_runs_it_again(cupy: FakeCupy, tmp_path: Path) -> None:
    plan, (x, w, other), outs = loaded(tmp_path), tensors(A, B, B + 8192), tensors(OUT)
    for _ in range(2):
        plan.run([x, w], outs)
    queued(cupy)
    plan.run([x, other], outs)
    assert queued(cupy) == FOLDED + REST
    plan.run([x, other], outs)
    plan.run([x, other], outs, versions={1: "w@2"})
    plan.run([x, other], outs, versions={1: "w@2"})
    assert queued(cupy) == GRAPH + FOLDED + GRAPH + GRAPH, "graphs read what is kept where it was"
    plan.constants_changed()
    plan.run([x, other], outs, versions={1: "w@2"})
    assert queued(cupy) == FOLDED + GRAPH
    assert plan.prologue_runs == 4


def test_writes_in_place_that_pytorch_counts(cupy: FakeCupy, tmp_path: Path) -> None:
    class Counting(FakeArray):
        _version = 0

    class Inference(FakeArray):
        @property
        def _version(self) -> int:
            raise RuntimeError("Inference tensors do not track version counter.")

    plan, (x,), outs = loaded(tmp_path), tensors(A), tensors(OUT)
    w = Counting(B, (4, 8), "<f4")
    plan.run([x, w], outs)
    plan.run([x, w], outs)
    assert plan.prologue_runs == 1
    w._version = 1
    plan.run([x, w], outs)
    assert plan.prologue_runs == 2
    for _ in range(2):
        plan.run([x, Inference(B, (4, 8), "<f4")], outs)
    assert plan.prologue_runs == 3


def test_constants_are_held(cupy: FakeCupy, tmp_path: Path) -> None:
    """A plan keeps its constants alive: freed memory could become another tensor's, at an address that looks known."""
    plan, (x, w), outs = loaded(tmp_path), tensors(A, B), tensors(OUT)
    first, second = weakref.ref(x), weakref.ref(w)
    plan.run([x, w], outs)
    del x, w
    assert first() is None
    assert second() is not None
    plan.run(tensors(A, B + 8192), outs)
    assert second() is None


def test_all_streams_read_the_same(cupy: FakeCupy, tmp_path: Path) -> None:
    plan, given, outs = loaded(tmp_path), tensors(A, B), tensors(OUT)
    plan.run(given, outs)
    plan.run(given, outs, stream=55)
    assert plan.prologue_runs == 1
    second = [k for k in cupy.log if getattr(k, "entry", "") == "k_second"]
    assert second[0].args[1] == second[1].args[1]
    assert second[0].args[2] != second[1].args[2]


def test_what_is_captured_by_somebody_else_has_to_be_prepared(cupy: FakeCupy, tmp_path: Path) -> None:
    plan, given, outs = loaded(tmp_path), tensors(A, B), tensors(OUT)
    stream = cupy.stream(55)
    stream.begin_capture()
    with pytest.raises(PrologueError, match="in1: expected constants that the plan was prepared with"):
        plan.launch(given, outs, stream=55)
    assert stream.captured == []
    stream.captured = None
    plan.prepare(given, stream=55)
    assert queued(cupy) == ["synchronize device", "k_fold", "synchronize 55"]
    stream.begin_capture()
    plan.launch(given, outs, stream=55)
    assert [k.entry for k in stream.end_capture().launches] == REST
    assert queued(cupy) == []


def test_a_prologue_that_failed_runs_again(cupy: FakeCupy, tmp_path: Path) -> None:
    plan, given, outs = loaded(tmp_path), tensors(A, B), tensors(OUT)
    launch = cupy.cuda.driver.launchKernel

    def broken(*args: int) -> None:
        raise RuntimeError("out of resources")

    cupy.cuda.driver.launchKernel = broken
    with pytest.raises(RuntimeError, match="out of resources"):
        plan.run(given, outs)
    cupy.cuda.driver.launchKernel = launch
    queued(cupy)
    plan.run(given, outs)
    assert queued(cupy) == FOLDED + REST


def test_versions_are_of_constants(cupy: FakeCupy, tmp_path: Path) -> None:
    plan = loaded(tmp_path)
    for i in (0, 2, -1):
        with pytest.raises(GuardError, match=f"in{i} is no constant of the plan"):
            plan.run(tensors(A, B), tensors(OUT), versions={i: "w@1"})
    assert not cupy.log


def test_plans_without_a_prologue_wait_for_nobody(cupy: FakeCupy, tmp_path: Path) -> None:
    plan = loaded(tmp_path, steps=[{**s, "prologue": False} for s in folding()["steps"]], buffers=[{"bytes": 1000}] * 2)
    plan.run(tensors(A, B), tensors(OUT), versions={1: "w@2"})
    plan.run(tensors(A, B + 8192), tensors(OUT), versions={1: "w@3"})
    assert queued(cupy) == ["k_fold", *REST] * 2
    assert (len(cupy.allocated), plan.prologue_runs) == (1, 0)


STEPS = folding()["steps"]


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("step 1 is of the prologue, behind one that is not", {"steps": [*STEPS[:2], {**STEPS[2], "prologue": True}]}),
        ("reads in1, which is no constant", {"inputs": [SPEC, SPEC]}),
        ("is of the prologue and writes out0", {"steps": [{**STEPS[0], "writes": [ref("out0")]}, *STEPS[1:]]}),
        ("step 1 writes tmp0, which is kept", {"steps": [STEPS[0], {**STEPS[1], "writes": [ref("tmp0")]}, STEPS[2]]}),
        ("step 2 writes tmp0, which is kept", {"steps": [*STEPS[:2], {**STEPS[2], "scratch": ref("tmp0")}]}),
        ("tmp0 is kept, and no step of the", {"steps": STEPS[2:]}),
        ("step 0 writes tmp0, which is kept", {"steps": [{**STEPS[0], "prologue": False}, *STEPS[1:]]}),
    ],
)  # fmt: skip
def test_prologues_that_are_none(message: str, changes: dict[str, Any], cupy: FakeCupy, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as error:
        loaded(tmp_path, **changes)
    assert message in str(error.value)


def test_plans_that_fuseplan_writes() -> None:
    written = chain_plan().model_copy(update={"device": CUDA_DEVICE})
    read = read_plan(json.loads(written.model_dump_json()))
    assert (read.once, read.constants) == (len(written.prologue), written.constants) == (1, (1, 2))
    assert [(b.bytes, b.kept) for b in read.buffers] == [(b.bytes, b.kept) for b in written.buffers]
    assert [t.constant for t in read.inputs] == [None, "a@1", "b@1"]
