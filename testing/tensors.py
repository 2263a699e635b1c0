"""Graphs of a few nodes around given arrays, for tests of single ops."""

from collections.abc import Callable, Sequence

import numpy as np

from fusion_ir.arithmetic.conversions import dtype_of
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import make_input
from fusion_ir.reference.interpreter import interpret
from fusion_ir.verify import verify


def spec(sizes: Sequence[int], dtype: DType, strides: Sequence[int] | None = None) -> InputSpec:
    """An input, dense unless strides are given."""
    return InputSpec(shape_of(sizes), dtype, tuple(strides) if strides is not None else dense_strides(sizes))


def tensor(position: int, sizes: Sequence[int], dtype: DType) -> Node:
    """The node of a dense input."""
    return make_input(position, spec(sizes, dtype))


def graph_of(inputs: Sequence[InputSpec], build: Callable[..., Node | Sequence[Node]]) -> Graph:
    """The verified graph of what `build` makes of the inputs; outputs are dense."""
    made = build(*(make_input(i, s) for i, s in enumerate(inputs)))
    nodes = [made] if isinstance(made, Node) else list(made)
    graph = Graph(tuple(inputs), tuple(OutputSpec(n, dense_strides(n.sizes)) for n in nodes))
    verify(graph)
    return graph


def evaluate_all(build: Callable[..., Node | Sequence[Node]], *arrays: np.ndarray) -> list[np.ndarray]:
    """All outputs of `build` over these arrays."""
    return interpret(graph_of([spec(a.shape, dtype_of(a)) for a in arrays], build), arrays)


def evaluate_one(build: Callable[..., Node], *arrays: np.ndarray) -> np.ndarray:
    """The one output of `build` over these arrays."""
    (result,) = evaluate_all(build, *arrays)
    return result


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shapes, dtypes and bits, except that all NaNs are equal."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    bits = np.dtype(f"u{a.dtype.itemsize}")
    equal = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    if dtype_of(a).is_float:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            equal |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return bool(equal.all())
