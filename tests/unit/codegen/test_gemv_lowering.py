"""Loop programs of family `gemv`: each element of the matrix is loaded once, inside no loop over the vectors."""

import re

from codegen.families.gemv import GemvSchedule, lower_gemv
from fusion_ir import building as build
from fusion_ir.dtype import bf16
from tests.support.devices import CPU_DEVICE
from tests.support.products import dense_graph, einsum_graph

ALONG_SUM = """\
loop i6 < 20:
  lanes i2 < 96 by 16, unrolled i1 < 3, unrolled i7 < 4:
    v0: f32 = load(0, 384*i6 + 96*i7 + i2)
    v1: f32 = load(1, 96*i1 + i2)
    take v2 fma(v0, v1) begin and end v2[i7][i1]: f32 in lanes of i2
  for i7 < 4, for i1 < 3:
    out0[12*i6 + 3*i7 + i1] = v2
"""


def test_rows_at_once() -> None:
    graph = einsum_graph("nk", "fk", "nf", {"n": 80, "k": 96, "f": 3})
    assert str(lower_gemv(graph, GemvSchedule(4, 4, 16, 1024), CPU_DEVICE)) == ALONG_SUM


def test_rows_that_are_left_over_have_a_loop_of_their_own() -> None:
    graph = einsum_graph("nk", "fk", "nf", {"n": 83, "k": 96, "f": 3})
    text = str(lower_gemv(graph, GemvSchedule(4, 4, 16, 1024), CPU_DEVICE))
    assert [int(n) for n in re.findall(r"^loop \w+ < (\d+)", text, re.MULTILINE)] == [20, 3]


def test_vectors_that_lie_across_are_brought_together_first() -> None:
    graph = einsum_graph("nk", "kf", "nf", {"n": 80, "k": 96, "f": 3}, bf16)
    first, _ = str(lower_gemv(graph, GemvSchedule(4, 4, 16, 1024), CPU_DEVICE)).split("loop", 1)
    assert first.startswith("for i1 < 3, lanes i2 < 96 by 16:")
    assert "keep v" in first


def test_columns_at_once() -> None:
    graph = einsum_graph("kn", "fk", "fn", {"n": 4096, "k": 96, "f": 16})
    program = lower_gemv(graph, GemvSchedule(8, 4, 16, 1024), CPU_DEVICE)
    (reduction,) = program.reductions.values()
    # Inside the loops over tiles and rows of the matrix: a turn for each four vectors.
    assert [loop.axis.extent for loop in reduction.site.path] == [4, 12]
    assert [a.extent for a in reduction.site.dims] == [4]
    assert sorted(a.extent for a in program.unrolled) == [4, 8]


def test_a_sum_of_any_number_of_terms_takes_many_rows_at_once() -> None:
    for k in (*range(32, 49), 101, 4001):
        graph = einsum_graph("kn", "fk", "fn", {"n": 4096, "k": k, "f": 2})
        program = lower_gemv(graph, GemvSchedule(8, 4, 16, 4096), CPU_DEVICE)
        rows = {r.site.path[-1].axis.extent for r in program.reductions.values()}
        rest = k % 8 + (8 if k % 8 == 1 else 0)
        assert rows == ({(k - rest) // 8, rest} if rest else {k // 8}), k
        assert 8 in {a.extent for a in program.unrolled}


def test_threads_have_equal_numbers_of_tiles() -> None:
    for columns in (520, 1000, 2999, 3000, 4000, 4001, 5000, 9000):
        for tile in (512, 1024, 2048, 4096):
            graph = einsum_graph("kn", "fk", "fn", {"n": columns, "k": 96, "f": 1})
            text = str(lower_gemv(graph, GemvSchedule(8, 4, 16, tile), CPU_DEVICE))
            tiles = int((re.match(r"loop \w+ < (\d+)", text) or ["", "1"])[1])
            assert tiles % CPU_DEVICE.units == 0 or tiles >= 4 * CPU_DEVICE.units, (columns, tile)
            assert -(-columns // tiles) <= tile


KEPT = """\
  loop i10 < 20:
    for i11 < 4, lanes i9 < 40 by 8:
      v1: f32 = load(1, 320*i10 + 80*i11 + 40*i8 + i9)
      keep v2: f32 = tanh(v1)
    for i6 < 5, lanes i9 < 40 by 8, unrolled i11 < 4:
      v0: f32 = load(0, 80*i6 + 4*i10 + i11)
      take v3 fma(v0, v2)
"""


def test_rows_that_are_kept_are_there_before_vectors_take_their_turns() -> None:
    """Axes of vectors have lower numbers than those of the rows that are unrolled."""
    graph = dense_graph([(5, 80), (80, 80)], lambda x, w: build.matmul(x, build.tanh(w)))
    assert KEPT in str(lower_gemv(graph, GemvSchedule(4, 4, 8, 40), CPU_DEVICE))


def test_few_vectors_are_unrolled_even_where_they_do_not_divide() -> None:
    for few, at_once in ((13, 1), (12, 4), (10, 2), (3, 3)):
        graph = einsum_graph("nk", "fk", "nf", {"n": 80, "k": 96, "f": few})
        program = lower_gemv(graph, GemvSchedule(1, 4, 16, 1024), CPU_DEVICE)
        assert max([a.extent for a in program.unrolled], default=1) == at_once
