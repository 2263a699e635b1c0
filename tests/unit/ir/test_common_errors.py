"""Which differences and quotients have errors in common that cancel, and that right kernels of all others agree."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.accuracy.common_errors import cancelling, is_over_sum
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.reference.interpreter import evaluate
from fusion_ir.reference.sample_inputs import sample_inputs
from testing.tensors import graph_of, spec
from tests.support.other_kernels import other_kernel

N = 24  # of square tensors, so that every wrong axis fits


def shifted(x: Node, axis: int = 1) -> Node:
    return build.sub(x, build.max_(x, axis, True))


def over(x: Node, axis: int = 1) -> Node:
    return build.div(x, build.sum_(x, axis, True))


def turned_back(row: Node) -> Node:
    return build.permute(row, (1, 0))


CANCELLING: dict[str, Callable[[Node], Node | Sequence[Node]]] = {
    "softmax": build.softmax,
    "softmax of columns": lambda x: build.softmax(x, 0),
    "log_softmax": build.log_softmax,
    "both": lambda x: [over(build.exp(shifted(x))), build.log_softmax(x)],
    "of all": lambda x: build.div(
        build.exp(build.sub(x, build.max_(x))), build.sum_(build.exp(build.sub(x, build.max_(x))), 1, True)
    ),
}
OTHERS: dict[str, Callable[[Node], Node | Sequence[Node]]] = {
    "tanh": lambda x: build.tanh(shifted(x)),
    "itself": lambda x: [shifted(x), over(build.exp(shifted(x)))],
    "its power": lambda x: [build.exp(shifted(x)), over(build.exp(shifted(x)))],
    "its power used": lambda x: build.mul(build.exp(shifted(x)), over(build.exp(shifted(x)))),
    "another axis": lambda x: over(build.exp(shifted(x)), 0),
    "logarithm of another axis": lambda x: build.sub(
        shifted(x), build.log(build.sum_(build.exp(shifted(x)), 0, True))
    ),
    "sum": lambda x: build.sum_(build.exp(shifted(x)), 1),
    "logarithm": lambda x: build.log(build.sum_(build.exp(shifted(x)), 1)),
    "maximum turned": lambda x: over(build.exp(build.sub(x, turned_back(build.max_(x, 1, True))))),
    "sum turned": lambda x: build.div(
        build.exp(shifted(x)), turned_back(build.sum_(build.exp(shifted(x)), 1, True))
    ),
}  # fmt: skip


def square(read: Callable[[Node], Node | Sequence[Node]]) -> Graph:
    return graph_of([spec((N, N), f32)], read)


@pytest.mark.parametrize("name", CANCELLING)
def test_softmaxes_are_known(name: str) -> None:
    graph = square(CANCELLING[name])
    assert len(cancelling(graph)) == 1


@pytest.mark.parametrize("name", OTHERS)
def test_what_depends_on_the_maximum_is_not_taken_for_one(name: str) -> None:
    assert not cancelling(square(OTHERS[name]))


def test_a_quotient_by_the_sum_of_its_row_is_known_by_its_row() -> None:
    quotients = {
        True: [lambda x: over(x), lambda x: over(x, 0), lambda x: build.div(x, build.sum_(x))],
        False: [lambda x: build.div(x, turned_back(build.sum_(x, 1, True))), lambda x: build.div(x, build.max_(x))],
    }
    for known, reads in quotients.items():
        for read in reads:
            (output,) = square(read).outputs
            assert is_over_sum(output.node) == known


@pytest.mark.parametrize("name", [*CANCELLING, *OTHERS])
def test_right_kernels_agree_where_the_maximum_errs(name: str) -> None:
    """One product makes the whole row's maximum, and errs a thousand times as much as the rest of the row."""
    read = {**CANCELLING, **OTHERS}[name]

    def whole(x: Node, y: Node) -> Node | Sequence[Node]:
        rough = build.sub(build.add(build.exp(x), 1000.0), 1000.0)
        return read(build.where(build.gt(y, 0.9), build.add(rough, 2.0), build.mul(build.sin(x), 0.5)))

    graph = graph_of([spec((N, N), f32), spec((N, N), f32)], whole)
    for seed in range(4):
        inputs = sample_inputs(graph, seed)
        expected = reference(graph, inputs)
        for k in range(4):
            got = [np.ascontiguousarray(v) for v in evaluate(graph, inputs, other_kernel(k))]
            assert not compare(got, expected).detail
