"""Gradients of the rotary embeddings of `rope.py`, from those of the results and the cosines and sines saved."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Inputs
from benchmarks.corpus.pytorch import Tensor, Tensors, torch
from benchmarks.corpus.rope_models import Rotate, rope_cases
from benchmarks.corpus.rope_parts import (
    rotate_back,
    summed,
    tokens_first,
    torch_rotate_back,
    torch_rotate_back_wide,
    torch_summed,
    torch_tokens_first,
)
from fusion_ir.core.node import Node


def _grads(inputs: Inputs, batch: int, tokens: int, heads: int, size: int) -> tuple[Node, ...]:
    return tuple(inputs(batch, heads, tokens, size) for _ in range(3))


def llama(inputs: Inputs, batch: int, tokens: int, heads: int, groups: int, size: int) -> Node:
    """dq, dk, dv[batch, heads, tokens, size], cos, sin[tokens, size] -> dqkv, with its groups side by side."""
    queries = heads // groups
    q, k, v = _grads(inputs, batch, tokens, heads, size)
    cos, sin = (ir.cast(inputs(tokens, size, domain=(-1.0, 1.0)), inputs.wide) for _ in range(2))
    k, v = summed(k, queries), summed(v, queries)
    q, k = rotate_back(q, cos, sin, inputs.dtype), rotate_back(k, cos, sin, inputs.dtype)
    parts = [ir.reshape(x, [batch, groups, -1, tokens, size]) for x in (q, k, v)]
    return ir.reshape(ir.permute(ir.cat(parts, 2), (0, 3, 1, 2, 4)), [batch, tokens, groups * (queries + 2) * size])


def torch_llama(
    turn: Rotate, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, *, heads: int, groups: int
) -> Tensor:
    queries = heads // groups
    if queries > 1:
        k, v = torch_summed(k, queries), torch_summed(v, queries)
    parts = [x.unflatten(1, (groups, -1)) for x in (turn(q, cos, sin), turn(k, cos, sin), v)]
    return torch.cat(parts, 2).permute(0, 3, 1, 2, 4).flatten(2)


def _separate(inputs: Inputs, batch: int, tokens: int, heads: int, groups: int, size: int) -> tuple[Node, ...]:
    q, k, v = _grads(inputs, batch, tokens, heads, size)
    cos, sin = (
        ir.unsqueeze(ir.cast(inputs(batch, tokens, size, domain=(-1.0, 1.0)), inputs.wide), 1) for _ in range(2)
    )
    k, v = summed(k, heads // groups), summed(v, heads // groups)
    q, k = rotate_back(q, cos, sin, inputs.dtype), rotate_back(k, cos, sin, inputs.dtype)
    return tokens_first(q), tokens_first(k), tokens_first(v)


def qwen2(inputs: Inputs, batch: int, tokens: int, heads: int, groups: int, size: int) -> tuple[Node, ...]:
    """dq, dk, dv[batch, heads, tokens, size], cos, sin[batch, tokens, size] -> dq[batch, tokens, heads x size], dk and
    dv[batch, tokens, groups x size]."""
    return _separate(inputs, batch, tokens, heads, groups, size)


def mistral(inputs: Inputs, tokens: int, heads: int, groups: int, size: int) -> tuple[Node, ...]:
    """`qwen2` with a batch of one."""
    return _separate(inputs, 1, tokens, heads, groups, size)


def torch_separate(
    turn: Rotate, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, *, heads: int, groups: int
) -> Tensors:
    queries = heads // groups
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    if queries > 1:
        k, v = torch_summed(k, queries), torch_summed(v, queries)
    return tuple(torch_tokens_first(x) for x in (turn(q, cos, sin), turn(k, cos, sin), v))


def phi3(inputs: Inputs, tokens: int, heads: int, size: int) -> Node:
    """dq, dk, dv[1, heads, tokens, size], cos, sin[1, tokens, size] -> dqkv[1, tokens, 3 x heads x size]."""
    return ir.cat(_separate(inputs, 1, tokens, heads, heads, size), -1)


def torch_phi3(turn: Rotate, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, *, heads: int) -> Tensor:
    return torch.cat(torch_separate(turn, q, k, v, cos, sin, heads=heads, groups=heads), -1)


ROPE_BACKWARD = rope_cases(
    "rope_{}_backward",
    torch_rotate_back,
    torch_rotate_back_wide,
    llama=(llama, torch_llama),
    qwen2=(qwen2, torch_separate),
    phi3=(phi3, torch_phi3),
    mistral=(mistral, torch_separate),
)
