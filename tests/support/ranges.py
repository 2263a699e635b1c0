"""Inputs of products of rows in other ranges than random ones have: where a kernel takes a maximum over part of a row,
or leaves out what is about zero on random data, these show it.

Each takes the inputs of a graph whose first two are rows [..., rows, depth] and columns [..., columns, depth].
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from codegen.child.case import Case, InputSet, judge
from codegen.families import FAMILIES
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import bf16, f16, f32
from fusion_ir.reference.sample_inputs import sample_inputs
from testing.tensors import graph_of, spec
from tests.support.attention import causal, tensor, whole
from tests.support.candidates import kernels_of, run_kernel
from tests.support.products import dense_graph
from tests.support.whole import some

Array = np.ndarray[Any, Any]
Range = Callable[[Sequence[Array]], list[Array]]


def far(inputs: Sequence[Array]) -> list[Array]:
    """Scores of hundreds, of either sign: differences for which exp is zero, or infinite."""
    rows, *others = inputs
    return [_like(rows, rows.astype(np.float32) * 300), *others]


def below(inputs: Sequence[Array]) -> list[Array]:
    """All scores far below 0, so that what stands for nothing, such as a zero, would be the largest."""
    rows, columns, *others = inputs
    positive = np.abs(rows.astype(np.float32)) * 8 + 8
    return [_like(rows, positive), _like(columns, -np.abs(columns.astype(np.float32)) * 2 - 1), *others]


def peaked(inputs: Sequence[Array]) -> list[Array]:
    """The largest score of each row stands in another column, by hundreds: all columns of a tile have it in some
    row."""
    rows, columns, *others = inputs
    peaks = columns[..., np.arange(rows.shape[-2]) * 29 % columns.shape[-2], :].astype(np.float32)
    return [_like(rows, 200 * peaks / np.square(peaks).mean(-1, keepdims=True)), columns, *others]


RANGES: tuple[Range, ...] = (far, below, peaked)


def _like(x: Array, values: Array) -> Array:
    return values.astype(x.dtype)


# ---- rows that are reduced as they come
def _below_rows(inputs: Sequence[Array]) -> list[Array]:
    (x,) = inputs
    return [_like(x, -np.abs(x.astype(np.float32)) * 100 - 200)]


def _peaked_rows(inputs: Sequence[Array]) -> list[Array]:
    (x,) = inputs
    peaked = x.astype(np.float32)
    peaked[np.arange(x.shape[0]), np.arange(x.shape[0]) * 29 % x.shape[1]] += 250
    return [_like(x, peaked)]


ROW_RANGES: tuple[Range, ...] = (far, _below_rows, _peaked_rows)


def range_graphs() -> Iterator[tuple[str, Graph, tuple[Range, ...]]]:
    """Graphs of rows that are reduced, by name, with the ranges that their inputs have."""
    for dtype in (f32, bf16):
        of = dense_graph([tensor(2, 40, 40, dtype=dtype), *[tensor(2, 331, 40, dtype=dtype)] * 2], whole)
        yield f"attention {dtype}", of, RANGES
        yield f"causal attention {dtype}", causal(2, 70, 70, 40, 24, dtype), RANGES
        yield f"softmax of scores {dtype}", causal(2, 70, 70, 40, None, dtype), RANGES
    for dtype in (f32, bf16, f16):
        rows = spec((90, 331), dtype)
        yield f"softmax {dtype}", graph_of([rows], build.softmax), ROW_RANGES
        yield f"largest {dtype}", graph_of([rows], lambda x: build.max_(x, [1])), ROW_RANGES
        yield (
            f"log of the sum {dtype}",
            graph_of(
                [rows], lambda x: build.log(build.sum_(build.exp(build.sub(x, build.max_(x, [1], keepdims=True))), [1]))
            ),
            ROW_RANGES,
        )


def check_ranges(bench: Workbench, most: int) -> None:
    """Kernels of every family that takes such a graph agree with it in all ranges. most: schedules of each family."""
    checked = 0
    for name, graph, ranges in some(range_graphs(), 3, f"ranges on {bench.device.target}"):
        drawn = sample_inputs(graph, seed=3)
        sets = [InputSet(inputs, reference(graph, inputs)) for inputs in (change(drawn) for change in ranges)]
        case = Case(graph, tuple(sets))
        kernels = [
            kernel
            for family in FAMILIES.values()
            if family.accepts(graph, bench.device) is None
            for kernel in kernels_of(graph, family.name, bench, most=most)
        ]
        checked += len(kernels)
        for kernel in kernels:
            for i, given in enumerate(sets):
                problem = judge(case, i, run_kernel(graph, kernel, given.inputs, bench)).problem
                assert not problem, (name, kernel.family, kernel.schedule, ranges[i].__name__, problem)
    assert checked
