"""Splitting reductions: when, into what, and with the same values."""

import numpy as np
import pytest

from fusion_ir import build
from fusion_ir.comparison import compare
from fusion_ir.dtype import DTYPES, bf16, f32, i32
from fusion_ir.graph import Graph
from fusion_ir.interpreter import interpret
from fusion_ir.node import Node
from fusion_ir.ops import make, make_input
from fusion_ir.sample import sample_inputs
from fusion_ir.tolerance import reference
from scheduler.prepare import prepare
from scheduler.rewrites.split import splitting
from tests.support.kernels import dense, graph_of

TASKS = 16


def split(node: Node) -> Node | None:
    return splitting(TASKS).apply(node)


def reduced(op: str, sizes: tuple[int, ...], axes: tuple[int, ...], dtype: str = "f32") -> Node:
    x = make_input(0, dense(*sizes, dtype=DTYPES[dtype]))
    return make(op, [x], {"axes": axes} | ({"correction": 1} if op == "var" else {}))


def test_a_column_sum_before_and_after() -> None:
    x = make_input(0, dense(8192, 64))
    parts = make("sum", [build.reshape(x, (16, 512, 64))], {"axes": (1,)})
    assert split(make("sum", [x], {"axes": (0,)})) is make("sum", [parts], {"axes": (0,)})


@pytest.mark.parametrize(
    ("sizes", "axes"),
    [
        ((4096, 2048), (1,)),  # rows enough
        ((2, 64, 128, 32), (2,)),  # so are the axes outside
        ((16, 64, 3136), (0, 2)),  # channels enough
        ((64, 64), (0,)),  # takes less than a launch
        ((65537, 3), (0,)),  # a prime
        ((8, 16384), (0,)),  # too few rows for parts of four
    ],
)
def test_what_stays_whole(sizes: tuple[int, ...], axes: tuple[int, ...]) -> None:
    assert split(reduced("sum", sizes, axes)) is None


@pytest.mark.parametrize("op", ["sum", "mean", "var", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize(("sizes", "axes"), [((2048, 40), (0,)), ((256, 4, 80), (0, 1, 2)), ((3, 1024, 32), (1,))])
def test_values_stay(op: str, dtype: str, sizes: tuple[int, ...], axes: tuple[int, ...]) -> None:
    node = reduced(op, sizes, axes, dtype)
    graph = Graph((dense(*sizes, dtype=DTYPES[dtype]),), graph_of((), node).outputs)
    prepared = prepare(graph, TASKS)
    assert prepared.rewrites == ("split-reduction",)
    inputs = sample_inputs(graph, seed=3)
    judged = compare(interpret(prepared.graph, inputs), reference(graph, inputs))
    assert judged.ok, judged.problem


def test_integers_and_truth_values_are_exact() -> None:
    for op, dtype in (("sum", i32), ("prod", i32)):
        spec = dense(1024, 80, dtype=dtype)
        graph = graph_of((spec,), make(op, [make_input(0, spec)], {"axes": (0,)}))
        inputs = sample_inputs(graph, seed=1)
        np.testing.assert_array_equal(interpret(prepare(graph, TASKS).graph, inputs)[0], interpret(graph, inputs)[0])


def test_parts_are_kept_in_the_dtype_of_accumulation() -> None:
    node = split(reduced("sum", (4096, 64), (0,), "bf16"))
    assert node is not None
    assert node.dtype == bf16
    assert node.op == "cast"
    assert node.args[0].op == "sum"
    assert node.args[0].args[0].dtype == f32
