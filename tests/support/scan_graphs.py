"""Graphs of running sums with what may lead to them and follow from them, for all targets."""

from collections.abc import Callable

from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES
from fusion_ir.ops import make
from testing.tensors import graph_of, spec


def scan(x: Node, axis: int) -> Node:
    return make("cumsum", (x,), {"axis": axis})


def graph(sizes: tuple[int, ...], dtype: str, build: Callable[[Node], Node | list[Node]]) -> Graph:
    return graph_of([spec(sizes, DTYPES[dtype])], build)


CONES: dict[str, Callable[[Node], Node | list[Node]]] = {
    "prologue_and_epilogue": lambda x: B.mul(scan(B.exp(B.mul(x, 0.1)), 1), 0.5),
    "of_a_softmax": lambda x: scan(B.softmax(x, 1), 1),
    "of_a_softmax_across": lambda x: scan(B.softmax(x, 0), 0),
    "over_its_sum": lambda x: B.div(scan(B.abs_(x), 1), B.sum_(B.abs_(x), [1], keepdims=True)),
    "normalised": lambda x: B.softmax(scan(x, 1), 1),
    "normalised_across": lambda x: B.softmax(scan(x, 0), 0),
    "twice": lambda x: scan(scan(x, 0), 1),
    "twice_along": lambda x: scan(scan(x, 1), 1),
    "two_along_one_axis": lambda x: [scan(x, 1), scan(B.mul(x, x), 1)],
    "exclusive": lambda x: B.sub(scan(x, 1), x),
    "of_a_cat": lambda x: scan(B.cat([x, B.neg(x)], 1), 1),
    "of_a_pad": lambda x: scan(B.pad(x, (0, 3), (0, 2), 1), 1),
    "first_ones": lambda x: B.neg(B.slice_(scan(x, 1), (0, 0), (37, 29))),
    "of_a_row_for_all": lambda x: B.add(scan(B.sum_(x, [0]), 0), x),
    "of_a_column_for_all": lambda x: B.add(B.reshape(scan(B.sum_(x, [1]), 0), (37, 1)), x),
    "summed": lambda x: B.sum_(scan(x, 1), [1]),
    "summed_across": lambda x: [B.sum_(scan(x, 0), [0]), scan(x, 0)],
    "flat": lambda x: B.reshape(scan(B.reshape(x, (37 * 70,)), 0), (37, 70)),
    "counting": lambda x: scan(B.gt(x, 0), 1),
    "beside": lambda x: [scan(x, 0), B.exp(x)],
}  # fmt: skip
