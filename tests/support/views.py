"""Graphs of one tensor that is cropped, padded, expanded, permuted and reshaped, and what its addresses allow."""

from dataclasses import dataclass

import numpy as np

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, f16, i64
from fusion_ir.ops import make_input
from fusion_ir.reference.interpreter import interpret

NOWHERE = -1  # the address of padding


@dataclass(frozen=True)
class View:
    """x[rows, m], without its first `crop` columns, with `pad` columns before and behind, k times each element, dims in
    the order of `order`, the last two as one."""

    m: int
    k: int
    order: tuple[int, int, int] = (0, 1, 2)
    pad: tuple[int, int] = (0, 0)
    crop: int = 0
    rows: int = 10240
    dtype: DType = f16

    def graph(self) -> Graph:
        """The view, negated."""
        spec = self._spec(self.dtype)
        out = build.neg(self._of(make_input(0, spec), 0.0))
        return Graph((spec,), (OutputSpec(out, dense_strides(out.sizes)),))

    def addresses(self) -> np.ndarray:
        """Where each element of the result is found, in elements; NOWHERE for padding."""
        spec = self._spec(i64)
        node = self._of(make_input(0, spec), NOWHERE)
        graph = Graph((spec,), (OutputSpec(node, dense_strides(node.sizes)),))
        return interpret(graph, [np.arange(self.rows * self.m, dtype=np.int64).reshape(self.rows, self.m)])[0]

    def pieces(self) -> np.ndarray:
        """Kind of each element of the result: 0 for padding in front, 1 for an element read, 2 for padding behind."""
        low, high = self.pad
        column = np.repeat([0, 1, 2], [low, self.m - self.crop, high])
        rows = np.broadcast_to(column[None, :, None], (self.rows, len(column), self.k)).transpose(self.order)
        return rows.reshape(len(rows), -1)

    def _spec(self, dtype: DType) -> InputSpec:
        sizes = (self.rows, self.m)
        return InputSpec(shape_of(sizes), dtype, dense_strides(sizes), 16)

    def _of(self, x: Node, fill: float) -> Node:
        x = build.slice_(x, (0, self.crop), (self.rows, self.m))
        x = build.pad(x, (0, self.pad[0]), (0, self.pad[1]), fill)
        rows, columns = x.sizes
        x = build.expand(build.reshape(x, (rows, columns, 1)), (rows, columns, self.k))
        x = build.permute(x, self.order)
        first, second, third = x.sizes
        return build.reshape(x, (first, second * third))
