"""Attention: scores with their softmax, the whole of it, and what stands behind it in DistilGPT-2."""

import math

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import F, Tensor, torch, wide
from fusion_ir.core.node import Node

_SIZES = {"heads": 12, "tokens": 1024, "size": 64}
_SMALL = (
    {"heads": 1, "tokens": 1, "size": 3},
    {"heads": 3, "tokens": 17, "size": 7},
    {"heads": 2, "tokens": 65, "size": 33},
)


def _scores(inputs: Inputs, q: Node, k: Node) -> Node:
    """Scaled products of queries and keys, where composites compute."""
    product = ir.matmul(q, ir.transpose(k), inputs.wide)
    return ir.mul(product, 1.0 / math.sqrt(q.sizes[-1]))


def attention_scores(inputs: Inputs, heads: int, tokens: int, size: int) -> Node:
    """Softmax of scores to which a mask is added: 0 or below."""
    q, k = inputs(1, heads, tokens, size), inputs(1, heads, tokens, size)
    mask = inputs(tokens, tokens, domain=(-8.0, 0.0))
    return ir.cast(ir.softmax(ir.add(_scores(inputs, q, k), ir.cast(mask, inputs.wide))), inputs.dtype)


def torch_attention_scores(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(q.shape[-1])) + mask
    return torch.softmax(scores, -1)


def attention(inputs: Inputs, heads: int, tokens: int, size: int) -> Node:
    """Causal attention; the probabilities are rounded before the second product."""
    q, k, v = (inputs(1, heads, tokens, size) for _ in range(3))
    causal = ir.le(ir.iota([tokens, tokens], 1), ir.iota([tokens, tokens], 0))
    scores = ir.where(causal, _scores(inputs, q, k), -math.inf)
    return ir.matmul(ir.cast(ir.softmax(scores), inputs.dtype), v)


def torch_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def torch_attention_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as the modules of language models spell it without a fused kernel."""
    tokens = torch.arange(q.shape[-2], device=q.device)
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(q.shape[-1]))
    scores = scores.masked_fill(tokens[None, :] > tokens[:, None], -math.inf)
    return torch.softmax(wide(scores), -1).to(q.dtype) @ v


def distilgpt2_tail(inputs: Inputs, tokens: int, heads: int, size: int) -> Node:
    """The projection to queries, keys and values, of which the values alone are used here, their sum by given
    probabilities, and the projection back."""
    width = heads * size
    x, weight, bias = inputs(tokens, width), inputs(width, 3 * width), inputs(tokens, 3 * width)
    probabilities = inputs(1, heads, tokens, tokens, domain=(0.0, 2.0 / tokens))
    back = inputs(width, width)
    qkv = ir.reshape(ir.addmm(bias, x, weight), [1, tokens, 3 * heads, size])
    values = ir.slice_(ir.permute(qkv, (0, 2, 1, 3)), (0, 2 * heads, 0, 0), (1, 3 * heads, tokens, size))
    mixed = ir.permute(ir.matmul(probabilities, values), (0, 2, 1, 3))
    return ir.matmul(ir.reshape(mixed, [tokens, width]), back)


def torch_distilgpt2_tail(
    x: Tensor, weight: Tensor, bias: Tensor, probabilities: Tensor, back: Tensor, *, heads: int
) -> Tensor:
    qkv = torch.addmm(bias, x, weight).view(1, x.shape[0], 3 * heads, -1).transpose(1, 2)
    mixed = probabilities @ qkv[:, 2 * heads :]
    return mixed.transpose(1, 2).reshape(x.shape[0], -1) @ back


ATTENTION = (
    Case(
        name="attention_scores", kind="matmul", build=attention_scores, torch=torch_attention_scores, sizes=_SIZES,
        small=_SMALL,
    ),
    Case(
        name="attention", kind="matmul", build=attention, torch=torch_attention, also=(torch_attention_by_hand,),
        sizes=_SIZES, small=_SMALL,
    ),
    Case(
        name="distilgpt2_tail", kind="matmul", build=distilgpt2_tail, torch=torch_distilgpt2_tail,
        sizes={"tokens": 348, "heads": 12, "size": 64},
        small=(
            {"tokens": 1, "heads": 1, "size": 3},
            {"tokens": 7, "heads": 3, "size": 17},
            {"tokens": 33, "heads": 4, "size": 8},
        ),
        bench_dtypes=("f32", "f16"),
    ),
)  # fmt: skip
