"""Activations with what stands around them: gelu behind a bias, forward and backward, and gates."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import F, Tensor, torch
from benchmarks.corpus.sizes import FOUR, MATRICES, SQUARE, THREE
from fusion_ir.core.node import Node


def gelu_bias(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.gelu(ir.add(inputs(rows, columns), inputs(columns)))


def torch_gelu_bias(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


def gelu_tanh_bias(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.gelu(ir.add(inputs(rows, columns), inputs(columns)), "tanh")


def torch_gelu_tanh_bias(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias, approximate="tanh")


def gelu_backward(inputs: Inputs, rows: int, columns: int) -> Node:
    """From the gradient of the result and the operand: (Phi(x) + x phi(x)) grad."""
    grad, x = (ir.cast(inputs(rows, columns), inputs.wide) for _ in range(2))
    area = ir.mul(ir.add(ir.erf(ir.mul(x, 0.5**0.5)), 1.0), 0.5)
    density = ir.mul(ir.exp(ir.mul(ir.mul(x, x), -0.5)), 0.3989422804014327)  # 1 / sqrt(2 pi)
    return ir.cast(ir.mul(grad, ir.add(area, ir.mul(x, density))), inputs.dtype)


def torch_gelu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The op that autograd calls."""
    return torch.ops.aten.gelu_backward(grad, x)


def silu_mul(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.mul(ir.silu(inputs(rows, columns)), inputs(rows, columns))


def torch_silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def swiglu(inputs: Inputs, rows: int, columns: int) -> Node:
    """Gate and value side by side, as one projection makes them."""
    both = inputs(rows, 2 * columns)
    gate = ir.slice_(both, (0, 0), (rows, columns))
    return ir.mul(ir.silu(gate), ir.slice_(both, (0, columns), (rows, 2 * columns)))


def torch_swiglu(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, -1)
    return F.silu(gate) * up


ACTIVATIONS = (
    Case(name="gelu_bias", kind="memory", build=gelu_bias, torch=torch_gelu_bias, sizes=SQUARE, small=MATRICES),
    Case(
        name="gelu_tanh_bias", kind="memory", build=gelu_tanh_bias, torch=torch_gelu_tanh_bias, sizes=SQUARE,
        small=MATRICES,
    ),
    Case(
        name="gelu_backward", kind="memory", build=gelu_backward, torch=torch_gelu_backward, sizes=FOUR,
        small=MATRICES,
    ),
    Case(name="silu_mul", kind="memory", build=silu_mul, torch=torch_silu_mul, sizes=THREE, small=MATRICES),
    Case(name="swiglu", kind="memory", build=swiglu, torch=torch_swiglu, sizes=THREE, small=MATRICES),
)  # fmt: skip
