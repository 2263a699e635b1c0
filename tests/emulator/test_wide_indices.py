"""Indices of 2^31 and more in every family: tensors of few elements far apart, in memory that is reserved and not
touched; and numbers, of index operators, that no tensor is as large as."""

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from codegen.child.case import strided
from codegen.families import FAMILIES
from codegen.kernel import Kernel
from codegen.launch.emulator import Emulation, Tensor, run_arrays
from fusion_ir import building as B
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32, i8, i64
from fusion_ir.reference.sample_inputs import sample_inputs
from testing.emulated_kernels import build, emulated_device
from testing.tensors import graph_of, spec

APART = 1 << 28  # elements
NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python names from 3.13 on
WIDE = "using idx_t = long long;"
Build = Callable[..., Node | Sequence[Node]]


def far(sizes: Sequence[int], dtype: DType, apart: int = APART) -> InputSpec:
    """Rows far apart: of 9 or more the last one begins beyond 2^31."""
    strides = (apart, *dense_strides(sizes)[1:])
    return InputSpec(shape_of(sizes), dtype, strides, alignment_bytes=16)


def near(sizes: Sequence[int], dtype: DType) -> InputSpec:
    return InputSpec(shape_of(sizes), dtype, dense_strides(sizes), alignment_bytes=16)


@dataclass(frozen=True)
class Spread:
    """A graph for one family. apart: of the rows of outputs, by position, that are far apart."""

    family: str
    inputs: tuple[InputSpec, ...]
    build: Build
    apart: tuple[int, ...] = ()

    def graph(self) -> Graph:
        dense = graph_of(self.inputs, self.build)
        outputs = [
            OutputSpec(o.node, (APART, *o.strides[1:])) if i in self.apart else o for i, o in enumerate(dense.outputs)
        ]
        return Graph(dense.inputs, tuple(outputs))

    def dense(self) -> Graph:
        return graph_of([near(s.sizes, s.dtype) for s in self.inputs], self.build)


def turned(x: Node) -> Node:
    return B.permute(x, (1, 0))


def negated(a: Node, b: Node) -> Node:
    return B.matmul(B.neg(a), b)


SPREAD = {
    "naive": Spread("naive", (far((9, 48), bf16),), lambda x: B.neg(x), (0,)),
    "pointwise": Spread("pointwise", (far((12, 48), bf16), near((12, 48), bf16)), B.add, (0,)),
    "gathered": Spread("pointwise", (far((12, 48), bf16), near((30,), i64)), lambda x, i: B.index_select(x, 0, i)),
    "sliced": Spread("pointwise", (far((64, 48), bf16),), lambda x: B.slice_(x, (50, 8), (64, 40))),
    "transposed in": Spread("transpose", (near((48, 64), bf16), far((64, 48), bf16)), lambda x, y: B.add(x, turned(y))),
    "transposed in, odd": Spread(
        "transpose", (near((47, 61), f32), far((61, 47), f32)), lambda x, y: B.add(x, turned(y))
    ),
    "transposed out": Spread(
        "transpose", (near((64, 48), bf16), near((64, 48), bf16)), lambda x, y: [B.add(x, y), turned(B.mul(x, y))], (1,)
    ),
    "rows close to 2^31": Spread(
        "transpose", (near((48, 64), i8), far((64, 48), i8, (1 << 26) + 64)), lambda x, y: B.add(x, turned(y))
    ),
    "row sums": Spread("reduction", (far((12, 100), f16),), lambda x: B.sum_(x, 1)),
    "column sums": Spread("reduction", (far((12, 100), f16),), lambda x: B.sum_(x, 0)),
    "softmax": Spread("normalization", (far((12, 100), f16),), B.softmax, (0,)),
    "few rows": Spread("gemv", (near((2, 130), bf16), far((66, 130), bf16)), B.linear),
    "matrix instructions": Spread("matmul", (far((70, 64), bf16), near((64, 72), bf16)), B.matmul, (0,)),
    "computed operand": Spread("matmul", (far((70, 64), bf16), near((64, 72), bf16)), negated),
    "multiply-adds": Spread("matmul", (near((70, 64), f32), far((64, 72), f32)), B.matmul),
    "few products": Spread("matmul", (far((70, 4), bf16), near((4, 72), bf16)), B.matmul, (0,)),
    "output of wgmma": Spread("wgmma", (near((70, 64), bf16), near((64, 72), bf16)), B.matmul, (0,)),
}  # fmt: skip


def numbered(x: Node) -> Node:
    """Plus numbers up to 63 * 2^27, by rows."""
    return B.add(x, B.cast(B.iota(x.sizes, 0, 0, 1 << 27), x.dtype))


def of_many(x: Node) -> Node:
    """Plus the first numbers of each of 64 runs of 2^27."""
    long = B.reshape(B.iota([1 << 33], 0), [64, 1 << 27])
    return B.add(x, B.cast(B.slice_(long, (0, 0), x.sizes), x.dtype))


def multiplied(x: Node) -> Node:
    """Plus numbers of few bits, times much."""
    return B.add(x, B.cast(B.mul(B.iota(x.sizes, 0), 1 << 27), x.dtype))


NUMBERED: dict[str, tuple[str, Sequence[InputSpec], Build]] = {
    "naive": ("naive", [spec((64, 8), i64)], numbered),
    "pointwise": ("pointwise", [spec((64, 8), i64)], numbered),
    "sliced": ("pointwise", [spec((64, 8), i64)], of_many),
    "multiplied": ("pointwise", [spec((64, 8), i64)], multiplied),
    "transpose": ("transpose", [spec((64, 48), f32), spec((48, 64), f32)], lambda x, y: B.add(numbered(x), turned(y))),
    "reduction": ("reduction", [spec((64, 100), f32)], lambda x: B.sum_(numbered(x), 1)),
    "columns": ("reduction", [spec((64, 100), i64)], lambda x: B.sum_(multiplied(x), 0)),
    "normalization": ("normalization", [spec((64, 100), f32)], lambda x: B.softmax(numbered(x))),
    "gemv": ("gemv", [spec((2, 130), f32), spec((66, 130), f32)], lambda x, w: numbered(B.linear(x, w))),
    "matmul": ("matmul", [spec((64, 64), f32), spec((64, 64), f32)], lambda a, b: numbered(B.matmul(a, b))),
    "wgmma": ("wgmma", [spec((64, 64), bf16), spec((64, 64), bf16)], lambda a, b: numbered(B.matmul(a, b, f32))),
}


def kernel_of(family: str, graph: Graph) -> Kernel:
    """By the default schedule."""
    device = emulated_device("sm_90a")
    made = FAMILIES[family]
    assert made.accepts(graph, device) is None
    return made.emit(graph, made.space(graph, device)[0], device)


def reserved(count: int) -> np.ndarray:
    """So many bytes of address space; what is touched of it becomes memory."""
    memory = mmap.mmap(-1, count + 256, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    raw = np.frombuffer(memory, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + count]


@pytest.fixture(scope="module")
def emulated() -> dict[str, Emulation]:
    """Every kernel, ready to run, by its entry: compiled in one file."""
    graphs = [(c.family, c.graph()) for c in SPREAD.values()]
    graphs += [(family, graph_of(inputs, made)) for family, inputs, made in NUMBERED.values()]
    kernels = {k.entry: k for k in (kernel_of(family, graph) for family, graph in graphs)}
    return dict(zip(kernels, build(list(kernels.values()), "sm_90a"), strict=True))


@pytest.mark.parametrize("name", SPREAD)
def test_tensors_that_span_2_to_31_elements(name: str, emulated: dict[str, Emulation]) -> None:
    case = SPREAD[name]
    graph, dense = case.graph(), case.dense()
    kernel = kernel_of(case.family, graph)
    assert WIDE in kernel.source
    inputs = sample_inputs(dense, 3)
    memory, tensors, results = list[np.ndarray](), list[Tensor](), list[np.ndarray]()
    for i, (tensor, values) in enumerate(zip(graph.inputs, inputs, strict=True)):
        memory.append(raw := reserved(tensor.span * tensor.dtype.bytes))
        strided(raw, tensor.dtype.numpy, tensor.sizes, tensor.strides)[...] = values
        tensors.append(Tensor(f"in{i}", "input", raw.ctypes.data, raw.nbytes))
    for i, o in enumerate(graph.outputs):
        memory += [raw := reserved(o.span * o.node.dtype.bytes), written := reserved(o.span * o.node.dtype.bytes)]
        results.append(strided(raw, o.node.dtype.numpy, o.node.sizes, o.strides))
        tensors.append(Tensor(f"out{i}", "output", raw.ctypes.data, raw.nbytes, written))
    emulated[kernel.entry].run([t.address for t in tensors], tensors, 0)
    outcome = compare(results, reference(dense, inputs))
    assert outcome.ok, outcome.detail


@pytest.mark.parametrize("name", NUMBERED)
def test_numbers_from_2_to_31_on_that_no_tensor_is_as_large_as(name: str, emulated: dict[str, Emulation]) -> None:
    family, specs, made = NUMBERED[name]
    graph = graph_of(specs, made)
    inputs = sample_inputs(graph, 3)
    results = [np.zeros(o.node.sizes, o.node.dtype.numpy) for o in graph.outputs]
    run_arrays(emulated[kernel_of(family, graph).entry], inputs, results)
    if name == "sliced":  # too long to be interpreted
        rows, columns = np.arange(64)[:, None], np.arange(8)
        np.testing.assert_array_equal(results[0], inputs[0] + rows * (1 << 27) + columns)
        return
    outcome = compare(results, reference(graph, inputs))
    assert outcome.ok, outcome.detail


COUNTED: dict[str, tuple[str, Sequence[InputSpec], Build]] = {
    "naive, a grid's step past the end": ("naive", [spec(((1 << 30) + (1 << 20),), i8)], B.neg),
    "of one number": ("naive", [spec((1,), f32)], lambda x: B.sum_(B.expand(x, (1 << 33,)), 0)),
    "of one number, by rows": ("reduction", [spec((1, 1), f32)], lambda x: B.sum_(B.expand(x, (8, 1 << 33)), 1)),
}


@pytest.mark.parametrize("name", COUNTED)
def test_loops_that_pass_2_to_31_count_with_64_bits(name: str) -> None:
    """Seen in the text alone: they take minutes."""
    family, specs, made = COUNTED[name]
    assert WIDE in kernel_of(family, graph_of(specs, made)).source


def test_what_needs_no_more_counts_with_32_bits() -> None:
    for family, specs, made in (
        ("pointwise", [spec((1 << 20, 8), i8)], B.neg),
        ("naive", [spec((1 << 29,), i8)], B.neg),
    ):
        assert WIDE not in kernel_of(family, graph_of(specs, made)).source
