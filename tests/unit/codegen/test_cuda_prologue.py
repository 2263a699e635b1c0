"""Prologues in the timing child of CUDA devices, on memory of the host: what is kept, and what a second run shows."""

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

from codegen.child import cuda_bench, cuda_candidate, cuda_checks, cuda_memory
from codegen.child.case import make_case
from codegen.child.cuda_bench import Inspector, Turns
from codegen.child.cuda_candidate import CudaCandidate
from codegen.child.cuda_checks import CudaCase
from codegen.child.prologue_cache import PrologueCache
from codegen.toolchain.compiler import Binary
from fusion_ir.records import Plan
from tests.support.devices import CUDA_DEVICE
from tests.support.folding import folding_wrongly, sharing, sum_plan
from tests.unit.codegen.test_cuda_checks import FakeCupy, FakeKernels

N = 500
GRAPH, PLAN = sum_plan(N, CUDA_DEVICE, Binary("", "add", ""))


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    monkeypatch.setattr(fake.cuda.Device, "synchronize", lambda self: None, raising=False)
    for module in (cuda_memory, cuda_checks, cuda_bench, cuda_candidate):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    monkeypatch.setattr(cuda_checks, "kernels", lambda number: FakeKernels())
    monkeypatch.setattr(cuda_checks, "grid", lambda number: (1,))
    return fake


class Quiet:
    def timing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def beat(self, index: int, seconds: float) -> None:
        pass


def array(address: Any) -> np.ndarray:
    raw: Any = (ctypes.c_float * N).from_address(int(address))
    return np.frombuffer(raw, np.float32)


def add(grid: object, block: object, args: Sequence[Any], shared_mem: int) -> None:
    one, other, out = map(array, args)
    out[:] = one + other


def candidate(plan: Plan) -> CudaCandidate:
    """The plan as a candidate like one read from a program, with NumPy's addition for every kernel."""
    buffers, kept = [b.bytes for b in plan.buffers], [i for i, b in enumerate(plan.buffers) if b.kept]
    text = {"steps": [], "once": len(plan.prologue), "buffers": buffers, "kept": kept, "aliases": []}
    made = CudaCandidate(text, 2, 1)
    first = {"in": 0, "out": 2, "tmp": 3}
    step = {"grid": (1, 1, 1), "block": (1, 1, 1), "shared_bytes": 0}
    made._steps = [(add, step, [first[r.place] + r.index for r in s.args], []) for s in plan.steps]
    return made


def verdict(plan: Plan) -> str:
    message = {"seconds": 1.0, "kernel_seconds": 1.0}
    channel: Any = Quiet()
    return (
        Inspector(channel, message, Turns(None, channel))
        .check(CudaCase(make_case(GRAPH, 0)), candidate(plan), 0)
        .problem
    )


def test_checks() -> None:
    assert verdict(PLAN) == ""
    assert verdict(folding_wrongly(PLAN)) != ""
    assert verdict(sharing(PLAN)) != "", "right at the first run, wrong at the second"
    every_time = [s.model_copy(update={"prologue": False}) for s in sharing(PLAN).steps]
    assert verdict(PLAN.model_copy(update={"steps": tuple(every_time)})) == ""


def test_what_is_kept_lies_elsewhere() -> None:
    made = candidate(PLAN)
    assert made.temporaries == (0, 4 * N, 4 * N)
    assert made.table([1, 2, 3], [10, 20, 30, 40], [99]) == [1, 2, 3, 99, 20, 30]
    x, w, out, y, *others = (np.full(N, value, np.float32) for value in (1, 2, 0, 0, 0, 0))
    table = [a.ctypes.data for a in (x, w, out, y, *others)]
    made.launch(table, prologue=True)
    assert (y == 4).all()
    assert not out.any()
    w[:] = 7
    made.launch(table)
    assert (y == 4).all()
    assert (out == 11).all()


def test_results_are_found_for_the_same_versions_of_the_same_plan() -> None:
    kept = PrologueCache(most=2)
    assert kept.find("a", {"1": "x"}) is None
    kept.keep("a", {"1": "x"}, "one")
    kept.keep("b", {"1": "x"}, "two")
    assert (kept.find("a", {"1": "x"}), kept.find("b", {"1": "x"})) == ("one", "two")
    assert kept.find("a", {"1": "y"}) is None
    kept.keep("a", {"1": "y"}, "three")
    assert kept.find("a", {"1": "x"}) is None, "the versions before are gone"
    kept.find("b", {"1": "x"})
    kept.keep("c", {}, "four")
    assert (kept.find("a", {"1": "y"}), kept.find("b", {"1": "x"}), kept.find("c", {})) == (None, "two", "four")
