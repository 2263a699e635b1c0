"""Attention as PyTorch's kernel for the CPU has it: scores and softmax in f32, weights rounded before the product."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, wide
from fuseplan_client.torch.wire import Refused, Tensor, wire_dtype


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a @ b, summed and kept in `dtype`."""
    shape = (*a.shape[:-1], b.shape[-1])
    return a.writer.op("matmul", [a, b], shape, dtype, dtype=wire_dtype(dtype))


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Keys or values for so many heads of queries, of which neighbours share one (grouped queries)."""
    groups, shape = x.shape[-3], x.shape
    if groups == heads:
        return x
    apart = x.unsqueeze(-3).broadcast((*shape[:-2], heads // groups, *shape[-2:]))
    return apart.reshape((*shape[:-3], heads, *shape[-2:]))


def _gathered(grad: Tensor, groups: int) -> Tensor:
    """The gradient of what was `_repeated`: the sum over heads that share one."""
    *outer, heads, rows, columns = grad.shape
    if groups == heads:
        return grad
    apart = grad.reshape((*outer, groups, heads // groups, rows, columns))
    return apart.reduced("sum", (apart.rank - 3,))


def _scores(query: Tensor, key: Tensor, causal: bool, mask: Tensor | None, scale: float | None) -> tuple[Tensor, float]:
    """(scale query key^T + mask, scale), in f32 or f64; -inf where a key is not to be seen."""
    w, inner = query.writer, wide(query.dtype)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scores = _product(query, key.transposed(), inner) * factor
    if mask is not None and mask.dtype == torch.bool:
        scores = w.where(mask, scores, -math.inf, inner)
    elif mask is not None:
        scores = scores + mask.cast(inner)
    if causal:
        grid = scores.shape[-2:]
        later = w.iota(grid, 1).compared("gt", w.iota(grid, 0))
        scores = w.where(later, -math.inf, scores, inner)
    return scores, factor


def attention(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """(softmax of scores @ value, log of the sum of exponentials). A row in which no key is seen gives 0 and 0."""
    if dropout:
        raise Refused("dropout inside attention")
    w, inner, heads = call.writer, wide(query.dtype), query.shape[-3]
    key, value = _repeated(key, heads), _repeated(value, heads)
    scores, _ = _scores(query, key, causal, attn_mask, scale)
    if not scores.elements:
        raise Refused("attention to nothing")
    weights = w.op("softmax", [scores], scores.shape, inner, axis=scores.rank - 1)
    if attn_mask is not None:
        unseen = scores.reduced("max", (scores.rank - 1,), keepdims=True).compared("eq", -math.inf)
        weights = w.where(unseen, 0, weights, inner)
    out = _product(weights.cast(value.dtype), value, value.dtype)
    axes = {"axes": [scores.rank - 1], "keepdims": False}
    total = w.op("logsumexp", [scores], scores.shape[:-1], inner, **axes)
    if attn_mask is not None:
        total = w.where(total.compared("eq", -math.inf), 0, total, inner)
    return out, total.cast(call.out[1].dtype)


def attention_backward(
    call: Call,
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    total: Tensor,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, weights computed again from the scores and the log of their sum."""
    if dropout:
        raise Refused("dropout inside attention")
    inner, dtype = wide(query.dtype), query.dtype
    heads, groups = query.shape[-3], key.shape[-3]
    summed = dtype if groups == heads else inner  # of keys and values, before heads that share one are added
    key, value = _repeated(key, heads), _repeated(value, heads)
    scores, factor = _scores(query, key, causal, attn_mask, scale)
    if not scores.elements:
        raise Refused("attention to nothing")
    weights = (scores - total.cast(inner).unsqueeze(-1)).pointwise("exp")
    grad_value = _product(weights.cast(dtype).transposed(), grad, summed)
    grad_weights = _product(grad, value.transposed(), inner)
    along = (grad.cast(inner) * out.cast(inner)).reduced("sum", (grad.rank - 1,), keepdims=True)
    grad_scores = (weights * (grad_weights - along) * factor).cast(dtype)
    grad_key = _product(grad_scores.transposed(), query, summed)
    grad_key, grad_value = (_gathered(g, groups).cast(dtype) for g in (grad_key, grad_value))
    return _product(grad_scores, key, dtype), grad_key, grad_value


ATTENTION: Mapping[Any, Lowering] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
}
