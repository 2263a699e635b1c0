"""Tiles for what lies across the lanes: they hold what their blocks read, and every element is written once."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegen.families.transpose import Tiling, Transpose, TransposeSchedule, lower
from codegen.lowering.index import Affine, Axes, Axis, var
from codegen.lowering.program import Program, Tile
from codegen.lowering.transpose_tiles import along
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import f32
from fusion_ir.ops import make_input
from tests.support.devices import CPU_DEVICE
from tests.support.whole import WHOLE
from tests.unit.codegen.test_index import value

TINY = TransposeSchedule(4, "plain", 16, 16, "columns", 1)


def permuted(sizes: tuple[int, ...], dims: tuple[int, ...], *, both: bool) -> Graph:
    """An elementwise sum of a tensor and a permuted one; `both`: stored in the two orders."""
    strides = dense_strides(sizes)
    specs = (
        InputSpec(shape_of(sizes), f32, strides, 4),
        InputSpec(shape_of(tuple(sizes[d] for d in dims)), f32, dense_strides(tuple(sizes[d] for d in dims)), 4),
    )
    back = tuple(dims.index(i) for i in range(len(dims)))
    x = build.add(make_input(0, specs[0]), build.permute(make_input(1, specs[1]), back))
    outputs = (x, build.permute(x, dims)) if both else (x,)
    return Graph(specs, tuple(OutputSpec(o, dense_strides(o.sizes)) for o in outputs))


def points(program: Program, axes: list[Axis], at: dict[Axis, int]) -> Iterator[dict[Axis, int]]:
    """Points over `axes`, outermost first, beside those of `at`, no further than the ends of last tiles."""
    for point in product(*(range(a.extent) for a in axes)):
        here = {**at, **dict(zip(axes, point, strict=True))}
        lasts = ((a, program.last_tile(a)) for a in axes)
        if all(last is None or here[last[0]] * a.extent + here[a] < last[1] for a, last in lasts):
            yield here


def entries(program: Program, tile: Tile) -> Iterator[tuple[int, ...]]:
    """Elements of the tensor that fills or empties of a tile move."""
    scope = [loop.axis for loop in tile.scope]
    for here in points(program, [*scope, *tile.repeats, *tile.others, tile.along, tile.lane], {}):
        yield (value(tile.access.offset, here), *(here[a] for a in scope))


shapes = st.sampled_from([
    ((20, 37), (1, 0)), ((33, 5), (1, 0)), ((3, 18, 21), (0, 2, 1)), ((18, 3, 19), (2, 1, 0)),
    ((17, 18, 19), (1, 2, 0)), ((2, 19, 5, 17), (0, 3, 1, 2)),
])  # fmt: skip


@pytest.mark.soak
@given(shapes, st.booleans(), st.sampled_from(["rows", "columns"]), st.sampled_from([16, 32]))
@settings(max_examples=40 if WHOLE else 12, deadline=None, suppress_health_check=list(HealthCheck))
def test_tiles_move_every_element_once(
    shape: tuple[tuple[int, ...], tuple[int, ...]], both: bool, order: str, size: int
) -> None:
    graph = permuted(*shape, both=both)
    program = lower(graph, Tiling(4, size, 16, order, tasks=1, keep_bytes=4096))
    counts = [np.zeros(o.span, int) for o in graph.outputs]
    assert program.across
    for key, block in program.blocks.items():
        axes = [loop.axis for loop in key.path] + [*key.dims, *([key.lane] if key.lane else [])]
        for access in (*block.values, *(w for w, _ in block.writes)):
            tile = program.across.get((key, access))
            if tile is None:
                if isinstance(access, Write):
                    for here in points(program, axes, {}):
                        counts[access.out][value(access.offset, here)] += 1
                continue
            held = list(entries(program, tile))
            scope = [loop.axis for loop in tile.scope]
            used = {(value(access.offset, here), *(here[a] for a in scope)) for here in points(program, axes, {})}
            assert len(held) == len(set(held)) and set(held) == used
            if isinstance(access, Write):
                np.add.at(counts[access.out], [element for element, *_ in held], 1)
    assert all((c == 1).all() for c in counts)


def test_along() -> None:
    axes = Axes()
    lane, other, third = axes.new(10), axes.new(20), axes.new(30)
    assert along(var(lane) * 20 + var(other), lane) is other
    assert along(var(lane) * 600 + var(other) * 30 + var(third) + 7, lane) is third
    assert along(var(lane) + var(other) * 10, lane) is None, "lies along the lanes"
    assert along(var(other), lane) is None, "is one for all lanes"
    assert along(var(lane) * 40 + var(other) * 2, lane) is None, "nothing is consecutive"
    assert along(Affine(3), lane) is None


@pytest.mark.parametrize("order", ["rows", "columns"])
def test_fills_stand_outside_the_loops_within_tiles(order: str) -> None:
    program = lower(
        permuted((64, 64), (1, 0), both=True),
        Tiling(16, 16, 16, order, tasks=1, keep_bytes=0),
    )
    reads = {t for t in program.across.values() if isinstance(t.access, Value)}
    writes = set(program.across.values()) - reads
    assert len(reads) == len(writes) == 1
    for tile in (*reads, *writes):
        assert len(tile.scope) == 2 and tile.along not in {loop.axis for loop in tile.scope}
    rows = {outer for inner, (outer, _) in program.tiles.items() if inner in {t.along for t in reads}}
    assert ({next(iter(reads)).scope[-1].axis} == rows) is (order == "rows")


def test_reasons() -> None:
    family = Transpose()
    reject = family.accepts(permuted((8, 16, 4), (1, 0, 2), both=False), CPU_DEVICE)
    assert reject is not None and "nothing is transposed" in reject.reason
