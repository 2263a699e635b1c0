"""Splitting reductions: when, into what, and with the same values."""

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, bf16, f32, i32
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules.split_reduction import Tasks, splitting
from tests.support.kernels import dense, graph_of

TASKS = Tasks(16)


def split(node: Node) -> Node | None:
    return splitting(TASKS)[-1].apply(node)


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


@pytest.mark.parametrize(
    ("sizes", "axes", "parts"),
    [
        ((1 << 22,), (0,), 64),  # one result
        ((8, 1 << 20), (1,), 8),  # eight rows
        ((1 << 14, 1024), (0,), 8),  # 1,024 columns: eight blocks of threads side by side
        ((1 << 14, 100), (0,), 64),  # one block
        ((64, 1 << 16), (1,), None),  # rows enough
        ((8, 1 << 14), (1,), None),  # each takes less than another launch
        ((64, 1 << 22), (1,), 2),  # enough, but long
    ],
)
def test_parts_for_blocks_of_threads(sizes: tuple[int, ...], axes: tuple[int, ...], parts: int | None) -> None:
    rule = splitting(Tasks(64, columns=128))[-1]
    found = rule.apply(reduced("sum", sizes, axes))
    if parts is None:
        assert found is None
    else:
        assert found is not None and found.args[0].sizes[min(axes)] == parts


def test_what_is_summed_is_made_again_for_blocks_of_threads() -> None:
    """The gradient of a batch norm reads what it sums once more: stored, x - mean would take twice as much as x."""
    sizes = (32, 8, 4096)
    x, mean = make_input(0, dense(*sizes, dtype=bf16)), make_input(1, dense(8))
    centred = build.sub(build.cast(x, f32), build.broadcast_in_dim(mean, sizes, (1,)))
    total = make("sum", [centred], {"axes": (0, 2)})
    tasks = Tasks(64, columns=128)
    found = splitting(tasks)[-1].apply(total)
    assert found is not None
    (difference,) = found.args[0].args
    assert (difference.op, difference.sizes) == ("sub", (8, 4, 8, 4096))
    assert difference.args[0] is build.cast(build.reshape(x, difference.sizes), f32)
    rows = make("sum", [centred], {"axes": (2,)})
    specs = (dense(*sizes, dtype=bf16), dense(8))
    joined = splitting(tasks.among(graph_of(specs, total, rows)))[-1].apply(total)
    assert joined is not None
    assert joined.args[0].args[0] is build.reshape(centred, (8, 4, 8, 4096)), "other sums read it as it is"


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


def test_a_variance_reads_each_part_once() -> None:
    """Nothing but the parts themselves reads the tensor."""
    node = split(reduced("var", (4096, 64), (0,)))
    assert node is not None
    (spec,) = (dense(4096, 64),)
    graph = graph_of((spec,), node)
    whole = make("reshape", [make_input(0, spec)], {"shape": shape_of((16, 256, 64))})
    assert graph.users[make_input(0, spec)] == (whole,)


SOFTMAX = {
    "rows": ((4, 1 << 16), build.softmax),
    "columns": ((1 << 14, 6), lambda x: build.softmax(x, 0)),
    "log": ((2, 3, 1 << 15), build.log_softmax),
    "bf16": ((4, 1 << 16), lambda x: build.softmax(build.cast(x, bf16))),
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_sums_of_powers_are_rescaled(name: str) -> None:
    sizes, make_node = SOFTMAX[name]
    graph = graph_of((dense(*sizes),), make_node(make_input(0, dense(*sizes))))
    prepared = prepare(graph, TASKS)
    assert "rescale-sum" in prepared.rewrites
    rng = np.random.default_rng(7)
    x = (rng.standard_normal(sizes) * 8).astype(np.float32)
    judged = compare(interpret(prepared.graph, [x]), reference(graph, [x]))
    assert judged.ok, judged.problem


def test_numerics_exact_splits_without_rescaling() -> None:
    x = make_input(0, dense(4, 1 << 16))
    graph = graph_of((dense(4, 1 << 16),), build.softmax(x))
    loose, exact = prepare(graph, TASKS), prepare(graph, TASKS, "exact")
    assert (loose.numerics, set(loose.rewrites)) == ("reassociate", {"rescale-sum", "split-reduction"})
    assert (exact.numerics, set(exact.rewrites)) == ("exact", {"split-reduction"})
    assert prepare(graph).numerics == "exact"


def test_a_sum_of_powers_of_something_else_is_only_split() -> None:
    x = make_input(0, dense(4, 1 << 16))
    less = build.sub(x, build.max_(build.neg(x), 1, keepdims=True))
    prepared = prepare(graph_of((dense(4, 1 << 16),), build.sum_(build.exp(less), 1)), TASKS)
    assert prepared.rewrites == ("split-reduction",)


def test_rows_with_infinities_and_nans() -> None:
    """A part of -inf alone, a row of it, +inf and NaN in one part of a row."""
    x = np.random.default_rng(3).standard_normal((5, 1 << 15)).astype(np.float32)
    x[0, :4096] = -np.inf
    x[1] = -np.inf
    x[2, 17] = np.inf
    x[3, 20000] = np.nan
    graph = graph_of((dense(*x.shape),), build.softmax(make_input(0, dense(*x.shape))))
    prepared = prepare(graph, TASKS)
    assert "rescale-sum" in prepared.rewrites
    with np.errstate(invalid="ignore"):
        found, expected = interpret(prepared.graph, [x])[0], interpret(graph, [x])[0]
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    assert np.isnan(expected[1:4]).all()
    assert (found[0, :4096] == 0).all()
