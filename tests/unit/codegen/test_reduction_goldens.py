"""Golden loop programs and C++ of reductions: one each of the ways in which sums, phases and pieces lie in loops."""

from collections.abc import Callable

import pytest

from codegen.families import FAMILIES
from codegen.families.loop_nest import lower
from codegen.families.reduction import spreads
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from scheduler.rewrites.prepare import prepare
from testing.tensors import graph_of, spec
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.kernels import narrow_lanes


def batch_norm(x: Node, weight: Node) -> Node:
    axes = (0, 2, 3)
    scale = B.rsqrt(B.add(B.var(x, axes, 0, keepdims=True), 1e-5))
    return B.mul(B.mul(B.sub(x, B.mean(x, axes, keepdims=True)), scale), B.reshape(weight, (1, 8, 1, 1)))


def group_norm(x: Node, weight: Node) -> Node:
    return B.mul(B.reshape(B.layer_norm(B.reshape(x, (4, 2, 4 * 6 * 7))), x.sizes), B.reshape(weight, (1, 8, 1, 1)))


GRAPHS: dict[str, Graph] = {
    # Two reductions along the lanes of a row; the exponentials are kept between them.
    "softmax_row": graph_of([spec((64, 100), f32)], B.softmax),
    # Two passes over a row of a narrow dtype, summed in f32.
    "layer_norm_bf16": graph_of([spec((64, 256), bf16), spec((256,), bf16)], lambda x, w: B.layer_norm(x, -1, w)),
    # An accumulator for each of the lanes.
    "outer_sum": graph_of([spec((256, 96), f32)], lambda x: B.sum_(x, 0)),
    # Along the lanes and an outer axis at once, inside the loop over channels.
    "batch_norm": graph_of([spec((4, 8, 6, 7), f32), spec((8,), f32)], batch_norm),
    # A reshape whose digits the weight, and so the lanes, must share with the sums.
    "group_norm": graph_of([spec((4, 8, 6, 7), f32), spec((8,), f32)], group_norm),
    # Pairs of a value and its position.
    "argmax": graph_of([spec((64, 100), f32)], lambda x: B.argmax(x, 1)),
    # A contraction with one column.
    "gemv": graph_of([spec((64, 300), f32), spec((300,), f32)], B.matmul),
    # A sum in two pieces, each with loops of its own.
    "sum_over_cat": graph_of(
        [spec((64, 40), f32), spec((64, 100), f32)], lambda x, y: B.sum_(B.exp(B.cat([x, y], 1)), 1)
    ),
    # Rows and columns of one tensor, in one pass: no task could make a part of it.
    "rows_and_columns": graph_of([spec((48, 96), f32)], lambda x: [B.sum_(x, 1), B.max_(x, 0)]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_loop_program(name: str, golden: Callable[[str, str], None]) -> None:
    graph = prepare(GRAPHS[name]).graph
    golden(f"{name}.loops", str(lower(graph, 16, 64, 1024, least_tasks=16, keep_bytes=64 << 10)))


@pytest.mark.parametrize("name", GRAPHS)
def test_cpp(name: str, golden: Callable[[str, str], None]) -> None:
    graph = prepare(GRAPHS[name]).graph
    family = FAMILIES["normalization" if spreads(graph) else "reduction"]
    golden(f"{name}.cpp", family.emit(graph, narrow_lanes(family, graph), CPU_DEVICE).source)


@pytest.mark.parametrize("name", GRAPHS)
def test_cuda(name: str, golden: Callable[[str, str], None]) -> None:
    """Rows of a warp or a block, sums down columns, what threads join in shared memory."""
    graph = prepare(GRAPHS[name]).graph
    kernel = next(
        family.emit(graph, family.space(graph, CUDA_DEVICE)[0], CUDA_DEVICE)
        for family in FAMILIES.values()
        if family.name in ("reduction", "normalization", "gemv") and family.accepts(graph, CUDA_DEVICE) is None
    )
    launch = kernel.launch
    shape = f"grid {launch.grid}, block {launch.block}, {launch.shared_bytes} bytes of shared memory"
    golden(f"{name}.cu", f"// {kernel.schedule}\n{kernel.source}// {shape}\n")
