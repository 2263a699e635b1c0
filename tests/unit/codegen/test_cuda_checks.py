"""Checks on a CUDA device, on memory of the host: what is recognised as right, and what is found wrong."""

from typing import Any

import numpy as np
import pytest

from codegen.child import cuda_checks, cuda_memory
from codegen.child.case import judge, make_case
from codegen.child.cpu_memory import POISON
from codegen.child.cuda_checks import CheckTensors, CudaCase
from fusion_ir import building as build
from fusion_ir.dtype import f32
from tests.support.products import dense_graph


class Pointer:
    def __init__(self, raw: np.ndarray) -> None:
        self.raw = raw

    @property
    def ptr(self) -> int:
        return self.raw.ctypes.data

    def __add__(self, offset: int) -> "Pointer":
        return Pointer(self.raw[offset:])

    def memset(self, byte: int, size: int) -> None:
        self.raw[:size] = byte

    def copy_from_device(self, other: "Pointer", size: int) -> None:
        self.raw[:size] = other.raw[:size]


class FakeArray:
    def __init__(self, raw: np.ndarray) -> None:
        self.raw, self.nbytes, self.size = raw, raw.nbytes, raw.size
        self.data = Pointer(raw.view(np.uint8))

    def __getitem__(self, which: slice) -> "FakeArray":
        return FakeArray(self.raw[which])

    def set(self, array: np.ndarray) -> None:
        self.raw[...] = array


class FakeCupy:
    """A stand-in for the part of CuPy that the checks use, in the host's memory."""

    cuda: Any
    free = 1 << 40

    def __init__(self) -> None:
        cupy = self

        class Device:
            id = 0

            @property
            def mem_info(self) -> tuple[int, int]:
                return cupy.free, 1 << 41

        self.cuda = type("cuda", (), {"Device": Device})

    def empty(self, count: int, dtype: Any) -> FakeArray:
        return FakeArray(np.full(count, 0x33, dtype))

    def asnumpy(self, array: FakeArray) -> np.ndarray:
        return array.raw.copy()


class FakeKernels:
    def get_function(self, name: str) -> Any:
        assert name == "differ"

        def differ(grid: object, block: object, args: tuple[FakeArray, FakeArray, np.int64, FakeArray]) -> None:
            a, b, n, flag = args
            if (a.raw[: 16 * n] != b.raw[: 16 * n]).any():
                flag.raw[0] = 1

        return differ


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    for module in (cuda_memory, cuda_checks):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    monkeypatch.setattr(cuda_checks, "kernels", lambda number: FakeKernels())
    monkeypatch.setattr(cuda_checks, "grid", lambda number: (1,))
    return fake


def added(memory: CheckTensors, off: float = 0.0) -> None:
    """Writes the sum of the two inputs to the output, as a kernel would. off: added to every element, as an error."""
    tensors = memory._tensors
    x, y = (tensors.read(i) for i in range(2))
    tensors.write(2, x + y + np.float32(off))


GRAPH = dense_graph([(5, 7), (5, 7)], build.add, f32)


def test_the_same_bytes_are_as_right(cupy: FakeCupy) -> None:
    prepared = CudaCase(make_case(GRAPH, 0))
    (memory, poison), (again, other) = prepared.checks
    assert memory is again, "the graph sums nothing: one set of inputs"
    assert (poison, other) == POISON
    memory.reset(poison)
    assert memory.known() is None
    added(memory)
    left = memory.copy()
    verdict = judge(memory.case, memory.input_set, memory.outputs({}))
    assert (verdict.problem, memory.trespass()) == ("", "")
    memory.keep(left, verdict)
    memory.reset(other)
    assert memory.known() is None, "poisoned outputs"
    added(memory)
    assert memory.known() is verdict
    added(memory, 0.5)
    assert memory.known() is None
    assert judge(memory.case, 0, memory.outputs({})).problem


@pytest.mark.parametrize("place", ["input", "guard of an input", "guard of an output", "last byte"])
def test_trespassers(cupy: FakeCupy, place: str) -> None:
    memory = CheckTensors(make_case(GRAPH, 0), 0)
    memory.reset(POISON[0])
    added(memory)
    memory.keep(memory.copy(), judge(memory.case, 0, memory.outputs({})))
    tensors = memory._tensors
    where = {
        "input": tensors.offsets[1] + 3,
        "guard of an input": tensors.offsets[1] - 1,
        "guard of an output": tensors.offsets[2] + tensors.sizes[2],
        "last byte": tensors.memory.size - 1,
    }
    tensors.memory.raw[where[place]] ^= 1
    assert memory.known() is None
    assert memory.trespass()
    memory.reset(POISON[1])
    added(memory)
    assert memory.known(), "reset mends all of it"


def test_copies_are_few_and_small(cupy: FakeCupy) -> None:
    memory = CheckTensors(make_case(GRAPH, 0), 0)
    for _ in range(cuda_checks.MOST_KEPT):
        left = memory.copy()
        assert left is not None
        memory.keep(left, judge(memory.case, 0, memory.outputs({})))
    assert memory.copy() is None
    cupy.free = 1 << 20
    assert CheckTensors(make_case(GRAPH, 0), 0).copy() is None
