"""Graphs around matrix products, in one line each."""

from collections.abc import Callable, Mapping, Sequence

from fusion_ir import build
from fusion_ir.dtype import DType, f32
from fusion_ir.extent import dense_strides, shape_of
from fusion_ir.graph import Graph, InputSpec, OutputSpec
from fusion_ir.node import Node
from fusion_ir.ops import make_input


def spec(sizes: Sequence[int], strides: Sequence[int] | None = None, dtype: DType = f32) -> InputSpec:
    """An input with no more alignment than its elements have."""
    return InputSpec(shape_of(tuple(sizes)), dtype, tuple(strides or dense_strides(tuple(sizes))), dtype.bytes)


def dense_graph(
    inputs: Sequence[InputSpec | Sequence[int]], compute: Callable[..., Node | tuple[Node, ...]], dtype: DType = f32
) -> Graph:
    """`compute` of the inputs, given by their sizes (dense, of `dtype`) or whole; outputs are dense."""
    specs = tuple(s if isinstance(s, InputSpec) else spec(s, None, dtype) for s in inputs)
    found = compute(*(make_input(i, s) for i, s in enumerate(specs)))
    nodes = found if isinstance(found, tuple) else (found,)
    return Graph(specs, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in nodes))


def mlp(x: Node, w: Node, bias: Node, residual: Node) -> Node:
    """gelu(x w + bias) + residual"""
    return build.add(build.gelu(build.add(build.matmul(x, w), bias)), residual)


def einsum_graph(a: str, b: str, out: str, extents: Mapping[str, int], dtype: DType = f32) -> Graph:
    """einsum("ab,bc->ac") of dense inputs: an axis per letter."""
    left, right, result = ([ord(x) for x in text] for text in (a, b, out))
    return dense_graph(
        [[extents[x] for x in a], [extents[x] for x in b]], lambda x, y: build.einsum(x, y, left, right, result), dtype
    )
