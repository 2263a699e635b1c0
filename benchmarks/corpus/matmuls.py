"""Large matrix products with something behind them."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import F, Tensor, torch
from fusion_ir.core.node import Node

_SMALL = (
    {"tokens": 1, "inner": 3, "features": 1},
    {"tokens": 7, "inner": 33, "features": 17},
    {"tokens": 65, "inner": 129, "features": 33},
)


def linear_gelu_residual(inputs: Inputs, tokens: int, inner: int, features: int) -> Node:
    x, weight, bias = inputs(tokens, inner), inputs(features, inner), inputs(features)
    return ir.add(ir.gelu(ir.linear(x, weight, bias)), inputs(tokens, features))


def torch_linear_gelu_residual(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return F.gelu(F.linear(x, weight, bias)) + residual


def transposed_bias(inputs: Inputs, tokens: int, inner: int, features: int) -> Node:
    """The tensor that is added lies the other way round."""
    product = ir.matmul(inputs(tokens, inner), inputs(inner, features))
    return ir.add(product, ir.transpose(inputs(features, tokens)))


def torch_transposed_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x @ weight + bias.T


def gated_ffn(inputs: Inputs, tokens: int, hidden: int, inner: int) -> Node:
    x = inputs(tokens, hidden)
    gate, up, down = inputs(hidden, inner), inputs(hidden, inner), inputs(inner, hidden)
    return ir.matmul(ir.mul(ir.silu(ir.matmul(x, gate)), ir.matmul(x, up)), down)


def torch_gated_ffn(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return torch.mm(F.silu(x @ gate) * (x @ up), down)


MATMULS = (
    Case(
        name="linear_gelu_residual", kind="matmul", build=linear_gelu_residual, torch=torch_linear_gelu_residual,
        sizes={"tokens": 1024, "inner": 256, "features": 1024}, small=_SMALL,
    ),
    Case(
        name="transposed_bias", kind="matmul", build=transposed_bias, torch=torch_transposed_bias,
        sizes={"tokens": 1024, "inner": 512, "features": 1024}, small=_SMALL,
    ),
    Case(
        name="gated_ffn", kind="matmul", build=gated_ffn, torch=torch_gated_ffn,
        sizes={"tokens": 512, "hidden": 768, "inner": 2048},
        small=(
            {"tokens": 1, "hidden": 7, "inner": 3},
            {"tokens": 17, "hidden": 33, "inner": 65},
            {"tokens": 33, "hidden": 64, "inner": 129},
        ),
    ),
)  # fmt: skip
