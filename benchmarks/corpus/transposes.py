"""Tensors read along one axis and written along another."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import Tensor
from benchmarks.corpus.sizes import MATRICES, SQUARE, THREE
from fusion_ir.core.node import Node


def transposed_add(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.add(inputs(rows, columns), ir.transpose(inputs(columns, rows)))


def torch_transposed_add(a: Tensor, b: Tensor) -> Tensor:
    return a + b.T


def transposed_scale(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.transpose(ir.mul(inputs(rows, columns), 0.5))


def torch_transposed_scale(x: Tensor) -> Tensor:
    return (x * 0.5).T.contiguous()


def split_heads(inputs: Inputs, batch: int, tokens: int, heads: int, size: int) -> Node:
    """[batch, tokens, heads x size] as attention wants it: [batch, heads, tokens, size]."""
    x = ir.reshape(inputs(batch, tokens, heads * size), [batch, tokens, heads, size])
    return ir.permute(x, (0, 2, 1, 3))


def torch_split_heads(x: Tensor, *, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2).contiguous()


TRANSPOSES = (
    Case(
        name="transposed_add", kind="memory", build=transposed_add, torch=torch_transposed_add, sizes=THREE,
        small=MATRICES,
    ),
    Case(
        name="transposed_scale", kind="memory", build=transposed_scale, torch=torch_transposed_scale, sizes=SQUARE,
        small=MATRICES,
    ),
    Case(
        name="split_heads", kind="memory", build=split_heads, torch=torch_split_heads,
        sizes={"batch": 4, "tokens": 1024, "heads": 32, "size": 128},
        small=(
            {"batch": 1, "tokens": 1, "heads": 3, "size": 7},
            {"batch": 2, "tokens": 17, "heads": 3, "size": 33},
            {"batch": 1, "tokens": 65, "heads": 4, "size": 64},
        ),
    ),
)  # fmt: skip
