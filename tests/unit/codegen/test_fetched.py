"""Indices that are values: rewriting them, and how wide accesses with them may be."""

import pytest

from codegen.lowering.access import Pattern, pattern
from codegen.lowering.index import Affine, Axes, Fetched, clamp, digit, var
from codegen.lowering.value import Values, rewrite_offsets
from fusion_ir.dtype import f32, i64


def fetched(value: object, extent: int) -> Affine:
    return Affine.of(0, [(Fetched(value, extent), 1)])  # type: ignore[arg-type]


def test_substitution_leaves_values_and_refuses_those_that_vary() -> None:
    axes, values = Axes(), Values()
    i, j, k = axes.new(8), axes.new(4), axes.new(4)
    row = values.load(0, var(i), i64)
    e = fetched(row, 9) * 4 + var(j)
    assert e.subst({j: var(k)}) == fetched(row, 9) * 4 + var(k)
    with pytest.raises(TypeError, match="rewrite it first"):
        e.subst({i: var(k)})


def test_values_are_replaced_inside_opaque_terms_too() -> None:
    axes, values = Axes(), Values()
    i = axes.new(8)
    old, new = values.load(0, var(i), i64), values.load(1, var(i), i64)
    e = digit(fetched(old, 9), 2, 3) + clamp(fetched(old, 9) + -2, 5) * 3
    assert e.refetch(lambda _: new) == digit(fetched(new, 9), 2, 3) + clamp(fetched(new, 9) + -2, 5) * 3
    assert e.refetch(lambda x: x) == e


def test_a_rewritten_load_reads_by_the_rewritten_index() -> None:
    axes, values = Axes(), Values()
    i, hi, lo = axes.new(8), axes.new(2), axes.new(4)
    table = values.load(0, fetched(values.load(1, var(i), i64), 9) * 5 + var(i), f32)
    mapping = {i: var(hi) * 4 + var(lo)}
    (made,) = rewrite_offsets(Values(), [table], lambda e: e.subst(mapping), lambda own: own)
    (index,) = made.offset.fetched
    assert made.args == (index,) and made.deps == {hi, lo}
    assert made.offset == fetched(index, 9) * 5 + var(hi) * 4 + var(lo)


def test_rows_are_as_wide_as_their_distance_allows() -> None:
    axes, values = Axes(), Values()
    row, lane = axes.new(8), axes.new(64)
    at = fetched(values.load(0, var(row), i64), 9)
    assert pattern(at * 64 + var(lane), lane, 16, 8) == Pattern("vector", 8)
    assert pattern(at * 6 + var(lane), lane, 16, 8) == Pattern("vector", 2)
    assert pattern(at * 64 + var(lane) * 2, lane, 16, 8) == Pattern("strided", 1, 2)
    assert pattern(at * 64 + var(row), lane, 16, 8) == Pattern("splat", 1)


def test_an_index_for_each_lane_is_no_run() -> None:
    axes, values = Axes(), Values()
    lane = axes.new(64)
    at = fetched(values.load(0, var(lane), i64), 9)
    assert pattern(at * 64 + var(lane), lane, 16, 8).kind == "lanes"
    assert pattern(at * 64 + digit(var(lane), 1, 4), lane, 16, 8).kind == "lanes"
