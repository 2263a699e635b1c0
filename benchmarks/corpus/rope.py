"""Rotary position embeddings as five language models have them, forward.

The graphs take the products in f32 and round once, as compilers of PyTorch's graphs hand them on. Eager PyTorch is
faster without the casts, which rounds after every op: both spellings are timed. Values that pass through are copied on
both sides, and PyTorch may leave queries and keys in any order of axes.
"""

import fusion_ir.building as ir
from benchmarks.corpus.case import Inputs
from benchmarks.corpus.pytorch import Tensor, Tensors
from benchmarks.corpus.rope_models import Rotate, rope_cases
from benchmarks.corpus.rope_parts import (
    angles,
    heads_first,
    repeated,
    rotate,
    torch_angles,
    torch_heads_first,
    torch_repeated,
    torch_rotate,
    torch_rotate_wide,
)
from fusion_ir.core.node import Node

# Llama: queries, keys and values in one tensor, group by group


def llama(inputs: Inputs, batch: int, tokens: int, heads: int, groups: int, size: int) -> tuple[Node, ...]:
    """qkv[batch, tokens, groups x (queries of a group + 2) x size] -> q, k, v[batch, heads, tokens, size]."""
    queries = heads // groups
    qkv = inputs(batch, tokens, groups * (queries + 2) * size)
    cos, sin = (ir.cast(inputs(tokens, size, domain=(-1.0, 1.0)), inputs.wide) for _ in range(2))
    grouped = ir.permute(ir.reshape(qkv, [batch, tokens, groups, queries + 2, size]), (0, 2, 3, 1, 4))

    def part(first: int, last: int) -> Node:
        x = ir.slice_(grouped, (0, 0, first, 0, 0), (batch, groups, last, tokens, size))
        return ir.reshape(x, [batch, groups * (last - first), tokens, size])

    q, k, v = part(0, queries), part(queries, queries + 1), part(queries + 1, queries + 2)
    q, k = rotate(q, cos, sin, inputs.dtype), rotate(k, cos, sin, inputs.dtype)
    return q, repeated(k, queries), repeated(v, queries)


def torch_llama(turn: Rotate, qkv: Tensor, cos: Tensor, sin: Tensor, *, heads: int, groups: int) -> Tensors:
    batch, tokens = qkv.shape[:2]
    queries = heads // groups
    grouped = qkv.view(batch, tokens, groups, queries + 2, -1).permute(0, 2, 3, 1, 4)
    q, k, v = grouped.split((queries, 1, 1), 2)
    q, k = turn(q, cos, sin), turn(k, cos, sin)
    shape = batch, groups, queries, tokens, -1
    return tuple(x.expand(shape).reshape(batch, heads, tokens, -1).contiguous() for x in (q, k, v))


# Qwen 2: three tensors, angles given


def qwen2(inputs: Inputs, batch: int, tokens: int, heads: int, groups: int, size: int) -> tuple[Node, ...]:
    """q[batch, tokens, heads x size], k and v[batch, tokens, groups x size], cos and sin[batch, tokens, size] ->
    q, k, v[batch, heads, tokens, size]."""
    q, k, v = (heads_first(inputs(batch, tokens, n * size), n) for n in (heads, groups, groups))
    cos, sin = (
        ir.unsqueeze(ir.cast(inputs(batch, tokens, size, domain=(-1.0, 1.0)), inputs.wide), 1) for _ in range(2)
    )
    q, k = rotate(q, cos, sin, inputs.dtype), rotate(k, cos, sin, inputs.dtype)
    return q, repeated(k, heads // groups), repeated(v, heads // groups)


def torch_qwen2(
    turn: Rotate, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, *, heads: int, groups: int
) -> Tensors:
    q, k, v = (torch_heads_first(x, n) for x, n in ((q, heads), (k, groups), (v, groups)))
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    q, k = turn(q, cos, sin), turn(k, cos, sin)
    return q, torch_repeated(k, heads // groups), torch_repeated(v, heads // groups)


# Phi 3: one tensor, part by part; angles from positions, by a product with K = 1


def phi3(inputs: Inputs, tokens: int, heads: int, size: int) -> tuple[Node, ...]:
    """qkv[1, tokens, 3 x heads x size], frequencies[size / 2], positions i64[1, tokens] -> q, k,
    v[1, heads, tokens, size]."""
    width = heads * size
    qkv = inputs(1, tokens, 3 * width)
    cos, sin = (ir.unsqueeze(ir.cast(x, inputs.wide), 1) for x in angles(inputs, tokens, size))
    q, k, v = (
        heads_first(ir.slice_(qkv, (0, 0, i * width), (1, tokens, (i + 1) * width)), heads) for i in range(3)
    )  # fmt: skip
    return rotate(q, cos, sin, inputs.dtype), rotate(k, cos, sin, inputs.dtype), v


def torch_phi3(turn: Rotate, qkv: Tensor, frequencies: Tensor, positions: Tensor, *, heads: int) -> Tensors:
    cos, sin = (x.unsqueeze(1) for x in torch_angles(frequencies, positions, qkv.dtype))
    q, k, v = (torch_heads_first(x, heads) for x in qkv.chunk(3, -1))
    return turn(q, cos, sin), turn(k, cos, sin), v.contiguous()


# Mistral: three tensors; angles from positions, by a product with K = 1, which are results, too


def mistral(inputs: Inputs, tokens: int, heads: int, groups: int, size: int) -> tuple[Node, ...]:
    """q[1, tokens, heads x size], k and v[1, tokens, groups x size], frequencies[size / 2], positions i64[1, tokens] ->
    cos, sin[1, 1, tokens, size], q, k, v[1, heads, tokens, size]."""
    q, k, v = (heads_first(inputs(1, tokens, n * size), n) for n in (heads, groups, groups))
    cos, sin = (ir.unsqueeze(x, 1) for x in angles(inputs, tokens, size))
    wide_cos, wide_sin = ir.cast(cos, inputs.wide), ir.cast(sin, inputs.wide)
    q, k = rotate(q, wide_cos, wide_sin, inputs.dtype), rotate(k, wide_cos, wide_sin, inputs.dtype)
    return cos, sin, q, repeated(k, heads // groups), repeated(v, heads // groups)


def torch_mistral(
    turn: Rotate, q: Tensor, k: Tensor, v: Tensor, frequencies: Tensor, positions: Tensor, *, heads: int, groups: int
) -> Tensors:
    q, k, v = (torch_heads_first(x, n) for x, n in ((q, heads), (k, groups), (v, groups)))
    cos, sin = (x.unsqueeze(1) for x in torch_angles(frequencies, positions, q.dtype))
    q, k = turn(q, cos, sin), turn(k, cos, sin)
    return cos, sin, q, torch_repeated(k, heads // groups), torch_repeated(v, heads // groups)


ROPE = rope_cases(
    "rope_{}",
    torch_rotate,
    torch_rotate_wide,
    llama=(llama, torch_llama),
    qwen2=(qwen2, torch_qwen2),
    phi3=(phi3, torch_phi3),
    mistral=(mistral, torch_mistral),
)
