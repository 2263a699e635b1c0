"""Blocks of rows: where there are any, and that they hold what they should."""

from collections.abc import Callable

import pytest

from codegen.families import FAMILIES
from codegen.families.loop_nest import lower, steps_apart
from codegen.kernel import EmitError
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from tests.support.devices import CPU_DEVICE
from tests.unit.codegen.test_memory_order import Inputs, graph_of


def heads_of_groups(new: Inputs) -> Node:
    return build.sum_(build.permute(build.reshape(new(40, 6 * 32), (40, 3, 2, 32)), (1, 2, 0, 3)), [1])


APART: dict[str, Callable[[Inputs], Node]] = {
    "heads first": lambda new: build.permute(new(40, 6, 32), (1, 0, 2)),
    "heads of one tensor": lambda new: build.permute(build.reshape(new(40, 6 * 32), (40, 6, 32)), (1, 0, 2)),
    "sums of groups": heads_of_groups,
    "strides": lambda new: build.neg(new(40, 6, 32, strides=(32, 40 * 32, 1))),
    "halves": lambda new: build.permute(build.slice_(new(40, 6, 32), (0, 0, 16), (40, 6, 32)), (1, 0, 2)),
    "heads back in rows": lambda new: build.reshape(build.permute(new(6, 40, 32), (1, 0, 2)), (40, 6 * 32)),
    "beside a table": lambda new: build.mul(build.permute(new(40, 6, 32), (1, 0, 2)), new(40, 32)),
}
TOGETHER: dict[str, Callable[[Inputs], Node]] = {
    "rows": lambda new: build.exp(new(40, 6, 32)),
    "a table": lambda new: build.mul(new(6, 40, 32), new(40, 32)),
    "a transpose": lambda new: build.permute(new(20, 30), (1, 0)),
    "an axis of one": lambda new: build.permute(new(1, 6, 32), (1, 0, 2)),
    "a sum over the outer one": lambda new: build.sum_(new(40, 6, 32), [0]),
}


def blocks(graph: Graph) -> int:
    """Loops inside the outermost of a program in blocks."""
    program = lower(graph, 16, 64, 1024, least_tasks=1, keep_bytes=1 << 16, block=4)
    (path,) = {key.path for key, block in program.blocks.items() if block.writes}
    assert path[-1].axis.extent == 4
    assert program.tiles[path[-1].axis][0] is path[0].axis
    return len(path) - 1


@pytest.mark.parametrize("name", APART)
def test_apart(name: str) -> None:
    graph = graph_of(APART[name])
    assert steps_apart(graph, 16)
    assert blocks(graph) == 2
    assert any(
        "block=16" in s
        for f in FAMILIES.values()
        if not f.accepts(graph, CPU_DEVICE)
        for s in f.space(graph, CPU_DEVICE)
    )


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str) -> None:
    graph = graph_of(TOGETHER[name])
    assert not steps_apart(graph, 16)
    with pytest.raises(EmitError, match="in one order"):
        blocks(graph)
