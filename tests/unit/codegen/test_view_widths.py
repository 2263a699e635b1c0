"""Vector widths of a tensor that is cropped, padded, expanded, permuted and reshaped, against all of its addresses."""

from itertools import pairwise
from math import gcd

import numpy as np
import pytest

from benchmarks.seeds.widths import runs
from codegen.families import FAMILIES
from codegen.hardware.gpus import specified
from codegen.kernel import Kernel
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import f32
from fusion_ir.ops import make_input
from tests.support.views import View

ACCESS_BYTES = 16
IN_ORDER = (0, 2, 1)  # rows are repeated whole
ROWS = 8
GRID = [
    View(m, k, IN_ORDER, pad, crop, ROWS)
    for m, k in ((3, 10), (6, 40), (12, 3), (20, 10), (24, 10), (24, 40), (36, 3), (40, 40), (64, 10), (96, 3))
    for pad in ((0, 0), (2, 2), (1, 3), (8, 0))
    for crop in (0, 1, 4)
    if crop < m
]


WHOLE_VECTORS = "pointwise{vec=8,x=8,y=32,per=1}"  # 16 bytes of f16
ORDERS = ((0, 1, 2), IN_ORDER, (2, 1, 0), (1, 0, 2))
STORED = [
    View(m, k, order, pad, crop, 64)
    for m, k in ((3, 10), (5, 7), (6, 40), (12, 10), (20, 3), (24, 10), (36, 3), (40, 6), (50, 4), (64, 3))
    for order in ORDERS
    for pad, crop in (((0, 0), 0), ((2, 2), 0), ((1, 3), 0), ((0, 0), 4), ((0, 4), 2))
    if crop < m
]


def first_kernel(family: str, graph: Graph) -> Kernel:
    device = specified("h200", "")
    return FAMILIES[family].emit(graph, FAMILIES[family].space(graph, device)[0], device)


@pytest.mark.parametrize("view", GRID, ids=str)
def test_rows_are_read_as_wide_as_addresses_allow(view: View) -> None:
    """All reads, those of what is left behind whole vectors too, by the first schedule that a search tries."""
    width = ACCESS_BYTES // view.dtype.bytes
    for row in view.addresses().reshape(-1, view.m - view.crop + sum(view.pad)):
        for start, length in runs(row):
            width = gcd(width, start, length)
    kernel = first_kernel("pointwise", view.graph())
    assert {a.width for a in kernel.accesses if a.tensor == "in0"} == {width}, (kernel.schedule, kernel.accesses)


@pytest.mark.parametrize("view", STORED, ids=str)
def test_results_are_written_as_wide_as_addresses_allow(view: View) -> None:
    """Rows of any length, one behind the other, are one run. Padding is written by itself: runs end where it begins."""
    vector = ACCESS_BYTES // view.dtype.bytes
    piece = view.pieces().reshape(-1)
    starts = [0, *(np.flatnonzero(np.diff(piece)) + 1).tolist()]
    runs_of: dict[int, list[tuple[int, int]]] = {}
    for start, end in pairwise([*starts, piece.size]):
        runs_of.setdefault(int(piece[start]), []).append((start, end - start))
    widths: set[int] = set()
    for found in runs_of.values():
        aligned, length = gcd(vector, *(start for start, _ in found)), gcd(*(length for _, length in found))
        if length >= vector:
            widths.add(aligned)
        if length % vector:
            widths.add(gcd(aligned, length))
    kernel = FAMILIES["pointwise"].emit(view.graph(), WHOLE_VECTORS, specified("h200", ""))
    assert {a.width for a in kernel.accesses if a.tensor == "out0"} == widths


@pytest.mark.parametrize("view", [v for v in STORED if v.pad == (0, 0)], ids=str)
def test_what_is_one_run_is_written_in_whole_vectors_first(view: View) -> None:
    """By the first schedule that a search tries, all writes are whole vectors but those of the rest behind them."""
    size, vector = view.graph().outputs[0].node.elements, ACCESS_BYTES // view.dtype.bytes
    kernel = first_kernel("pointwise", view.graph())
    assert {a.width for a in kernel.accesses if a.tensor == "out0"} == {vector, gcd(size, vector)}, kernel.schedule


@pytest.mark.parametrize("low", range(4))
@pytest.mark.parametrize("high", range(4))
def test_a_padded_middle_axis_takes_no_width(low: int, high: int) -> None:
    sizes = (4, 8, 36)
    spec = InputSpec(shape_of(sizes), f32, dense_strides(sizes), 16)
    out = build.neg(build.pad(make_input(0, spec), (0, low, 0), (0, high, 0), 0.0))
    kernel = first_kernel("pointwise", Graph((spec,), (OutputSpec(out, dense_strides(out.sizes)),)))
    assert {a.width for a in kernel.accesses} == {4}, (kernel.schedule, kernel.accesses)


@pytest.mark.parametrize("extent", [8, 12, 16, 24, 40, 48, 100])
def test_short_rows_have_no_narrower_vectors_for_more_threads(extent: int) -> None:
    """A transposed copy, whose reads are strided, has vectors as wide as the alignment of the result's rows allows."""
    sizes = (64, extent, 36)
    spec = InputSpec(shape_of(sizes), f32, dense_strides(sizes), 16)
    out = build.neg(build.permute(make_input(0, spec), (0, 2, 1)))
    kernel = first_kernel("pointwise", Graph((spec,), (OutputSpec(out, dense_strides(out.sizes)),)))
    assert {a.width for a in kernel.accesses if a.tensor == "out0"} == {4}, kernel.schedule


@pytest.mark.parametrize(("m", "width"), [(3, 1), (6, 2), (12, 4), (24, 8)])
def test_tiles_are_filled_as_wide_as_rows_are_aligned(m: int, width: int) -> None:
    """Rows shorter than a chunk of 16 bytes, too."""
    kernel = first_kernel("transpose", View(m, 40, (2, 1, 0)).graph())
    assert {a.width for a in kernel.accesses if a.tensor == "in0"} == {width}
