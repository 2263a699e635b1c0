"""Keys: blind to names, the order of writing and, for segments, the order of the boundary; sensitive to all else."""

import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node, intern
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import bf16, f16, f32, i64
from fusion_ir.errors import FormatError
from fusion_ir.keys.graph_key import canonical_segment, graph_key, segment_key
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from fusion_ir.text.printing import parse_graph, print_graph
from tests.support.small_graphs import random_graph

SEEDS = range(80)


def rewritten(text: str, rng: random.Random) -> str:
    """The text of the graph as another writer would send it: nodes in another order and with other numbers, tensors
    named."""
    lines = text.rstrip("\n").split("\n")
    nodes = [line for line in lines if line.startswith("%")]
    written: list[str] = []
    done: set[str] = set()
    while nodes:
        line = rng.choice([n for n in nodes if set(re.findall(r"%\d+", n.split(" = ", 1)[1])) <= done])
        nodes.remove(line)
        done.add(line.split(" = ")[0])
        written.append(line)
    head = [line.replace(":", f" tensor_{rng.randrange(10**9)}:", 1) for line in lines[1:] if line.startswith("in")]
    tail = [line.replace(":", f" tensor_{rng.randrange(10**9)}:", 1) for line in lines if line.startswith("out")]
    offset = rng.randint(1, 100)
    moved = [re.sub(r"%(\d+)", lambda m: f"%{int(m[1]) * 3 + offset}", line) for line in (*written, *tail)]
    return "\n".join([lines[0], *head, *moved])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.sweep(0.4)
def test_renamed_and_reordered_graphs_agree(seed: int) -> None:
    graph, rng = random_graph(seed), random.Random(seed)
    text = print_graph(graph)
    other = rewritten(text, rng)
    assert other != text
    assert graph_key(parse_graph(other).graph) == graph_key(graph)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.sweep(0.2)
def test_every_change_of_a_token_changes_the_key(seed: int) -> None:
    """Each number, dtype and op of the text is changed in turn: a different graph has a different key."""
    graph, rng = random_graph(seed), random.Random(seed)
    text, key = print_graph(graph), graph_key(graph)
    changed = 0
    for match in re.finditer(r"\b(?:0x)?[0-9a-f]+\b|\b(?:f32|bf16|i64|add|mul|exp|neg|sum)\b|\"v1\"", text):
        token = match.group()
        options = ["f32", "bf16", "i64", "0", "1", "2", "32", "add", "exp", "mul", '"v2"']
        if token.startswith("0x"):
            options = [f"0x{int(token, 16) ^ 1:0{len(token) - 2}x}"]
        for new in rng.sample(options, len(options)):
            try:
                other = parse_graph(text[: match.start()] + new + text[match.end() :]).graph
            except FormatError:
                continue
            if other != graph:
                changed += 1
                assert graph_key(other) != key, f"{token} -> {new} at {match.start()}"
    assert changed


SPEC = InputSpec(shape_of((4, 8)), f32, (8, 1))


def _graph(
    spec: InputSpec = SPEC,
    function: Callable[[Node, Node], Node] = lambda x, y: make("sub", [x, y]),
    strides: tuple[int, ...] = (8, 1),
    donates: int | None = None,
) -> Graph:
    x, y = make_input(0, spec), make_input(1, SPEC)
    return Graph((spec, SPEC), (OutputSpec(function(x, y), strides, donates), OutputSpec(make("exp", [y]), (8, 1))))


def _times(x: Node, value: float) -> Node:
    return make("mul", [x, make("full", [], {"shape": x.shape, "value": Scalar.of(value, x.dtype)})])


VARIANTS: dict[str, Graph] = {
    "plain": _graph(),
    "other op": _graph(function=lambda x, y: make("add", [x, y])),
    "operands swapped": _graph(function=lambda x, y: make("sub", [y, x])),
    "one operand twice": _graph(function=lambda x, y: make("sub", [y, y])),
    "constant 0.0": _graph(function=lambda x, y: _times(x, 0.0)),
    "constant -0.0": _graph(function=lambda x, y: _times(x, -0.0)),
    "shape": _graph(
        InputSpec(shape_of((8, 8)), f32, (8, 1)),
        lambda x, y: make("slice", [x], {"start": (0, 0), "stop": (4, 8), "step": (1, 1)}),
    ),
    "start": _graph(
        InputSpec(shape_of((8, 8)), f32, (8, 1)),
        lambda x, y: make("slice", [x], {"start": (1, 0), "stop": (5, 8), "step": (1, 1)}),
    ),
    "step": _graph(
        InputSpec(shape_of((8, 8)), f32, (8, 1)),
        lambda x, y: make("slice", [x], {"start": (0, 0), "stop": (8, 8), "step": (2, 1)}),
    ),
    "dtype": _graph(InputSpec(shape_of((4, 8)), bf16, (8, 1)), lambda x, y: make("cast", [x], {"dtype": f32})),
    "input dtype": _graph(InputSpec(shape_of((4, 8)), f16, (8, 1)), lambda x, y: make("cast", [x], {"dtype": f32})),
    "input strides": _graph(replace(SPEC, strides=(16, 1))),
    "input order": _graph(replace(SPEC, strides=(1, 4))),
    "alignment": _graph(replace(SPEC, alignment_bytes=8)),
    "constant": _graph(replace(SPEC, constant="v1")),
    "constant's version": _graph(replace(SPEC, constant="v2")),
    "output strides": _graph(strides=(1, 4)),
    "donates": _graph(donates=0),
    "donates the other": _graph(donates=1),
}


def test_every_listed_change_changes_the_key() -> None:
    graphs = dict(VARIANTS)
    plain = graphs["plain"]
    graphs["outputs swapped"] = replace(plain, outputs=plain.outputs[::-1])
    graphs["output repeated"] = replace(plain, outputs=(*plain.outputs, plain.outputs[0]))
    graphs["output missing"] = replace(plain, outputs=plain.outputs[:1])
    graphs["unused input"] = replace(plain, inputs=(*plain.inputs, SPEC))
    keys = {name: graph_key(graph) for name, graph in graphs.items()}
    assert len(set(keys.values())) == len(keys)


def shuffled(graph: Graph, rng: random.Random) -> tuple[Graph, list[int], list[int]]:
    """The graph with inputs and outputs in another order; new input i was input `inputs[i]`."""
    inputs = rng.sample(range(len(graph.inputs)), len(graph.inputs))
    outputs = rng.sample(range(len(graph.outputs)), len(graph.outputs))
    moved: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op == "input":
            position = node.attr("position", int)
            moved[node] = make_input(inputs.index(position), graph.inputs[position])
        else:
            moved[node] = intern(node.op, tuple(moved[a] for a in node.args), dict(node.attrs), node.shape, node.dtype)
    specs = tuple(replace(graph.outputs[o], node=moved[graph.outputs[o].node]) for o in outputs)
    return Graph(tuple(graph.inputs[i] for i in inputs), specs), inputs, outputs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.sweep(0.4)
def test_segments_with_a_shuffled_boundary_agree(seed: int) -> None:
    graph, rng = random_graph(seed), random.Random(seed)
    other, _, _ = shuffled(graph, rng)
    assert canonical_segment(other).graph == canonical_segment(graph).graph
    assert segment_key(other) == segment_key(graph)


def test_symmetric_parts_are_told_apart_by_how_inputs_are_used() -> None:
    """exp(x) and exp(y) hash alike; that y is also negated tells them apart, in whatever order they come."""
    x, y = make_input(0, SPEC), make_input(1, SPEC)
    outputs = [OutputSpec(make("exp", [n]), (8, 1)) for n in (x, y)] + [OutputSpec(make("neg", [y]), (8, 1))]
    graphs = [
        Graph((SPEC, SPEC), (outputs[i], outputs[j], outputs[k])) for i, j, k in ((0, 1, 2), (1, 0, 2), (2, 1, 0))
    ]
    assert len({segment_key(g) for g in graphs}) == 1


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sweep(0.4)
def test_canonical_segment_computes_the_same(seed: int) -> None:
    graph = random_graph(seed)
    arrays = sample_inputs(graph, seed)
    canonical = canonical_segment(graph)
    expected = interpret(graph, arrays)
    actual = interpret(canonical.graph, [arrays[i] for i in canonical.inputs])
    for position, array in zip(canonical.outputs, actual, strict=True):
        assert array.tobytes() == expected[position].tobytes()


def test_segments_that_differ_have_different_keys() -> None:
    """Layouts, and which reads are one tensor, are in the key; constants, and alignment above 32 bytes, are not."""
    alike = {"plain", "constant", "constant's version"}
    keys = {name: segment_key(graph) for name, graph in VARIANTS.items()}
    assert len({keys[name] for name in alike}) == 1
    different = [keys[name] for name in VARIANTS if name not in alike]
    assert len(set(different)) == len(different)
    assert keys["plain"] not in different
    assert segment_key(_graph(replace(SPEC, alignment_bytes=64))) == segment_key(
        _graph(replace(SPEC, alignment_bytes=32))
    )
    assert segment_key(_graph(replace(SPEC, alignment_bytes=32))) != keys["plain"]


def test_strides_of_single_rows_do_not_count() -> None:
    keys = set()
    for stride in (8, 1, 77):
        spec = InputSpec(shape_of((1, 8)), f32, (stride, 1))
        keys.add(segment_key(Graph((spec,), (OutputSpec(make("neg", [make_input(0, spec)]), (8, 1)),))))
    assert len(keys) == 1


def test_key_is_stable_across_releases() -> None:
    """A change of this value makes every stored plan unreachable: bump the header's version with it."""
    spec = InputSpec(shape_of((3,)), i64, (1,))
    key = graph_key(Graph((spec,), (OutputSpec(make("neg", [make_input(0, spec)]), (1,)),)))
    assert key == "8aaf0abf46ba8736e998c2c8ce9443e8f79b169a6375de34ca137b1a93088b00"
