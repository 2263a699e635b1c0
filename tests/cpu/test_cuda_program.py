"""Plans for CUDA devices in a program that has tensors there: what is launched, with which arguments, in which context;
behind a stand-in for the driver whose kernels are our own."""

import ctypes
import gc
import hashlib
import json
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
from fuseplan_client.cpu.executor import Executor, process_executor
from fuseplan_client.cpu.shared_objects import ObjectError
from fuseplan_client.cuda import library
from fuseplan_client.cuda import program as program_module
from fuseplan_client.cuda.driver import DriverError
from fuseplan_client.cuda.launches import DeviceError
from fuseplan_client.cuda.library import LibraryError
from fuseplan_client.cuda.program import CapturedError, CudaProgram
from fuseplan_client.plan import read_plan

from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Failure
from codegen.toolchain.cpu import find_compiler
from service.planning.executor import executor
from testing.stub_cuda import FLAGS, instead_of_cuda, stub_driver
from tests.support.fake_cublaslt import FakeBindings

# Each notes down what it was launched with where its first argument leads, which is 16 numbers; the last one adds.
KERNELS = """
#include "emulator.h"
typedef emulator::Launch Launch;
static uint64_t number(Launch* l, int i) { return *(uint64_t*)l->args[i]; }
static int noted(Launch* l, int arguments, int maps) {
  uint64_t* to = (uint64_t*)number(l, 0);
  uint64_t values[16] = {l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->shared_bytes};
  for (int i = 1; i < arguments; ++i) values[6 + i] = number(l, i);
  for (int i = 0; i < 7 && maps; ++i) values[8 + i] = ((uint64_t*)l->args[arguments])[i];
  for (int i = 0; i < 16; ++i) to[i] = values[i];
  return 0;
}
extern "C" int emulate_two(Launch* l) { return noted(l, 2, 0); }
extern "C" int emulate_three(Launch* l) { return noted(l, 3, 0); }
extern "C" int emulate_mapped(Launch* l) { return noted(l, 2, 1); }
extern "C" int emulate_added(Launch* l) { *(uint64_t*)number(l, 1) += *(uint64_t*)number(l, 0); return 0; }
"""
SPEC = {"shape": [16], "dtype": "i64", "strides": [1], "alignment_bytes": 16}
WEIGHT = {**SPEC, "constant": "w@1"}
STREAM = 77


class Around:
    """A program with memory of its own, which is kept."""

    number = 0

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.is_captured, self.marks = False, 0
        self.waits: list[int] = []

    def allocate(self, size: int) -> Any:
        class Memory:
            array = np.zeros(size, np.uint8)

            def data_ptr(self) -> int:
                return int(self.array.ctypes.data)

        self.made.append(Memory())
        return self.made[-1]

    def is_capturing(self) -> bool:
        return self.is_captured

    def mark(self) -> Any:
        assert not self.is_captured
        self.marks += 1
        return self.marks

    def wait_for(self, mark: Any, memory: Any) -> None:
        assert not self.is_captured
        assert memory.data_ptr()
        self.waits.append(mark)

    def on_device(self) -> AbstractContextManager[Any]:
        return nullcontext()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ObjectCache:
    return ObjectCache(tmp_path_factory.mktemp("objects") / "cache")


@pytest.fixture(scope="module")
def kernels(cache: ObjectCache) -> bytes:
    compiler = find_compiler(cache=cache)
    with compiler.slot() as slot:
        built = compiler.build(slot, KERNELS, FLAGS, 120.0)
    assert not isinstance(built, Failure), built.detail
    return built[0]


@pytest.fixture(scope="module")
def stub(cache: ObjectCache) -> Iterator[ctypes.CDLL]:
    made = stub_driver(cache)
    with instead_of_cuda(made):
        yield made
        made.stub_fail(0)


@pytest.fixture
def runner(cache: ObjectCache, stub: ctypes.CDLL) -> Executor:
    stub.stub_fail(0)
    return process_executor(*executor(cache))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def ref(text: str) -> dict[str, Any]:
    return {"place": text[:-1], "index": int(text[-1])}


def step(data: bytes, entry: str, reads: Sequence[str], writes: Sequence[str], **more: Any) -> dict[str, Any]:
    return {
        "family": "x", "binary": sha(data), "entry": entry, "reads": list(map(ref, reads)),
        "writes": list(map(ref, writes)), "grid": [3, 2, 1], "block": [32, 4, 1], "shared_bytes": 0, **more,
    }  # fmt: skip


def plan_of(steps: Sequence[Mapping[str, Any]], **more: Any) -> Any:
    body = {
        "wire_version": 1, "device": {"target": "cuda", "arch": "sm_80"}, "inputs": [SPEC, SPEC], "outputs": [SPEC],
        "buffers": [{"bytes": 100}, {"bytes": 300}], "steps": steps, **more,
    }  # fmt: skip
    return read_plan(body)


def tensors(count: int) -> list[Any]:
    return [np.zeros(16, np.uint64) for _ in range(count)]


def filled(program: CudaProgram, arrays: Sequence[Any], around: Around) -> Any:
    """This thread's table for these inputs and outputs, and memory for temporaries."""
    table = program.table()
    for i, array in enumerate(arrays):
        table.addresses[i] = array.ctypes.data
    table.addresses[program.workspace] = around.allocate(program.workspace_bytes).data_ptr()
    return table


def test_kernels_get_their_geometry_and_arguments(runner: Executor, kernels: bytes, stub: ctypes.CDLL) -> None:
    """Temporaries are parts of one memory, 256 bytes apart."""
    steps = [
        step(kernels, "two", ["in0"], ["tmp1"], shared_bytes=100_000),
        step(kernels, "three", ["in1", "tmp1"], ["out0"], grid=[1, 1, 9], scratch=ref("tmp0")),
    ]
    # Reads come first: `in0` and `in1` are what the kernels note things down in.
    program, around = CudaProgram(plan_of(steps), {sha(kernels): kernels}, runner, Around()), Around()
    assert (program.workspace_bytes, program.single) == (256 + 512, (0, 2))
    x, y, out = tensors(3)
    table = filled(program, (x, y, out), around)
    memory = int(around.made[-1].data_ptr())
    before = stub.stub_launches()
    program.run(table, STREAM)
    assert stub.stub_launches() == before + 2
    assert x[:8].tolist() == [3, 2, 1, 32, 4, 1, 100_000, memory + 256]
    assert y[:9].tolist() == [1, 1, 9, 32, 4, 1, 0, memory + 256, out.ctypes.data]
    assert ctypes.c_void_p(stub.stub_last_stream()).value == STREAM
    assert stub.stub_depth() == 0, "the thread has no context again"


def test_a_context_that_is_there_is_not_changed(runner: Executor, kernels: bytes, stub: ctypes.CDLL) -> None:
    program, around = (
        CudaProgram(
            plan_of([step(kernels, "two", ["in0"], ["out0"])], buffers=[]), {sha(kernels): kernels}, runner, Around()
        ),
        Around(),
    )
    x, y, out = tensors(3)
    other = ctypes.c_void_p(12345)
    stub.cuCtxPushCurrent_v2(other)
    try:
        program.run(filled(program, (x, y, out), around), STREAM)
        current = ctypes.c_void_p()
        stub.cuCtxGetCurrent(ctypes.byref(current))
        assert (current.value, stub.stub_depth()) == (12345, 1)
    finally:
        stub.cuCtxPopCurrent_v2(ctypes.byref(other))


def test_tensor_maps_follow_the_arguments(runner: Executor, kernels: bytes, stub: ctypes.CDLL) -> None:
    described = {
        "argument": 1, "offset_bytes": 32, "dtype": "f16", "element_bytes": 2, "sizes": [64, 128],
        "strides_bytes": [256], "box": [64, 32], "swizzle": 128,
    }  # fmt: skip
    plan = plan_of(
        [
            step(kernels, "two", ["in1"], ["out0"]),
            step(kernels, "mapped", ["in0"], ["out0"], tensor_maps=[described]),
        ],
        buffers=[],
    )
    program, around = CudaProgram(plan, {sha(kernels): kernels}, runner, Around()), Around()
    x, y, out = tensors(3)
    program.run(filled(program, (x, y, out), around), STREAM)
    assert x[7] == out.ctypes.data
    assert x[8:15].tolist() == [out.ctypes.data + 32, 6, 2, 128, 256, 32, 3]
    assert y[8:15].tolist() == [0] * 7


def test_a_launch_that_fails_says_how(runner: Executor, kernels: bytes, stub: ctypes.CDLL) -> None:
    steps = [step(kernels, "two", ["in0"], ["out0"]), step(kernels, "two", ["in1"], ["out0"])]
    program, around = CudaProgram(plan_of(steps, buffers=[]), {sha(kernels): kernels}, runner, Around()), Around()
    table = filled(program, tensors(3), around)
    stub.stub_fail(719)
    before = stub.stub_launches()
    with pytest.raises(DriverError, match="CUDA_ERROR_LAUNCH_FAILED"):
        program.run(table, STREAM)
    assert (stub.stub_launches(), stub.stub_depth()) == (before + 1, 0), "those behind are not launched"
    stub.stub_fail(0)
    program.run(table, STREAM)


REFUSED: dict[str, tuple[type[Exception], str, dict[str, Any], bool]] = {
    "another architecture": (DeviceError, "for sm_90a", {"device": {"target": "cuda", "arch": "sm_90a"}}, True),
    "no such kernel": (DriverError, "cuModuleGetFunction", {"steps": "four"}, True),
    "tampered": (ObjectError, "sha256", {}, False),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_loaded(name: str, runner: Executor, kernels: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "_modules", {})
    error, match, change, is_whole = REFUSED[name]
    steps = [step(kernels, change.get("steps", "two"), ["in0"], ["out0"])]
    plan = plan_of(steps, buffers=[], **{k: v for k, v in change.items() if k != "steps"})
    data = kernels if is_whole else kernels + b"\0"
    with pytest.raises(error, match=match):
        CudaProgram(plan, {sha(kernels): data}, runner, Around())


def test_the_prologue_runs_for_each_version_of_the_constants(runner: Executor, kernels: bytes) -> None:
    """Streams wait for its results, and it does not run while a stream is captured."""
    plan = plan_of(
        [
            step(kernels, "added", ["in1"], ["tmp1"], prologue=True),
            step(kernels, "added", ["tmp1"], ["out0"]),
        ],
        inputs=[SPEC, WEIGHT],
        buffers=[{"bytes": 100}, {"bytes": 300, "kept": True}],
    )
    around = Around()
    program = CudaProgram(plan, {sha(kernels): kernels}, runner, around)
    x, w, out = tensors(3)
    table = filled(program, (x, w, out), around)
    for version, value in enumerate((5, 7)):
        w[0] = value
        for _ in range(3):
            out[0] = 0
            program.prepare(table, STREAM, ((w.ctypes.data, version),), (w,))
            program.run(table, STREAM)
            assert out[0] == value
        assert program.prologue_runs == version + 1
    assert (around.marks, around.waits) == (2, []), "in the order of the stream nothing has to be waited for"
    for _ in range(2):
        program.prepare(table, STREAM + 1, ((w.ctypes.data, 1),), (w,))
    assert around.waits == [2], "another stream waits once, for the results that it reads"
    around.is_captured = True
    program.prepare(table, STREAM, ((w.ctypes.data, 1),), (w,))
    with pytest.raises(CapturedError):
        program.prepare(table, STREAM, ((w.ctypes.data, 2),), (w,))
    around.is_captured = False
    program.forget()
    program.prepare(table, STREAM, ((w.ctypes.data, 1),), (w,))
    assert program.prologue_runs == 3


def test_what_a_captured_stream_read_stays(runner: Executor, kernels: bytes) -> None:
    """A CUDA graph has its address."""
    plan = plan_of(
        [step(kernels, "added", ["in1"], ["tmp0"], prologue=True), step(kernels, "added", ["tmp0"], ["out0"])],
        inputs=[SPEC, WEIGHT],
        buffers=[{"bytes": 300, "kept": True}],
    )
    around = Around()
    program = CudaProgram(plan, {sha(kernels): kernels}, runner, around)
    x, w, out = tensors(3)
    table = filled(program, (x, w, out), around)
    around.made.clear()
    for version in range(4):
        for captured in (False, version == 1):
            around.is_captured = captured
            program.prepare(table, STREAM, ((w.ctypes.data, version),), (w,))
        around.is_captured = False
    del program, table
    alive = [weakref.ref(memory) for memory in around.made]
    around.made.clear()
    gc.collect()
    assert [memory() is not None for memory in alive] == [False, True, False, False], "whoever has the program"


def test_calls_of_a_library_are_made_in_their_places(
    runner: Executor, kernels: bytes, stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = {"offset": 0, "dtype": "f32", "turned": False, "batch_stride": 0, "alignment_bytes": 16}
    call = json.dumps(
        {
            "library": "cublaslt", "m": 4, "n": 8, "k": 8, "batch": 1, "compute": "f32", "alpha": 1.0, "beta": 0.0,
            "a": {**matrix, "tensor": 0, "leading": 8}, "b": {**matrix, "tensor": 1, "leading": 8},
            "c": None, "d": {**matrix, "tensor": 2, "leading": 8}, "bias": None, "loops": [], "algorithm": 2,
            "workspace_bytes": 64,
        }
    ).encode()  # fmt: skip
    made: list[tuple[int, ...]] = []
    fake, before = FakeBindings(), stub.stub_launches()
    monkeypatch.setattr(fake, "matmul", lambda *args: made.append((stub.stub_launches() - before, *args)))
    monkeypatch.setattr(library, "bindings", lambda: fake)
    library._handle.cache_clear()
    steps = [
        step(kernels, "two", ["in0"], ["tmp1"]),
        step(call, "call", ["in0", "tmp1"], ["out0"], libraries=["cublaslt"], scratch=ref("tmp0")),
        step(kernels, "two", ["in1"], ["out0"]),
        step(kernels, "three", ["in0", "tmp1"], ["out0"]),
    ]
    around = Around()
    program = CudaProgram(plan_of(steps), {sha(kernels): kernels, sha(call): call}, runner, around)
    library._handle.cache_clear()
    assert program.single is None
    x, y, out = tensors(3)
    table = filled(program, (x, y, out), around)
    memory = around.made[-1].data_ptr()
    program.run(table, STREAM)
    ((launched, _, _, _, first, _, second, _, _, third, _, result, _, _, workspace, size, stream),) = made
    assert launched == 1
    assert stub.stub_launches() - before == 3
    assert (first, second, third, result) == (memory + 256, x.ctypes.data, out.ctypes.data, out.ctypes.data)
    assert (workspace, size, stream) == (memory, 64, STREAM)


def test_an_executor_of_an_older_server(runner: Executor, kernels: bytes) -> None:
    class Old:
        library = object()

    with pytest.raises(ObjectError, match="is the server older"):
        CudaProgram(
            plan_of([step(kernels, "two", ["in0"], ["out0"])], buffers=[]), {sha(kernels): kernels}, Old(), Around()
        )  # type: ignore[arg-type]


def test_a_plan_that_calls_a_library_that_is_not_there(
    runner: Executor, kernels: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise LibraryError("nvmath-python is not installed")

    monkeypatch.setattr(library, "bindings", missing)
    call = b'{"library": "cublaslt"}'
    steps = [step(call, "call", ["in0", "in1"], ["out0"], libraries=["cublaslt"])]
    with pytest.raises(LibraryError, match="not installed"):
        CudaProgram(plan_of(steps, buffers=[]), {sha(call): call}, runner, Around())
