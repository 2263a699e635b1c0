"""Reductions in loops: faults that random graphs found, each in the smallest graph that shows it."""

from functools import reduce

import pytest

from codegen.child.case import judge, make_case
from codegen.families import FAMILIES, loop_nest
from codegen.families.loop_nest import lower
from codegen.kernel import EmitError
from codegen.lowering import stores
from codegen.lowering.stores import Pulled
from fusion_ir import building as B
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from testing.tensors import graph_of, spec
from tests.support.devices import CPU_DEVICE
from tests.support.program_runs import ProgramError, run_program


def check(graph: Graph, width: int = 8, tile: int = 16, keep_bytes: int = 1 << 16) -> None:
    """The program of a graph computes what the graph means."""
    program = lower(graph, width, tile, tile, least_tasks=4, keep_bytes=keep_bytes)
    case = make_case(graph, 0)
    for i, input_set in enumerate(case.input_sets):
        assert not judge(case, i, run_program(program, graph, input_set.inputs)).problem


def test_a_sum_along_the_lanes_of_what_repeats_there() -> None:
    """The padded rows are constant, so the lanes over which they are summed are none of their own."""
    check(graph_of([spec((6, 20), f32)], lambda x: B.sum_(B.pad(x, (3, 0), (3, 0), 1.5), 1)))


def test_a_sum_runs_along_one_lane_axis_only() -> None:
    """The upper rows repeat along the axis that is summed, the lower ones along the rows: either could be lanes."""

    def build(x: Node, y: Node) -> Node:
        return B.sum_(B.cat([B.expand(x, (24, 16)), B.expand(y, (24, 16))], 0), 1)

    check(graph_of([spec((24, 1), f32), spec((1, 16), f32)], build))


def test_a_sum_inside_another_over_an_axis_of_the_same_name() -> None:
    """Unrolled, the sum over rows puts 0, 1, 2 for its axis: not so inside the mean, which runs over its own rows."""

    def build(x: Node) -> Node:
        y = B.div(x, B.add(B.abs_(B.mean(x, [0, 2], keepdims=True)), 1.0))
        return B.sub(y, B.sum_(y, [0], keepdims=True))

    check(graph_of([spec((3, 5, 4), f32)], build))


def test_a_contraction_with_a_piece_of_one_element() -> None:
    """K = 16 + 1 in a cat: the second piece runs over no axis at all."""
    check(graph_of([spec((5, 16), f32), spec((5, 1), f32), spec((17,), f32)],
                   lambda a, b, x: B.matmul(B.cat([a, b], 1), x)))  # fmt: skip


def test_the_last_tile_ends_once_in_each_scope() -> None:
    """The mean and the variance are two blocks over the lanes of one tile: where the last one ends has one name."""
    graph = graph_of([spec((20, 300), f32)], lambda x: B.var(x, 0))
    family = FAMILIES["reduction"]
    text = family.emit(graph, family.space(graph, CPU_DEVICE)[0].replace("tile=1024", "tile=128"), CPU_DEVICE).source
    scopes: list[set[str]] = [set()]
    for line in map(str.strip, text.splitlines()):
        if line.startswith("}"):
            scopes.pop()
        if line.startswith("const idx_t"):
            name = line.split(" = ")[0]
            assert name not in scopes[-1], line
            scopes[-1].add(name)
        if line.endswith("{"):
            scopes.append(set())
    assert "least_index" in text


@pytest.mark.parametrize("keep_bytes", [64, 1 << 16])
def test_rows_that_no_array_holds_are_computed_again(keep_bytes: int) -> None:
    """Small arrays change where values are computed, not what: softmax over a row of 100 in arrays of 16 floats."""
    check(graph_of([spec((6, 100), bf16)], B.softmax), keep_bytes=keep_bytes)


def test_a_result_that_outlives_its_loop_needs_an_array() -> None:
    """Row sums, read along the columns: they are kept where there is room, else the program is refused."""

    def build(x: Node) -> list[Node]:
        rows = B.sum_(x, 1, keepdims=True)
        return [B.sum_(B.mul(x, rows), 0)]

    graph = graph_of([spec((40, 24), f32)], build)
    check(graph)
    with pytest.raises(EmitError, match=r"read in another loop|accumulators"):
        lower(graph, 8, 16, 16, least_tasks=4, keep_bytes=16)


def test_the_runner_sees_a_read_before_the_end() -> None:
    """The program of a centred row with its phases turned round has no meaning."""
    graph = graph_of([spec((3, 16), f32)], lambda x: B.sub(x, B.mean(x, 1, keepdims=True)))
    program = lower(graph, 8, 16, 16, least_tasks=1, keep_bytes=1 << 16)
    (v,) = program.reductions
    case = make_case(graph, 0)
    del program.blocks[program.reductions[v].site].updates[:]
    with pytest.raises(ProgramError, match=r"not in scope|before it is filled"):
        run_program(program, graph, case.input_sets[0].inputs)


def test_the_runner_sees_elements_that_are_not_written() -> None:
    graph = graph_of([spec((3, 16), f32)], B.exp)
    program = lower(graph, 8, 16, 16, least_tasks=1, keep_bytes=1 << 16)
    for block in program.blocks.values():
        block.writes *= 2
    with pytest.raises(ProgramError, match="written"):
        run_program(program, graph, make_case(graph, 0).input_sets[0].inputs)


def test_kept_rows_fit_on_a_thread_s_stack_together() -> None:
    """Each of 80 rows of exponentials is within the cap of one array; together they would end the process."""

    def build(x: Node) -> Node:
        exps = [B.exp(B.mul(x, 0.01 * (k + 1))) for k in range(80)]
        total = B.sum_(reduce(B.add, exps), 1, keepdims=True)
        return reduce(B.add, [B.div(e, total) for e in exps])

    graph = graph_of([spec((2, 16000), f32)], build)
    with pytest.raises(EmitError, match="too large for a thread's stack"):
        lower(graph, 32, 128, 1024, least_tasks=16, keep_bytes=64 << 10)


def rows_and_channels(n: int, c: int, columns: int) -> Graph:
    """Rows less their means, and sums of the channels over all rows: the gradients of group norm in small."""
    graph = graph_of([spec((n, c, columns), f32)], lambda x: B.sub(x, B.mean(x, [1, 2], keepdims=True)))
    channels = B.sum_(graph.outputs[0].node.args[0], [0, 2])
    return Graph(graph.inputs, (*graph.outputs, OutputSpec(channels, (1,))))


def test_sums_for_each_channel_go_along_with_those_for_each_row() -> None:
    graph = rows_and_channels(6, 3, 40)
    program = lower(graph, 8, 64, 64, least_tasks=1, keep_bytes=1 << 12)
    taking = [block for block in program.blocks.values() if block.updates]
    assert [len(block.updates) for block in taking] == [2], "both read the tensor in one pass"
    assert len([b for b in program.blocks.values() if any(v.op == "load" for v in b.values)]) == 2
    check(graph, width=8, tile=64)


def test_sums_for_too_many_channels_are_taken_on_their_own() -> None:
    graph = rows_and_channels(6, 300, 8)
    assert str(lower(graph, 8, 64, 64, least_tasks=1, keep_bytes=1 << 12))
    check(graph, width=8, tile=64, keep_bytes=1 << 12)


def test_a_segment_that_is_no_loop_nest_is_found_to_be_none_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for its schedules, and for a kernel by each of them, waits for one attempt."""

    graph = graph_of([spec((4, 30), f32)], lambda x: B.sum_(B.exp(B.tanh(B.mul(x, x))), 1))
    monkeypatch.setattr(stores, "MAX_VALUES", 3)
    attempts: list[Graph] = []
    usual = loop_nest.pull_outputs

    def counted(segment: Graph) -> Pulled:
        attempts.append(segment)
        return usual(segment)

    monkeypatch.setattr(loop_nest, "pull_outputs", counted)
    for width in (4, 8, 16):
        with pytest.raises(EmitError):
            lower(graph, width, 16, 16, least_tasks=4, keep_bytes=1 << 16)
    assert len(attempts) == 1
