"""The verifier accepts what `make` makes, and names what is wrong with anything else."""

from dataclasses import replace

import pytest

from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node, intern
from fusion_ir.dtype import bf16, f32
from fusion_ir.ops import make, make_input
from fusion_ir.verify import VerifyError, verify
from testing.tensors import graph_of, spec
from tests.support.small_graphs import random_graph


def add_graph(given: InputSpec, strides: tuple[int, ...] | None = None, donates: int | None = None) -> Graph:
    """x + x."""
    x = make_input(0, given)
    node = make("add", [x, x])
    return Graph((given,), (OutputSpec(node, strides or dense_strides(node.sizes), donates),))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_pass(seed: int) -> None:
    verify(random_graph(seed))


@pytest.mark.parametrize(
    "given",
    [
        spec((2, 3), f32, (3, 1)), spec((2, 3), f32, (1, 2)), spec((2, 3), f32, (0, 1)), spec((2, 3), f32, (0, 0)),
        spec((2, 3), f32, (100, 7)), spec((1, 3), f32, (0, 1)), spec((0, 3), f32, (3, 1)), spec((), f32, ()),
        spec((1,) * 12, f32),
    ],
)  # fmt: skip
def test_layouts_that_pass(given: InputSpec) -> None:
    verify(add_graph(given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (spec((2, 3), f32, (3, -1)), "input 0: axis 1 has negative stride -1"),
        (spec((2, 3), f32, (2, 1)), "input 0: strides overlap"),
        (spec((2, 3), f32, (1, 1)), "input 0: strides overlap"),
        (spec((2, 3), f32, (1,)), "input 0: expected 2 strides, got 1"),
        (spec((1,) * 13, f32), "input 0: rank 13"),
        (spec((1 << 20, (1 << 20) + 1), f32), "input 0: shape"),
        (spec((2, 2), f32, (1 << 41, 1)), "input 0: strides span"),
        (replace(spec((2,), f32), alignment_bytes=12), "input 0: alignment 12"),
        (replace(spec((2,), f32), alignment_bytes=2), "input 0: alignment 2"),
    ],
)
def test_inputs_that_do_not(given: InputSpec, message: str) -> None:
    with pytest.raises(VerifyError) as error:
        verify(add_graph(given))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("strides", "message"),
    [((0, 1), "output 0: strides overlap"), ((2, 1), "output 0: strides overlap"), ((3, -1), "output 0: axis 1")],
)
def test_output_strides(strides: tuple[int, ...], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(add_graph(spec((2, 3), f32), strides))
    verify(add_graph(spec((2, 3), f32), (1, 2)))
    verify(add_graph(spec((2, 3), f32), (8, 2)))


def test_a_result_may_not_grow_beyond_the_limits() -> None:
    huge = graph_of([spec((2,), f32)], lambda x: x)
    x = make_input(0, huge.inputs[0])
    wide = make("broadcast_in_dim", [x], {"shape": shape_of([1 << 40, 2]), "dims": (1,)})
    total = make("sum", [wide], {"axes": (0,)})
    with pytest.raises(VerifyError, match=r"node 1 \(broadcast_in_dim\): shape"):
        verify(Graph(huge.inputs, (OutputSpec(total, (1,)),)))


def test_nodes_that_no_rule_makes() -> None:
    given = spec((2, 3), f32)
    x = make_input(0, given)
    wrong_shape = intern("neg", (x,), {}, shape_of([3, 2]), f32)
    wrong_dtype = intern("neg", (x,), {}, shape_of([2, 3]), bf16)
    unknown = intern("frobnicate", (x,), {}, shape_of([2, 3]), f32)
    no_rule = intern("sum", (x,), {"axes": (5,)}, shape_of([2]), f32)
    attrs = intern("neg", (x,), {"axis": 1}, shape_of([2, 3]), f32)
    copy = Node("neg", (x,), (), shape_of([2, 3]), f32)  # not interned: `is` would not hold
    for node, message in (
        (wrong_shape, "its parts make"),
        (wrong_dtype, "its parts make"),
        (unknown, "no op 'frobnicate'"),
        (no_rule, "axis 5 is out of range"),
        (attrs, "takes attributes"),
        (copy, "its parts make"),
    ):
        with pytest.raises(VerifyError, match=message) as error:
            verify(Graph((given,), (OutputSpec(node, dense_strides(node.sizes)),)))
        assert error.value.place == f"node 1 ({node.op})"


def test_input_nodes_agree_with_the_specs() -> None:
    given = spec((2, 3), f32)
    for node, message in (
        (make_input(1, given), "reads input 1 of 1"),
        (make_input(0, spec((2, 3), f32, (1, 2))), "strides"),
        (make_input(0, replace(given, constant="v1")), "constant"),
        (make_input(0, spec((3, 2), f32)), "its parts make"),
    ):
        with pytest.raises(VerifyError, match=message):
            verify(Graph((given,), (OutputSpec(make("neg", [node]), dense_strides(node.sizes)),)))


def test_donations() -> None:
    verify(add_graph(spec((2, 3), f32), donates=0))
    with pytest.raises(VerifyError, match="output 0: donates input 1 of 1"):
        verify(add_graph(spec((2, 3), f32), donates=1))
    with pytest.raises(VerifyError, match=r"output 0: .*takes over a buffer like its own"):
        verify(add_graph(spec((2, 3), f32, (1, 2)), donates=0))
    with pytest.raises(VerifyError, match="constant"):
        verify(add_graph(replace(spec((2, 3), f32), constant="v1"), donates=0))
    graph = add_graph(spec((2, 3), f32), donates=0)
    with pytest.raises(VerifyError, match="two outputs"):
        verify(Graph(graph.inputs, graph.outputs * 2))
    narrower = make("cast", [make_input(0, graph.inputs[0])], {"dtype": bf16})
    with pytest.raises(VerifyError, match="takes over"):
        verify(Graph(graph.inputs, (OutputSpec(narrower, (3, 1), 0),)))
