"""Bytes of machine code of the longest loops over f64 that families allow: vectors of f64 take two registers where f32
takes one. A bound that counted them as one let code grow to several times its limit."""

from collections.abc import Callable

import pytest

from codegen.families import FAMILIES
from codegen.lowering.code_length import MOST_OF_ELEMENT, too_much
from codegen.schedule import schedule_text
from codegen.toolchain.compiler import Binary
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f32, f64, i8
from testing.tensors import graph_of, spec
from tests.support.whole import in_turn

MOST_BYTES = 240 << 10  # of a shared library: parts of a kernel may be functions of their own
MOST_OF_STORE, MOST_OF_PIECE = 1600, 128  # bytes, by what each more adds


def functions(x: Node, count: int) -> Node:
    """`count` times sin(tanh(x) + erf(x)), each applied to the one before: functions with long code."""
    for _ in range(count):
        x = B.sin(B.add(B.tanh(x), B.erf(x)))
    return x


def longest(family: str) -> Graph:
    """The family's graph with as many `functions` as one element may have, before and behind its operation."""

    def made(count: int) -> Graph:
        x, y = spec((90, 100), f64), spec((100, 90) if family == "transpose" else (100, 3), f64)
        match family:
            case "scan":
                return graph_of([x], lambda x: functions(B.cumsum(functions(x, count), 1), count))
            case "gemv":
                return graph_of([x, y], lambda x, w: functions(B.matmul(functions(x, count), w), count))
            case _:
                return graph_of([x, y], lambda x, y: functions(B.add(functions(x, count), B.permute(y, (1, 0))), count))

    found = [made(count) for count in range(1, 20)]
    taken = [graph for graph in found if too_much(graph) is None]
    assert 1 < len(taken) < len(found), f"{MOST_OF_ELEMENT} of an element"
    return taken[-1]


@pytest.mark.turn("longest code")
@pytest.mark.soak
@pytest.mark.parametrize("family", in_turn(["gemv", "scan", "transpose"], 1, "longest"))
def test_code_is_no_longer_than_it_may_be(family: str, bench: Workbench) -> None:
    graph = longest(family)
    assert FAMILIES[family].accepts(graph, bench.device) is None
    choices = FAMILIES[family].choices(graph, bench.device)
    widest = schedule_text(family, {name: values[-1] for name, values in choices.items()})
    (built,) = bench.compile([FAMILIES[family].emit(graph, widest, bench.device)])
    assert isinstance(built, Binary), built.detail
    assert len(bench.cache.get(built.sha256) or b"") <= MOST_BYTES


def stacked(count: int, dtype: DType) -> Graph:
    """`count` tensors stacked along a last axis: in the result, elements of one tensor lie `count` apart."""
    return graph_of([spec((8, 32), dtype)] * count, lambda *x: B.stack(list(x), 2))


def joined(count: int, dtype: DType) -> Graph:
    """A softmax over `count` concatenated tensors, each with rows shorter than a vector."""
    return graph_of([spec((3, 5 + i % 3), dtype) for i in range(count)], lambda *x: B.softmax(B.cat(list(x), 1)))


PIECES = [
    *((stacked, "pointwise", dtype, MOST_OF_STORE) for dtype in (i8, bf16, f32, f64)),
    *((joined, "normalization", dtype, MOST_OF_PIECE) for dtype in (bf16, f32, f64)),
]


@pytest.mark.turn("longest code")
@pytest.mark.soak
@pytest.mark.parametrize(("made", "family", "dtype", "most"), in_turn(PIECES, 1, "pieces"))
def test_code_of_many_pieces_is_short(
    made: Callable[[int, DType], Graph], family: str, dtype: DType, most: int, bench: Workbench
) -> None:
    """Bytes of code that each further tensor adds. When every lane had its own code, 16 stacked tensors of i8 took g++
    12 s, 60 joined ones 4 s."""
    sizes: list[int] = []
    for count in (8, 24):
        graph = made(count, dtype)
        schedule = FAMILIES[family].space(graph, bench.device)[0]
        (built,) = bench.compile([FAMILIES[family].emit(graph, schedule, bench.device)])
        assert isinstance(built, Binary), built.detail
        sizes.append(len(bench.cache.get(built.sha256) or b""))
    assert (sizes[1] - sizes[0]) / 16 <= most
