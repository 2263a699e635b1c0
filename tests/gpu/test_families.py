"""Every family on the device: its kernels do what the interpreter says, and what they do in the emulator.

The same schedules are checked on both. Where nothing is summed and nothing transcendental is computed, which the device
does its own way, device and emulator agree bit for bit.
"""

from collections.abc import Callable

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel, Reject
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, bf16, f16, f32, f64, i32
from fusion_ir.reference.sample_inputs import sample_inputs
from tests.support.attention import whole
from tests.support.candidates import check_all, is_beyond_the_list, is_dropped_for_spills, run_kernel
from tests.support.products import dense_graph, mlp

Build = Callable[..., Node | tuple[Node, ...]]
Shapes = list[tuple[int, ...]]
EMULATED_SCHEDULES, DEVICE_SCHEDULES = 2, 6


def softmax(x: Node) -> Node:
    wide = build.cast(x, f32) if x.dtype.bytes < 4 else x
    return build.cast(build.softmax(wide, -1), x.dtype)


GRAPHS: dict[str, tuple[Shapes, Build, tuple[DType, ...]]] = {
    "chain": ([(37, 130), (130,)], lambda x, b: build.exp(build.neg(build.add(x, build.broadcast_to(b, x.shape)))),
              (f32, f16, bf16, f64)),
    "quotients": ([(37, 130), (130,)], lambda x, b: build.div(build.mul(x, x), build.broadcast_to(b, x.shape)),
                  (f32, f16, bf16, f64)),
    "integers": ([(37, 130), (37, 130)], lambda x, y: build.add(build.mul(x, y), x), (i32,)),
    "turned": ([(70, 45), (45, 70)], lambda x, y: build.add(x, build.permute(y, [1, 0])), (f32, bf16)),
    "pieces": ([(9, 33), (5, 33)], lambda x, y: build.cat([x, build.slice_(y, [1, 0], [4, 33])], 0), (f32, f16)),
    "row sum": ([(37, 1025)], lambda x: build.sum_(x, [1]), (f32, bf16, f64)),
    "column sum": ([(515, 70)], lambda x: build.sum_(x, [0]), (f32, bf16)),
    "softmax": ([(19, 1030)], softmax, (f32, bf16)),
    "thin": ([(2, 520), (520, 96)], build.matmul, (f32, bf16)),
    "product": ([(130, 96), (96, 136)], build.matmul, (f32, f16, bf16)),
    "few products": ([(130, 16), (16, 264)], lambda x, w: build.relu(build.matmul(x, w)), (f32, f16, bf16)),
    "five products": ([(130, 5), (5, 77), (77,)], lambda x, w, b: build.add(build.matmul(x, w), b), (f32, bf16)),
    "two products": ([(130, 2), (2, 264)], build.matmul, (bf16,)),
    "batched": ([(3, 65, 64), (3, 64, 72)], build.matmul, (f16, bf16)),
    "linear, gelu, residual": ([(130, 96), (96, 136), (136,), (130, 136)], mlp, (f32, bf16)),
    "biased": ([(130, 96), (136, 96), (136,)], build.linear, (f16, bf16)),
    "biased, relu": ([(130, 96), (136, 96), (136,)], lambda x, w, b: build.relu(build.linear(x, w, b)), (bf16,)),
    "attention": ([(2, 70, 40), (2, 330, 40), (2, 330, 24)], whole, (f16, bf16)),
    "running sum": ([(17, 300)], lambda x: build.cumsum(x, 1), (f32,)),
}  # fmt: skip
CASES = [(name, dtype.name) for name, (_, _, dtypes) in GRAPHS.items() for dtype in dtypes]
EXACT = ("quotients", "integers", "turned", "pieces")


def graph_of(name: str, dtype: str) -> Graph:
    shapes, compute, _ = GRAPHS[name]
    return dense_graph(shapes, compute, DTYPES[dtype])


def kernels(graph: Graph, family: str, bench: Workbench, most: int) -> list[Kernel]:
    """Different kernels of the family's first schedules; none where it refuses the graph."""
    if isinstance(FAMILIES[family].accepts(graph, bench.device), Reject):
        return []
    found: dict[object, Kernel] = {}
    for schedule in FAMILIES[family].space(graph, bench.device)[:most]:
        try:
            kernel = FAMILIES[family].emit(graph, schedule, bench.device)
        except EmitError:
            continue
        found.setdefault(kernel.identity, kernel)
    return list(found.values())


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_on_the_device(name: str, dtype: str, bench: Workbench) -> None:
    graph = graph_of(name, dtype)
    made = {f: kernels(graph, f, bench, DEVICE_SCHEDULES) for f in FAMILIES}
    assert any(made.values())
    found = check_all([(f"{name} {dtype} {f}", graph, some) for f, some in made.items() if some], bench)
    wrong = [line for line in found if not (is_beyond_the_list(line) or is_dropped_for_spills(line))]
    assert not wrong, "\n".join(wrong)
    for family, some in made.items():
        unchecked = sum(line.startswith(f"{name} {dtype} {family} ") for line in found)
        assert not some or unchecked < len(some), f"no schedule of {family} was checked"


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_as_in_the_emulator(name: str, dtype: str, bench: Workbench, emulated: Workbench) -> None:
    graph = graph_of(name, dtype)
    inputs = [np.ascontiguousarray(x) for x in sample_inputs(graph, 7)]
    for family in FAMILIES:
        there = kernels(graph, family, emulated, EMULATED_SCHEDULES)
        wrong = check_all([(f"{name} {dtype} {family}", graph, there)], emulated) if there else []
        assert not wrong, "\n".join(wrong)
        here = {k.schedule: k for k in kernels(graph, family, bench, EMULATED_SCHEDULES)}
        both = [(k, here[k.schedule]) for k in there if k.schedule in here and name in EXACT]
        for emulated_kernel, kernel in both:
            left = run_kernel(graph, kernel, inputs, bench)
            right = run_kernel(graph, emulated_kernel, inputs, emulated)
            for i, (a, b) in enumerate(zip(left, right, strict=True)):
                assert a.tobytes() == b.tobytes(), f"{family} {kernel.schedule}: out{i} differs between the two"
