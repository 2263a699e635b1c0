"""Softmax and log-softmax over the last axis, forward and backward, and softmax under a causal mask."""

import math

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import Tensor, torch
from benchmarks.corpus.sizes import FOUR, MATRICES, SQUARE
from fusion_ir.core.node import Node

SCALE = 0.125


def softmax(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.softmax(inputs(rows, columns))


def torch_softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def softmax_backward(inputs: Inputs, rows: int, columns: int) -> Node:
    """From the gradient of the result and the result."""
    grad = ir.cast(inputs(rows, columns), inputs.wide)
    out = ir.cast(inputs(rows, columns, domain=(0.0, 1.0)), inputs.wide)
    product = ir.mul(grad, out)
    dx = ir.sub(product, ir.mul(out, ir.sum_(product, -1, keepdims=True)))
    return ir.cast(dx, inputs.dtype)


def torch_softmax_backward(grad: Tensor, out: Tensor) -> Tensor:
    """The op that autograd calls."""
    return torch.ops.aten._softmax_backward_data(grad, out, -1, out.dtype)


def log_softmax(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.log_softmax(inputs(rows, columns))


def torch_log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


def log_softmax_backward(inputs: Inputs, rows: int, columns: int) -> Node:
    """From the gradient of the result and the result."""
    grad = ir.cast(inputs(rows, columns), inputs.wide)
    out = ir.cast(inputs(rows, columns, domain=(-8.0, 0.0)), inputs.wide)
    dx = ir.sub(grad, ir.mul(ir.exp(out), ir.sum_(grad, -1, keepdims=True)))
    return ir.cast(dx, inputs.dtype)


def torch_log_softmax_backward(grad: Tensor, out: Tensor) -> Tensor:
    """The op that autograd calls."""
    return torch.ops.aten._log_softmax_backward_data(grad, out, -1, out.dtype)


def causal_softmax(inputs: Inputs, heads: int, tokens: int) -> Node:
    """Scores times a constant, where row >= column."""
    scores = inputs(heads, tokens, tokens)
    causal = ir.le(ir.iota([tokens, tokens], 1), ir.iota([tokens, tokens], 0))
    return ir.softmax(ir.where(causal, ir.mul(scores, SCALE), -math.inf))


def torch_causal_softmax(scores: Tensor) -> Tensor:
    """The mask is made at every call, as it depends on the length of the sequence."""
    tokens = torch.arange(scores.shape[-1], device=scores.device)
    causal = tokens[None, :] <= tokens[:, None]
    return torch.softmax((scores * SCALE).masked_fill(~causal, -math.inf), -1)


SOFTMAX = (
    Case(name="softmax", kind="memory", build=softmax, torch=torch_softmax, sizes=SQUARE, small=MATRICES),
    Case(
        name="softmax_backward", kind="memory", build=softmax_backward, torch=torch_softmax_backward, sizes=FOUR,
        small=MATRICES,
    ),
    Case(name="log_softmax", kind="memory", build=log_softmax, torch=torch_log_softmax, sizes=SQUARE, small=MATRICES),
    Case(
        name="log_softmax_backward", kind="memory", build=log_softmax_backward, torch=torch_log_softmax_backward,
        sizes=FOUR, small=MATRICES,
    ),
    Case(
        name="causal_softmax", kind="memory", build=causal_softmax, torch=torch_causal_softmax,
        sizes={"heads": 16, "tokens": 1024},
        small=({"heads": 1, "tokens": 1}, {"heads": 3, "tokens": 17}, {"heads": 2, "tokens": 65}),
    ),
)  # fmt: skip
