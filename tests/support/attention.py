"""Graphs of attention: scores of queries and keys, what is done to them, softmax, and their product with values."""

import math
from collections.abc import Sequence

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f32
from tests.support.products import dense_graph


def tensor(*sizes: int, dtype: DType = bf16, strides: Sequence[int] | None = None) -> InputSpec:
    """An input aligned to 16 bytes."""
    return InputSpec(shape_of(sizes), dtype, tuple(strides or dense_strides(sizes)), 16)


def scores(q: Node, k: Node) -> Node:
    """q k^T / 8 in f32; both [..., tokens, size]."""
    return build.mul(build.matmul(q, build.transpose(k), f32), 0.125)


def below(rows: int, columns: int) -> Node:
    """Whether a column is not behind its row."""
    return build.le(build.iota([rows, columns], 1), build.iota([rows, columns], 0))


def causal(heads: int, rows: int, columns: int, size: int, width: int | None = None, dtype: DType = bf16) -> Graph:
    """Causal attention; without `width` the probabilities alone."""

    def compute(q: Node, k: Node, *v: Node) -> Node:
        p = build.cast(build.softmax(build.where(below(rows, columns), scores(q, k), -math.inf)), dtype)
        return build.matmul(p, v[0]) if v else p

    specs = [tensor(heads, rows, size, dtype=dtype), tensor(heads, columns, size, dtype=dtype)]
    return dense_graph([*specs, *([tensor(heads, columns, width, dtype=dtype)] if width else [])], compute)


def whole(q: Node, k: Node, v: Node) -> Node:
    """Attention to all columns."""
    return build.matmul(build.cast(build.softmax(scores(q, k)), v.dtype), v)


def masked(heads: int, rows: int, columns: int, size: int, dtype: DType = bf16) -> Graph:
    """Probabilities of scores with a mask for all heads."""
    specs = [tensor(heads, rows, size, dtype=dtype), tensor(heads, columns, size, dtype=dtype)]
    return dense_graph(
        [*specs, tensor(rows, columns, dtype=dtype)],
        lambda q, k, m: build.cast(build.softmax(build.add(scores(q, k), build.cast(m, f32))), dtype),
    )
