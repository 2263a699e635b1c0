"""Residual connections: a plain sum, a sum with the norm behind it, and dropout, sum and norm.

PyTorch's own generator gives other masks than ours, so a run of `F.dropout` cannot be compared element by element. The
timed function uses `F.dropout`; the one that the graph agrees with takes our random numbers for the same seed.
"""

import numpy as np

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import F, Tensor, Tensors, torch
from benchmarks.corpus.sizes import FOUR, MATRICES, THREE
from fusion_ir.arithmetic.philox import uniform
from fusion_ir.core.node import Node
from fusion_ir.dtype import i64

DROPPED = 0.1
LAYER_EPS, RMS_EPS = 1e-5, 1e-6


def residual_add(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.add(inputs(rows, columns), inputs(rows, columns))


def torch_residual_add(x: Tensor, residual: Tensor) -> Tensor:
    return x + residual


def residual_add_rms_norm(inputs: Inputs, rows: int, columns: int) -> tuple[Node, Node]:
    """The sum, which the next residual connection wants, and its norm."""
    total = ir.add(inputs(rows, columns), inputs(rows, columns))
    return total, ir.rms_norm(total, -1, inputs(columns), RMS_EPS)


def torch_residual_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Tensors:
    total = x + residual
    return total, F.rms_norm(total, total.shape[-1:], weight, RMS_EPS)


def dropout_layer_norm(inputs: Inputs, rows: int, columns: int) -> Node:
    x, residual = inputs(rows, columns), inputs(rows, columns)
    weight, bias, seed = inputs(columns), inputs(columns), inputs(dtype=i64, domain=(0, 1 << 20))
    kept, _ = ir.dropout(x, DROPPED, seed, 0)
    return ir.layer_norm(ir.add(kept, residual), -1, weight, bias, LAYER_EPS)


def torch_dropout_layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, seed: Tensor) -> Tensor:
    return F.layer_norm(F.dropout(x, DROPPED, training=True) + residual, x.shape[-1:], weight, bias, LAYER_EPS)


def torch_dropout_layer_norm_of_our_mask(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, seed: Tensor
) -> Tensor:
    drawn = torch.from_numpy(uniform(int(seed), 0, 0, x.numel())).to(x.device).reshape(x.shape)
    kept = torch.where(drawn >= np.float32(DROPPED), x * (1.0 / (1.0 - DROPPED)), 0.0)
    return F.layer_norm(kept + residual, x.shape[-1:], weight, bias, LAYER_EPS)


RESIDUALS = (
    Case(name="residual_add", kind="memory", build=residual_add, torch=torch_residual_add, sizes=THREE, small=MATRICES),
    Case(
        name="residual_add_rms_norm", kind="memory", build=residual_add_rms_norm, torch=torch_residual_add_rms_norm,
        sizes=FOUR, small=MATRICES,
    ),
    Case(
        name="dropout_layer_norm", kind="memory", build=dropout_layer_norm, torch=torch_dropout_layer_norm,
        agreeing=torch_dropout_layer_norm_of_our_mask, sizes=THREE, small=MATRICES,
    ),
)  # fmt: skip
