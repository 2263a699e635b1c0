"""Sums along rows and along columns, each with something behind it."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import Tensor, torch
from benchmarks.corpus.sizes import MATRICES
from fusion_ir.core.node import Node

_SIZES = {"rows": 16384, "columns": 2048}


def inner_norm(inputs: Inputs, rows: int, columns: int) -> Node:
    """The Euclidean length of every row."""
    x = ir.cast(inputs(rows, columns), inputs.wide)
    return ir.cast(ir.sqrt(ir.sum_(ir.mul(x, x), -1)), inputs.dtype)


def torch_inner_norm(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1)


def inner_sum_scale_bias(inputs: Inputs, rows: int, columns: int) -> Node:
    x, bias = inputs(rows, columns), inputs(rows)
    return ir.add(ir.mul(ir.sum_(x, -1), 0.25), bias)


def torch_inner_sum_scale_bias(x: Tensor, bias: Tensor) -> Tensor:
    return x.sum(-1) * 0.25 + bias


def outer_sum_scale(inputs: Inputs, rows: int, columns: int) -> Node:
    """The gradient of a bias, scaled."""
    return ir.mul(ir.sum_(inputs(rows, columns), 0), 0.5)


def torch_outer_sum_scale(x: Tensor) -> Tensor:
    return x.sum(0) * 0.5


def outer_mean_relu(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.relu(ir.mean(inputs(rows, columns), 0))


def torch_outer_mean_relu(x: Tensor) -> Tensor:
    return torch.relu(x.mean(0))


REDUCTIONS = (
    Case(name="inner_norm", kind="memory", build=inner_norm, torch=torch_inner_norm, sizes=_SIZES, small=MATRICES),
    Case(
        name="inner_sum_scale_bias", kind="memory", build=inner_sum_scale_bias, torch=torch_inner_sum_scale_bias,
        sizes=_SIZES, small=MATRICES,
    ),
    Case(
        name="outer_sum_scale", kind="memory", build=outer_sum_scale, torch=torch_outer_sum_scale, sizes=_SIZES,
        small=MATRICES,
    ),
    Case(
        name="outer_mean_relu", kind="memory", build=outer_mean_relu, torch=torch_outer_mean_relu, sizes=_SIZES,
        small=MATRICES,
    ),
)  # fmt: skip
