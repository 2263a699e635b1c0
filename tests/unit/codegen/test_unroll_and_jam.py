"""Rows side by side: every element as before, each shared load once, sums of products in their order."""

import numpy as np
import pytest

from codegen.families.loop_nest import lower
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import f32
from fusion_ir.ops import make_input
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from tests.support.kernels import dense, graph_of
from tests.support.program_runs import run_program


def product(m: int, k: int, n: int) -> Graph:
    """relu(a @ b + bias)"""
    specs = (dense(m, k), dense(k, n), dense(n))
    a, b, bias = (make_input(i, s) for i, s in enumerate(specs))
    return graph_of(specs, build.relu(build.add(build.matmul(a, b), bias)))


@pytest.mark.parametrize(("m", "k", "n"), [(8, 2, 33), (10, 3, 16), (3, 5, 70), (1, 4, 40), (17, 16, 5)])
@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_the_program_means_what_the_graph_means(m: int, k: int, n: int, rows: int) -> None:
    graph = product(m, k, n)
    inputs = sample_inputs(graph, seed=m * n + k)
    program = lower(graph, 16, 64, 4096, least_tasks=1, keep_bytes=1 << 16, rows=rows)
    for found, expected in zip(run_program(program, graph, inputs), interpret(graph, inputs), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_rows_share_what_they_load_along_lanes() -> None:
    program = lower(product(16, 4, 64), 16, 64, 4096, least_tasks=1, keep_bytes=1 << 16, rows=8)
    (block,) = [b for b in program.blocks.values() if b.writes]
    loads = [v for v in block.values if v.op == "load" and v.tensor == 1]
    assert (len(block.writes), len(loads)) == (8, 4), "four rows of b for eight rows of the product"
    order = block.ordered()
    first_use = {v: min(i for i, u in enumerate(order) if v in u.args) for v in loads}
    assert [v for v in order if v in loads] == sorted(loads, key=first_use.__getitem__)
    assert all(first_use[v] - order.index(v) <= 8 + 1 for v in loads), "loaded when the first row needs it"


def test_nothing_is_shared_where_every_load_varies_with_every_axis() -> None:
    spec = dense(8, 64, dtype=f32)
    graph = graph_of((spec,), build.exp(make_input(0, spec)))
    plain, rows = (str(lower(graph, 16, 64, 16, least_tasks=1, keep_bytes=1 << 16, rows=r)) for r in (1, 4))
    assert plain == rows
