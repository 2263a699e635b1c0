"""Graphs as text: the parser is the exact inverse of the printer, and says where a text is wrong."""

import random

import pytest

from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.limits import LIMITS
from fusion_ir.core.named import NamedGraph
from fusion_ir.dtype import f32
from fusion_ir.errors import FormatError
from fusion_ir.ops import make, make_input
from fusion_ir.text.printing import parse_graph, print_graph
from tests.support.small_graphs import random_graph

GOOD = """fuseplan.graph 1
in0 x: f32[4, 8] align 16
in1: f32[8] strides [2] align 8 constant "v7"
%0 = in0: f32[4, 8]
%1 = in1: f32[8]
%2 = broadcast_in_dim(%1) {dims=[1], shape=[4, 8]}: f32[4, 8]
%3 = mul(%0, %2): f32[4, 8]
out0: %3 donates in0
"""


@pytest.mark.parametrize("seed", range(200))
def test_round_trip(seed: int) -> None:
    graph = random_graph(seed)
    text = print_graph(graph)
    parsed = parse_graph(text)
    assert parsed.graph == graph  # nodes are interned: equal graphs share them
    assert print_graph(parsed.graph) == text


NAMES = [
    "x",
    "two words",
    'quote " and \\',
    "new\nline",
    "\x00\x1f\x7f\u2028",
    "strides",
    "in1",
    "%0",
    "#",
    "日本",
    "\U0001f600",
]


def test_names_round_trip() -> None:
    spec = InputSpec(shape_of((2,)), f32, (1,))
    inputs = [make_input(i, spec) for i in range(len(NAMES))]
    graph = Graph((spec,) * len(NAMES), tuple(OutputSpec(n, (1,)) for n in inputs))
    named = NamedGraph(graph, tuple(NAMES), tuple(reversed(NAMES)))
    text = print_graph(named)
    assert parse_graph(text) == named
    assert len(text.splitlines()) == len(text.split("\n")) - 1  # no name breaks a line


def test_names_do_not_reach_the_canonical_text() -> None:
    graph = random_graph(3)
    one = NamedGraph(
        graph, tuple(f"a{i}" for i in range(len(graph.inputs))), tuple(f"b{i}" for i in range(len(graph.outputs)))
    )
    assert print_graph(one) != print_graph(NamedGraph.unnamed(graph))
    assert print_graph(one.graph) == print_graph(graph)


def test_unused_inputs_stay() -> None:
    spec = InputSpec(shape_of((3,)), f32, (1,))
    graph = Graph((spec, spec), (OutputSpec(make_input(1, spec), (1,)),))
    assert parse_graph(print_graph(graph)).graph == graph


def test_deep_chain_does_not_recurse() -> None:
    spec = InputSpec(shape_of((3,)), f32, (1,))
    node = make_input(0, spec)
    for _ in range(LIMITS.nodes - 1):
        node = make("neg", [node])
    graph = Graph((spec,), (OutputSpec(node, dense_strides(node.sizes)),))
    assert parse_graph(print_graph(graph)).graph == graph


def test_too_many_nodes() -> None:
    lines = "".join(f"%{i + 1} = neg(%{i}): f32[]\n" for i in range(LIMITS.nodes))
    with pytest.raises(FormatError, match=r"20003:1: 20,001 nodes, at most 20,000 are allowed"):
        parse_graph(f"fuseplan.graph 1\nin0: f32[] align 4\n%0 = in0: f32[]\n{lines}out0: %1\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fuseplan.graph 1", "fuseplan.graph 2", "1:1: expected the header"),
        ("f32[4, 8] align", "f33[4, 8] align", "2:8: expected a dtype"),
        ("f32[4, 8] align", "f32[4, -8] align", "2:11: axis 1 has extent -8"),
        ("f32[4, 8] align", f"f32{[1] * 13} align", "2:11: rank 13 is above the limit of 12"),
        ("f32[4, 8] align", "f32[4611686018427387904, 8] align", "2:11: shape .* at most 1099511627776"),
        ("f32[4, 8] align", "f32[99999999999999999999, 8] align", "2:12: .* is no 64-bit integer"),
        ("align 16", "align 3", "2:24: alignment 3"),
        ("align 16", "align 2", "2:24: alignment 2 of a tensor of f32: expected a power of two from 4"),
        ("\nin1: f32", "\nin2: f32", "3:1: expected in1, got 'in2'"),
        ("\nin1: f32", "\nin1 x: f32", "two inputs are named 'x'"),
        ("strides [2]", "strides [-2]", "3:21: axis 0 has negative stride -2"),
        ("strides [2]", "strides [2, 1]", "3:21: expected 1 strides, got 2"),
        ("%1 = in1", "%0 = in1", "5:1: %0 is defined twice"),
        ("= in1", "= in2", "5:6: input in2 is not declared; there are 2"),
        ("mul(", "mull(", "7:6: unknown op 'mull'; did you mean 'mul'"),
        ("mul(%0, %2)", "mul(%0)", "7:6: mul takes 2 operands, got 1"),
        ("mul(%0, %2)", "mul(%0, %1)", "7:6: mul: operands must have equal shapes"),
        ("mul(%0, %2)", "mul(%0, %9)", "7:14: '%9' is not defined before this line"),
        ("dims=[1], ", "", "6:6: broadcast_in_dim takes attributes"),
        ("dims=[1]", "dims=1", "6:33: expected"),
        ("dims=[1]", "axis=1", "6:28: attribute 'axis' of broadcast_in_dim: unknown"),
        ("dims=[1]", "dims=[1], dims=[1]", "6:38: attribute 'dims' of broadcast_in_dim: is given twice"),
        ("%3 = mul(%0, %2): f32[4, 8]", "%3 = mul(%0, %2): f32[8, 4]", r"7:19: mul gives f32\[4, 8\], but f32\[8, 4\]"),
        ("out0: %3", "out0: %3 strides [4, 1]", "8:18: strides overlap"),
        ("out0: %3", "out0: %3 strides [0, 1]", "8:18: strides overlap"),
        ("donates in0", "donates in1", "8:18: an output takes over a buffer like its own: %3 is .*, in1 is "),
        ("donates in0", "donates in9", "8:18: expected an input below in2"),
        ("out0: %3 donates in0\n", "", "the graph has no outputs"),
        ("out0: %3", "out0: %3 $", "8:10: unexpected character"),
        ("in0 x:", 'in0 "x:', "2:5: unexpected character"),
        ("in0 x:", 'in0 "\\ud800":', "2:5: lone surrogate"),
        ("in0 x:", 'in0 "\\q":', "2:5: bad string"),
        ("in0 x:", 'in0 "":', "2:5: a name has 1 to 256 characters, got 0"),
    ],
)
def test_errors_name_the_place(old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(FormatError, match=f"^{message}"):
        parse_graph(GOOD.replace(old, new))
    parse_graph(GOOD)


def test_mutations_raise_nothing_else() -> None:
    rng = random.Random(5)
    texts = [GOOD, *(print_graph(random_graph(seed)) for seed in range(20))]
    for _ in range(3000):
        characters = list(rng.choice(texts))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(characters))
            characters[at] = rng.choice(
                ["", "-", "9", "[", "]", "\n", '"', "\\u", "%", "x", " ", "\x00", characters[at] * 2]
            )
        try:
            parse_graph("".join(characters))
        except FormatError:
            continue
