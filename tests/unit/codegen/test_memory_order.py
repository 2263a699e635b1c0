"""Orders: shapes alone tell where a tensor lies across, as the lowering finds it."""

from collections.abc import Callable

import pytest

from codegen.families.memory_order import lies_across
from codegen.families.transpose import NOTHING, Tiling, lower
from codegen.kernel import EmitError
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.ops import make_input

Inputs = Callable[..., Node]


def cat_of_both(new: Inputs) -> Node:
    a, b = new(20, 30), new(30, 20)
    return build.cat([a, build.permute(b, (1, 0))], 1)


ACROSS: dict[str, Callable[[Inputs], Node]] = {
    "transpose": lambda new: build.permute(new(20, 30), (1, 0)),
    "beside a straight one": lambda new: build.add(new(20, 30), build.permute(new(30, 20), (1, 0))),
    "strides": lambda new: build.neg(new(20, 30, strides=(1, 20))),
    "merged after": lambda new: build.reshape(build.permute(new(4, 20, 30), (2, 0, 1)), (30, 80)),
    "split before": lambda new: build.permute(build.reshape(new(600), (20, 30)), (1, 0)),
    "split after": lambda new: build.reshape(build.permute(new(20, 64), (1, 0)), (8, 8, 20)),
    "channels last": lambda new: build.add(build.permute(new(2, 5, 40), (0, 2, 1)), new(5)),
    "two of three": lambda new: build.permute(new(20, 30, 40), (1, 2, 0)),
    "sliced": lambda new: build.slice_(build.permute(new(40, 30), (1, 0)), (1, 2), (30, 33)),
    "cat": cat_of_both,
}  # fmt: skip
STRAIGHT: dict[str, Callable[[Inputs], Node]] = {
    "rows": lambda new: build.add(new(20, 30), new(30)),
    "columns": lambda new: build.mul(new(20, 30), build.reshape(new(20), (20, 1))),
    "outer axes": lambda new: build.permute(new(20, 30, 40), (1, 0, 2)),
    "there and back": lambda new: build.permute(build.exp(build.permute(new(20, 30), (1, 0))), (1, 0)),
    "an axis of one": lambda new: build.permute(new(20, 1, 30), (0, 2, 1)),
    "a product of a turned one": lambda new: build.matmul(build.permute(new(3, 40), (1, 0)), new(3, 50)),
    "a product": lambda new: build.matmul(new(40, 3), new(3, 50)),
    "same strides": lambda new: build.permute(new(20, 30, strides=(1, 20)), (1, 0)),
}


def graph_of(make: Callable[[Inputs], Node]) -> Graph:
    specs: list[InputSpec] = []

    def new(*sizes: int, strides: tuple[int, ...] | None = None) -> Node:
        specs.append(InputSpec(shape_of(sizes), f32, strides or dense_strides(sizes), 4))
        return make_input(len(specs) - 1, specs[-1])

    node = make(new)
    return Graph(tuple(specs), (OutputSpec(node, dense_strides(node.sizes)),))


def lowered(graph: Graph) -> str:
    """Why there is no loop program with tiles, if there is none."""
    try:
        lower(graph, Tiling(16, 16, 16, "columns", tasks=16, keep_bytes=1 << 16))
    except EmitError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ACROSS)
def test_across(name: str) -> None:
    graph = graph_of(ACROSS[name])
    assert lies_across(graph)
    assert lowered(graph) == ""


@pytest.mark.parametrize("name", STRAIGHT)
def test_straight(name: str) -> None:
    graph = graph_of(STRAIGHT[name])
    assert not lies_across(graph)
    assert lowered(graph) == NOTHING
