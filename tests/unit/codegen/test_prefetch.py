"""Prefetches in CPU kernels: of data that is read once in long runs, and of no data that is read again."""

import re
from collections.abc import Callable

import pytest

from codegen.families.loop_nest import lower
from codegen.lowering.access import alignments
from codegen.printer.emit import Style, emit_body
from fusion_ir import building as B
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from testing.tensors import graph_of, spec

Build = Callable[..., Node]

CASES: dict[str, tuple[list[InputSpec], Build, list[str]]] = {
    "a sum of rows": ([spec((64, 2048), f32)], lambda x: B.sum_(x, 1), ["in0 + 2048 * i0 + i1 + 256"]),
    "in 16 bits": ([spec((64, 2048), bf16)], lambda x: B.sum_(x, 1), ["in0 + 2048 * i0 + i1 + 512"]),
    "a table is read again": (
        [spec((64, 2048), f32), spec((2048,), f32)], B.add, ["in0 + 2048 * i0 + i1 + 256"],
    ),
    "rows one after the other": (
        [spec((500, 40), f32), spec((500,), f32)],
        lambda x, y: B.mul(x, B.reshape(y, (500, 1))),
        ["in0 + 40 * i0 + i1 + 256"],
    ),
    "rows apart": ([spec((500, 40), f32, (41, 1)), spec((500, 1), f32)], B.mul, []),
    "two passes": ([spec((64, 2048), f32)], B.softmax, []),
    "columns": (
        [spec((2048, 64), f32, (1, 2048))], lambda x: B.sum_(x, 1), ["in0 + 2048 * i2 + 512 * i0 + i1 + 256"],
    ),
    "long columns": (
        [spec((512, 4096), f32, (1, 512))], lambda x: B.sum_(x, 1), ["in0 + 512 * i2 + 128 * i0 + i1 + 1024"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_fetched(name: str) -> None:
    specs, build, expected = CASES[name]
    graph = graph_of(specs, build)
    program = lower(graph, 16, 64, 4096, least_tasks=4, keep_bytes=1 << 16)
    text = emit_body(program, Style("cpu", alignments(graph), grid_least=4, fetch_bytes=1024)).text
    assert sorted(set(re.findall(r"fetch_once<\d+>\((.*)\);", text))) == expected
    assert "fetch_once" not in emit_body(program, Style("cpu", alignments(graph), grid_least=4)).text


def group_norm(x: Node) -> Node:
    """Over channels of a group and pixels; scaled by channel, so that there is a loop over the channels."""
    centred = B.sub(x, B.mean(x, (2, 3), keepdims=True))
    rstd = B.rsqrt(B.var(x, (2, 3), 0, keepdims=True))
    scales = B.iota(x.sizes, 2, dtype=f32)
    return B.mul(B.mul(centred, rstd), scales)


ROWS: dict[str, tuple[tuple[int, ...], Build, list[str]]] = {
    "passes over rows": ((64, 2048), B.softmax, ["in0 + 2048 * i0 + i1 + 2048"]),
    "passes over rows of several loops": ((8, 16, 3, 512), group_norm, ["in0 + 1536 * i1 + 512 * i0 + i2 + 1536"]),
    "one pass": ((64, 2048), lambda x: B.sum_(x, 1), []),
    "several of one tensor alone": ((2048,), B.softmax, []),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_row_that_comes_next(name: str) -> None:
    sizes, build, expected = ROWS[name]
    graph = graph_of([spec(sizes, f32)], build)
    program = lower(graph, 16, 64, 4096, least_tasks=4, keep_bytes=1 << 16)
    style = Style("cpu", alignments(graph), grid_least=4, ahead=True)
    assert re.findall(r"fetch<\d+>\((.*)\);", emit_body(program, style).text) == expected
