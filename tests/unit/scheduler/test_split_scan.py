"""Splitting running sums: when, into what, and with the same values."""

import pytest

from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.dtype import DTYPES, f32
from fusion_ir.ops import make_input
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.split_reduction import Tasks
from scheduler.rewrites.rules.split_scan import split_scan
from testing.tensors import graph_of, spec
from tests.support.kernels import dense

ROWS, PARTS = 4, 16


@pytest.mark.parametrize(
    ("sizes", "axis"),
    [
        ((ROWS, 1 << 16), 1),  # rows enough
        ((1 << 16, ROWS), 0),  # so are columns
        ((1 << 15,), 0),  # takes less than a launch
        ((65537,), 0),  # a prime
    ],
)
def test_what_stays_whole(sizes: tuple[int, ...], axis: int) -> None:
    x = make_input(0, dense(*sizes, dtype=f32))
    assert split_scan(build.cumsum(x, axis), ROWS, PARTS) is None
    assert split_scan(build.sum_(x, [axis]), ROWS, PARTS) is None


@pytest.mark.parametrize(
    ("sizes", "axis", "dtype"),
    [
        ((1 << 17,), 0, "f32"),
        ((3, 1 << 16), 1, "bf16"),
        ((2, 1 << 16), 1, "f16"),
        ((1 << 16, 3), 0, "f64"),
        ((1, 70000, 2), 1, "i64"),
        ((70000,), 0, "bool"),
    ],
)
def test_values(sizes: tuple[int, ...], axis: int, dtype: str) -> None:
    graph = graph_of([spec(sizes, DTYPES[dtype])], lambda x: build.cumsum(x, axis))
    (output,) = graph.outputs
    made = split_scan(output.node, ROWS, PARTS)
    assert made is not None
    assert (made.sizes, made.dtype) == (output.node.sizes, output.node.dtype)
    inputs = sample_inputs(graph, seed=1)
    got = interpret(Graph(graph.inputs, (OutputSpec(made, output.strides),)), inputs)
    agreement = compare(got, reference(graph, inputs))
    assert agreement.ok, agreement.detail


def test_rows_of_a_search() -> None:
    """Few rows come in parts for the tasks there are, on a CPU beside the whole ones; as many as there are tasks stay
    whole."""
    for sizes, is_split in (((1 << 18,), True), ((64, 1 << 16), False)):
        graph = graph_of([spec(sizes, f32)], lambda x: build.cumsum(x, -1))
        for tasks in (Tasks(16), Tasks(64, 128)):
            prepared = prepare(graph, tasks=tasks, offers=ALTERNATIVES)
            in_parts = sum(n.op == "cumsum" for n in prepared.graph.nodes) == 2
            offered = {a.name for a in prepared.alternatives.found_by.values()} == {"split-scan"}
            assert (in_parts, offered) == (is_split and tasks.columns > 0, is_split and not tasks.columns)
