"""Schedules drawn from what their fields may be, of every family on CUDA, with functions of what is read and of what is
written: each of them compiles, or is refused before. FUSEPLAN_RANDOM_GRAPHS sets how many; takes no GPU."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.schedule import schedule_text
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cuda import CudaCompiler
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, i64
from fusion_ir.records import Device
from testing.tensors import graph_of, spec
from tests.support.devices import CUDA_DEVICE
from tests.support.whole import WHOLE, few_or_all, in_turn

DRAWN = 40 if WHOLE else 3  # kernels of each graph
TRIES = 20  # for each: most combinations of a family's choices are none of its schedules


def function(x: Node) -> Node:
    """One that is worth keeping."""
    return B.tanh(x)


def around(compute: Callable[..., Node]) -> Callable[..., Node]:
    """Functions of all operands and of the result."""
    return lambda *inputs: function(compute(*map(function, inputs)))


def turned_and_added(x: Node, y: Node) -> Node:
    return B.add(x, B.permute(y, (1, 0)))


def graphs(family: str, dtype: DType) -> list[Graph]:
    """Segments of a family, small ones, with sizes that vectors and tiles divide and that they do not."""
    made: list[Graph] = []
    for rows, depth, columns in ((64, 96, 80), (67, 90, 130)):
        x, w, turned = (spec(sizes, dtype) for sizes in ((rows, depth), (depth, columns), (columns, depth)))
        over, down = (
            [graph_of([x], around(f)) for f in fs] for fs in ((row_sum, B.softmax), (column_sum, down_softmax))
        )
        thin = [([spec((5, depth), dtype), w], B.matmul), ([spec((5, depth), dtype), turned], B.linear)]
        thin.append(([turned, spec((depth, 3), dtype)], B.matmul))
        shallow = [spec((rows, 12), dtype), spec((12, columns), dtype)]
        made += {
            "pointwise": [graph_of([x, x], around(B.mul))],
            "transpose": [graph_of([x, spec((depth, rows), dtype)], around(turned_and_added))],
            "reduction": [over[0], down[0]],
            "normalization": [over[1], down[1]],
            "scan": [graph_of([x], around(f)) for f in (row_scan, column_scan)],
            "gemv": [graph_of(specs, around(f)) for specs, f in thin],
            "matmul": [graph_of([x, w], around(B.matmul)), graph_of(shallow, around(B.matmul))],
            "wgmma": [graph_of([x, spec((depth, 128), dtype)], lambda x, w: function(B.matmul(x, w)))],
            "attention": [graph_of([spec((64, 64), dtype)] * 3, attention)],
            "naive": [graph_of([x, w], around(B.matmul)), graph_of([x, spec((rows,), i64)], scattered)],
        }[family]
    return made


def scattered(x: Node, index: Node) -> Node:
    return B.exp(B.scatter_sum(function(x), 0, index, 9))


def row_sum(x: Node) -> Node:
    return B.sum_(x, 1)


def column_sum(x: Node) -> Node:
    return B.sum_(x, 0)


def row_scan(x: Node) -> Node:
    return B.cumsum(x, 1)


def column_scan(x: Node) -> Node:
    return B.cumsum(x, 0)


def down_softmax(x: Node) -> Node:
    return B.softmax(x, 0)


def attention(q: Node, k: Node, v: Node) -> Node:
    """With functions of everything."""
    scores = B.softmax(function(B.matmul(q, B.permute(k, (1, 0)))))
    return function(B.matmul(function(scores), v))


def drawn(family: str, device: Device) -> list[Kernel]:
    """Kernels of schedules that are lowered; of those of `space`, which come first in a search, one."""
    rng, found = random.Random(family), dict[str, Kernel]()
    for dtype in (DTYPES["f32"], DTYPES["bf16"]):
        for graph in graphs(family, dtype):
            if FAMILIES[family].accepts(graph, device) is not None:
                continue
            choices, own = FAMILIES[family].choices(graph, device), dict[str, Kernel]()
            space = list(FAMILIES[family].space(graph, device))
            for _ in range(TRIES * DRAWN):
                if len(own) == DRAWN:
                    break
                values = {name: rng.choice(values) for name, values in choices.items()}
                schedule = schedule_text(family, values) if values and own else rng.choice(space)
                try:
                    kernel = FAMILIES[family].emit(graph, schedule, device)
                except EmitError:
                    continue
                own[kernel.entry] = kernel
            assert own, f"{family} takes a graph and lowers it by no schedule that was drawn"
            found |= own
    return list(found.values())


ON_CUDA = (
    *("pointwise", "transpose", "reduction", "normalization", "scan", "gemv", "matmul", "wgmma", "attention"),
    "naive",
)
ARCHITECTURES = few_or_all(["sm_90a"], ["sm_75", "sm_80", "sm_86", "sm_89", "sm_100a", "sm_120"])


def test_all_families_with_kernels_are_drawn_from() -> None:
    assert set(ON_CUDA) == FAMILIES.keys() - {"scatter", "aten"}  # on the CPU only; calls of libraries


@pytest.mark.soak
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("family", in_turn(ON_CUDA, 2, "drawn schedules"))
def test_what_is_emitted_compiles(family: str, arch: str, tmp_path: Path) -> None:
    device = CUDA_DEVICE.model_copy(update={"arch": arch})
    made = in_turn(drawn(family, device), 2, family)
    assert made or arch != "sm_90a"
    builder = Builder(CudaCompiler(device), ObjectCache(tmp_path), Limits(compile_seconds=280.0, kernels_per_file=40))
    try:
        built = builder.compile(made)
    finally:
        builder.close()
    failed = [f"{k.schedule}: {b.detail}" for k, b in zip(made, built, strict=True) if not isinstance(b, Binary)]
    assert not failed, "\n".join(failed)
