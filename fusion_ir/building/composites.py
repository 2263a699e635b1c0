"""Ops that are taken apart when read.

Operands of 16 and 8 bits are computed in f32 inside and rounded once at the end.
"""

import math
from typing import Literal

from fusion_ir.building.elementwise import add, div, erf, exp, log, mul, ne, neg, rsqrt, sigmoid, sub, tanh, where
from fusion_ir.building.operands import Axes, Number, Operand, as_float, cast, common_dtype, full, normal_axis, wide
from fusion_ir.building.reducing import max_, mean, sum_, var
from fusion_ir.building.shapes import gather, squeeze, unsqueeze
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import RuleError


def _inner(x: Node) -> tuple[Node, DType]:
    """x where the composite computes, and the dtype of its result."""
    dtype = as_float(x.dtype)
    return cast(x, wide(dtype)), dtype


def softmax(x: Node, axis: int = -1) -> Node:
    """exp(x - max) / sum of it along `axis`."""
    inner, dtype = _inner(x)
    powers = exp(sub(inner, max_(inner, axis, keepdims=True)))
    return cast(div(powers, sum_(powers, axis, keepdims=True)), dtype)


def log_softmax(x: Node, axis: int = -1) -> Node:
    """x - max - log(sum of exp(x - max)) along `axis`."""
    inner, dtype = _inner(x)
    shifted = sub(inner, max_(inner, axis, keepdims=True))
    return cast(sub(shifted, log(sum_(exp(shifted), axis, keepdims=True))), dtype)


def layer_norm(
    x: Node, axes: Axes = -1, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5
) -> Node:
    """(x - mean) / sqrt(var + eps) over `axes`, times weight, plus bias; these broadcast against x's trailing axes."""
    inner, dtype = _inner(x)
    centred = sub(inner, mean(inner, axes, keepdims=True))
    scaled = mul(centred, rsqrt(add(var(inner, axes, 0, keepdims=True), eps)))
    return cast(_affine(scaled, weight, bias), dtype)


def rms_norm(x: Node, axes: Axes = -1, weight: Node | None = None, eps: float = 1e-6) -> Node:
    """x / sqrt(mean of x^2 + eps) over `axes`, times weight, which broadcasts against x's trailing axes."""
    inner, dtype = _inner(x)
    scaled = mul(inner, rsqrt(add(mean(mul(inner, inner), axes, keepdims=True), eps)))
    return cast(_affine(scaled, weight, None), dtype)


def _affine(x: Node, weight: Node | None, bias: Node | None) -> Node:
    x = x if weight is None else mul(x, cast(weight, x.dtype))
    return x if bias is None else add(x, cast(bias, x.dtype))


def gelu(x: Node, approximate: Literal["none", "tanh"] = "none") -> Node:
    """x Phi(x): by erf, or by tanh(sqrt(2 / pi) (x + 0.044715 x^3)). Raises RuleError for another word."""
    inner, dtype = _inner(x)
    if approximate == "none":
        bell = erf(mul(inner, math.sqrt(0.5)))
    elif approximate == "tanh":
        cubic = mul(mul(mul(inner, inner), inner), 0.044715)
        bell = tanh(mul(add(inner, cubic), math.sqrt(2.0 / math.pi)))
    else:
        raise RuleError(f"gelu: approximate is {approximate!r}, expected 'none' or 'tanh'")
    return cast(mul(mul(inner, 0.5), add(bell, 1.0)), dtype)


def silu(x: Node) -> Node:
    """x sigmoid(x)."""
    inner, dtype = _inner(x)
    return cast(mul(inner, sigmoid(inner)), dtype)


def cross_entropy(
    logits: Node,
    targets: Node,
    reduction: Literal["mean", "sum", "none"] = "mean",
    ignore_index: int | None = None,
) -> Node:
    """-log_softmax(logits) at the targets. logits [N, C, ...] with targets [N, ...], or [C] with targets [].

    Targets equal to `ignore_index` count 0 and are left out of the mean. Targets out of range are clamped, as all
    indices are. Raises RuleError.
    """
    if targets.rank != logits.rank - 1 or not targets.dtype.is_integer:
        raise RuleError(f"cross_entropy: logits of rank {logits.rank} want integer targets of rank {logits.rank - 1}, "
                        f"got {targets.dtype} of rank {targets.rank}")  # fmt: skip
    inner, dtype = _inner(logits)
    classes = normal_axis(1 if logits.rank > 1 else 0, logits.rank)
    losses = neg(squeeze(gather(log_softmax(inner, classes), classes, unsqueeze(targets, classes)), classes))
    counted: Node | None = None
    if ignore_index is not None:
        counted = ne(targets, ignore_index)
        losses = where(counted, losses, full((), 0, inner.dtype))
    if reduction == "none":
        return cast(losses, dtype)
    if reduction == "mean" and counted is None:
        return cast(mean(losses), dtype)
    if reduction not in ("mean", "sum"):
        raise RuleError(f"cross_entropy: reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
    total = sum_(losses)
    if reduction == "mean" and counted is not None:
        total = div(total, cast(sum_(counted), inner.dtype))
    return cast(total, dtype)


def addcmul(x: Operand, a: Operand, b: Operand, value: Number = 1) -> Node:
    """x + value a b."""
    dtype = common_dtype([x, a, b])
    inner = wide(dtype) if dtype.is_float else dtype
    x, a, b = (cast(cast(v, dtype), inner) if isinstance(v, Node) else v for v in (x, a, b))
    product = mul(a, b)
    return cast(add(x, product if value == 1 else mul(product, value)), dtype)
