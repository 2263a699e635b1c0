"""Roundings to 16 bits or less that rewrites may move to other values.

    (x y) z, x y rounded to f16   and   x (y z), y z rounded to f16         have no tensor in the middle in common

Both sum equal products, but the plan's rounded tensor is not the graph's with a few values rounded the other way. A
rounding errs by up to half an ulp of the narrow dtype, and so does the one in its place: they are up to an ulp apart.
So in a perturbed run (`fusion_ir.accuracy.perturb`) for such plans, the value of each rounding that a rewrite may move
is off by a random share of an ulp: relative to the value, or, where that is more, to the root of the sum of the squares
of its terms, the size of a sum whose terms have random signs. (Terms may cancel in the value rounded in the graph, and
not in the one rounded in the plan.)
"""

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from fusion_ir.accuracy.error_patterns import Moves
from fusion_ir.accuracy.sum_error import added_as
from fusion_ir.arithmetic.conversions import accumulate, round_to, widen
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, compute_dtype
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import contract_arrays

_SUMS = (OpKind.REDUCTION, OpKind.SCAN, OpKind.SCATTER, OpKind.CONTRACT)
_LINEAR = ("add", "sub", "mul", "neg", "cast")
_TERMS = ("add", "sub", "mul", "contract", "sum", "scatter_sum")


@dataclass(frozen=True, slots=True)
class Rounding:
    """A rounding to `dtype` that a rewrite may move: of a node's value, at the node or at its only reader, a cast.
    number: its position among the roundings of a graph."""

    number: int
    dtype: DType


def roundings_of_sums(graph: Graph) -> dict[Node, Rounding]:
    """The roundings to 16 bits or less that a rewrite may move, by node: of values that are sums or terms of sums, with
    only linear ops in between. Another order of operations rounds other values."""
    near = {node for node in graph.nodes if kind_of(node) in _SUMS}
    below = set(near)
    for node in graph.nodes:  # what is made of sums
        if _is_linear(node) and not near.isdisjoint(node.args):
            near.add(node)
    for node in reversed(graph.nodes):  # what they are made of
        if _is_linear(node) and not below.isdisjoint(graph.users[node]):
            below.add(node)
    found: dict[Node, Rounding] = {}
    for node in graph.nodes:
        if node in near | below and node.dtype.is_float and compute_dtype(node.dtype) != node.dtype:
            narrows = node.op == "cast" and node.args[0].dtype.is_float and node.args[0].dtype.bytes > node.dtype.bytes
            source = _source(node, graph) if narrows else node
            if source.op in _TERMS and source not in found:
                found[source] = Rounding(len(found), node.dtype)
            elif narrows:
                found[node] = Rounding(len(found), node.dtype)
    return found


def _source(node: Node, graph: Graph) -> Node:
    """The node whose value a cast rounds: the one that it reads through views and casts between floats, as far as
    nothing else reads these; `node` itself where there is none."""
    outputs = {o.node for o in graph.outputs}
    while len(node.args) == 1 and (node.op == "cast" or kind_of(node) is OpKind.VIEW):
        (below,) = node.args
        if not below.dtype.is_float or below in outputs or len(graph.users[below]) > 1:
            break
        node = below
    return node


def behind_sums(graph: Graph, nodes: Container[Node]) -> set[Node]:
    """The nodes that depend both on a sum and on one of `nodes`, in either order; a node depends on itself."""
    found, reached, summed = set[Node](), set[Node](), set[Node]()
    for node in graph.nodes:
        if node in nodes or not reached.isdisjoint(node.args):
            reached.add(node)
        if kind_of(node) in _SUMS or not summed.isdisjoint(node.args):
            summed.add(node)
        if node in reached and node in summed:
            found.add(node)
    return found


def _is_linear(node: Node) -> bool:
    return node.dtype.is_float and (node.op in _LINEAR or kind_of(node) in (OpKind.VIEW, *_SUMS))


def elsewhere(
    node: Node, operands: tuple[np.ndarray, ...], value: np.ndarray, dtype: DType, moves: Moves
) -> np.ndarray:
    """The node's `value`, each element moved by a random share of `most` and rounded to the node's dtype. Infinities
    stay."""
    one_each = tuple(slice(1) if s == 0 else slice(None) for s in value.strides)
    wide = np.asarray(widen(value[one_each]))
    moved = np.asarray(wide + most(node, operands, value, dtype)[one_each] * moves.like(wide))
    np.copyto(moved, wide, where=~np.isfinite(wide))
    return np.broadcast_to(round_to(moved, node.dtype), value.shape)


def most(node: Node, operands: tuple[np.ndarray, ...], value: np.ndarray, dtype: DType) -> np.ndarray:
    """The largest distance by which `elsewhere` moves each element, in the compute dtype: an ulp of `dtype` at the
    value, or at the root of the sum of the squares of its terms where that is larger."""
    wide = widen(value)
    size = np.asarray(np.maximum(np.abs(wide), _root(node, operands)))
    np.copyto(size, np.abs(wide), where=~np.isfinite(size))
    np.maximum(size, wide.dtype.type(2.0**dtype.least_normal), out=size)  # below, an ulp stays as large
    return size * wide.dtype.type(2.0 ** (1 - dtype.digits))


def _root(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray:
    """Root of the sum of the squares of a node's terms, in the node's shape; 0 for ops that do not sum."""
    wide = [np.asarray(accumulate(x)) for x in operands]
    match node.op:
        case "contract":
            return np.asarray(np.sqrt(contract_arrays(node, *(np.square(x) for x in wide), in_order=False)))
        case "sum" | "scatter_sum":
            return np.asarray(np.sqrt(added_as(node, np.square(wide[0]), *operands[1:])))
        case "add" | "sub":
            return np.broadcast_to(np.hypot(*wide), node.sizes)
        case _:
            return np.broadcast_to(wide[0].dtype.type(0), node.sizes)
