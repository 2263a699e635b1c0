"""Properties of random graphs: text and keys, and every loop program interpreted point by point."""

import random
from itertools import product

import numpy as np
from hypothesis import HealthCheck, given, settings

from codegen.families.pointwise import lower
from codegen.lowering.index import Axis
from codegen.lowering.program import Program
from fusion_ir.extent import dense_strides
from fusion_ir.graph import Graph, OutputSpec
from fusion_ir.key import graph_key, segment_key
from fusion_ir.node import Node, intern
from fusion_ir.text import parse_graph, print_graph
from tests.support.drawn import graphs
from tests.unit.codegen.test_index import value

RANDOM = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@given(graphs())
@RANDOM
def test_text_is_an_exact_inverse(graph: Graph) -> None:
    assert parse_graph(print_graph(graph)).graph == graph


@given(graphs())
@RANDOM
def test_every_changed_attribute_changes_the_key(graph: Graph) -> None:
    """Each integer attribute of the last op, off by one, gives another key wherever the rules allow the change."""
    key = graph_key(graph)
    output = graph.outputs[0].node
    for name, attr in output.attrs:
        if isinstance(attr, tuple) and attr and all(isinstance(x, int) for x in attr):
            changed = {**dict(output.attrs), name: (attr[0] + 1, *attr[1:])}
            node = intern(output.op, output.args, changed, output.shape, output.dtype)
            assert graph_key(_with_output(graph, node)) != key


@given(graphs())
@RANDOM
def test_a_segment_key_does_not_see_the_order_of_its_boundary(graph: Graph) -> None:
    order = list(range(len(graph.outputs)))
    random.Random(len(order)).shuffle(order)
    shuffled = Graph(graph.inputs, tuple(graph.outputs[i] for i in order))
    if len({o.node for o in graph.outputs}) == len(graph.outputs):
        assert segment_key(shuffled) == segment_key(graph)


@given(graphs(pointwise=True))
@RANDOM
def test_every_element_is_written_once(graph: Graph) -> None:
    """Whatever the width and the tiles: a loop program's writes cover every element of every output exactly once."""
    for width, tile in ((1, 1 << 20), (8, 64), (32, 4096)):
        program = lower(graph, width, tile, tile, least_tasks=4, keep_bytes=4096)
        counts = [np.zeros(o.span, int) for o in graph.outputs]
        for out, offset in _written(program):
            counts[out][offset] += 1
        assert all((c == 1).all() for c in counts)


@given(graphs(pointwise=True))
@RANDOM
def test_values_are_defined_before_they_are_read(graph: Graph) -> None:
    """At every place, an operand is computed there or kept by a block of an enclosing or earlier place."""
    program = lower(graph, 8, 64, 64, least_tasks=4, keep_bytes=4096)
    for key, block in program.blocks.items():
        for v in block.values:
            for a in v.args:
                if a.op == "const" or a in block.values:
                    continue
                home = program.kept.get(a) or next(k for k, b in program.blocks.items() if a in b.values and not k.lane)
                assert key.path[: len(home.path)] == home.path
                assert set(home.dims) <= set(key.dims) | set(key.path)
                assert home.lane in (None, key.lane)


def _with_output(graph: Graph, node: Node) -> Graph:
    spec = OutputSpec(node, dense_strides(node.sizes))
    return Graph(graph.inputs, (spec, *graph.outputs[1:]))


def _written(program: Program) -> list[tuple[int, int]]:
    """(output, offset) of every write, lanes beyond the end of a last tile left out."""
    found: list[tuple[int, int]] = []
    for key, block in program.blocks.items():
        for w, repeats in block.writes:
            axes: list[Axis] = [*key.path, *repeats, *([key.lane] if key.lane else [])]
            for point in product(*(range(a.extent) for a in axes)):
                at = dict(zip(axes, point, strict=True))
                last = program.last_tile(key.lane) if key.lane else None
                if key.lane and last and last[0] in at and at[last[0]] * key.lane.extent + at[key.lane] >= last[1]:
                    continue
                found.append((w.out, value(w.offset, at)))
    return found
