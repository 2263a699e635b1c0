"""Properties of random graphs: text and keys, and every loop program run point by point against its graph."""

import random
from itertools import takewhile

import pytest
from hypothesis import HealthCheck, given, settings

from codegen.child.case import judge, make_case
from codegen.families import FAMILIES
from codegen.families.loop_nest import lower
from codegen.kernel import EmitError
from codegen.lowering.program import Key, Program
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node, intern
from fusion_ir.keys.graph_key import graph_key, segment_key
from fusion_ir.text.printing import parse_graph, print_graph
from scheduler.rewrites.prepare import prepare
from testing.random_graphs import Seeded
from testing.scatter_graphs import scatter_graph
from tests.support.devices import CPU_DEVICE
from tests.support.drawn import graphs, reductions
from tests.support.program_runs import run_program
from tests.support.random_reductions import reduction_graph
from tests.support.whole import WHOLE

RANDOM = settings(max_examples=60 if WHOLE else 10, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.soak
@given(graphs())
@RANDOM
def test_text_is_an_exact_inverse(graph: Graph) -> None:
    assert parse_graph(print_graph(graph)).graph == graph


@pytest.mark.soak
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


@pytest.mark.soak
@given(graphs())
@RANDOM
def test_a_segment_key_does_not_see_the_order_of_its_boundary(graph: Graph) -> None:
    order = list(range(len(graph.outputs)))
    random.Random(len(order)).shuffle(order)
    shuffled = Graph(graph.inputs, tuple(graph.outputs[i] for i in order))
    if len({o.node for o in graph.outputs}) == len(graph.outputs):
        assert segment_key(shuffled) == segment_key(graph)


@pytest.mark.soak
@given(graphs(pointwise=True))
@RANDOM
def test_a_pointwise_program_means_what_its_graph_means(graph: Graph) -> None:
    """Whatever the width and the tiles; so every element is written once, and nothing is read before it is there."""
    _check_programs(graph, 4096)


@pytest.mark.soak
@given(reductions())
@RANDOM
def test_a_program_with_reductions_means_what_its_graph_means(graph: Graph) -> None:
    _check_programs(prepare(graph).graph, 1 << 16)


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("seed", range(48))
def test_normalizations_mean_what_their_graphs_mean(seed: int) -> None:
    """Seeds find other graphs than hypothesis does, which keeps to the small."""
    _check_programs(prepare(reduction_graph(Seeded(seed), max_elements=60)).graph, 1 << 16)


@pytest.mark.sweep(0.2)
@pytest.mark.parametrize("seed", range(60))
def test_scatters_mean_what_their_graphs_mean(seed: int) -> None:
    graph = prepare(scatter_graph(Seeded(seed), max_elements=60)).graph
    if FAMILIES["scatter"].accepts(graph, CPU_DEVICE) is None:
        _check_programs(graph, 1 << 16)


@pytest.mark.soak
@given(reductions())
@RANDOM
def test_whoever_reads_a_reduction_comes_after_it(graph: Graph) -> None:
    """Where the places of a reduction and of a reader part ways, the reader's phase is a later one."""
    for program in _programs(prepare(graph).graph, 1 << 16):
        for key, block in program.blocks.items():
            read = {a for v in (*block.values, *block.updates) for a in v.args} | {w.value for w, _ in block.writes}
            for v in read & program.reductions.keys():
                home = program.reductions[v].home
                shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(home.path, key.path)))  # noqa: B905
                assert _phase(key, shared) > _phase(home, shared), (v, key)


def _phase(key: Key, depth: int) -> int:
    """When, among what is directly inside the first `depth` loops of its path, a place has its turn."""
    return key.path[depth].phase if depth < len(key.path) else key.phase


# Vector width, least tile, tile, least tasks, rows of a block.
WAYS = ((1, 4, 1 << 20, 1, 0), (8, 8, 16, 64, 0), (16, 32, 64, 4, 0), (8, 16, 64, 4, 3))


def _programs(graph: Graph, keep_bytes: int) -> list[Program]:
    """The programs of a graph; those that a schedule cannot have are left out."""
    found: list[Program] = []
    for width, least_tile, tile, tasks, block in WAYS:
        try:
            found.append(lower(graph, width, least_tile, tile, least_tasks=tasks, keep_bytes=keep_bytes, block=block))
        except EmitError:
            continue
    return found


def _check_programs(graph: Graph, keep_bytes: int) -> None:
    programs = _programs(graph, keep_bytes)
    if not programs:
        return
    case = make_case(graph, 0)
    for program in programs:
        for i, input_set in enumerate(case.input_sets):
            assert not judge(case, i, run_program(program, graph, input_set.inputs)).problem


def _with_output(graph: Graph, node: Node) -> Graph:
    spec = OutputSpec(node, dense_strides(node.sizes))
    return Graph(graph.inputs, (spec, *graph.outputs[1:]))
