"""The workloads as their users write them in PyTorch, for comparison with the plans of the same graphs."""

from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports]  # only make bench-cpu installs it

HEADS, KV_HEADS, HEAD_SIZE = 32, 8, 128

Tensors = tuple[torch.Tensor, ...]


def mistral_rope_module(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, inv_freq: torch.Tensor, positions: torch.Tensor
) -> Tensors:
    """Rotary embedding of Mistral 7B with the key/value heads repeated, as the Transformers module spells it.

    q: bf16[1, S, 4096], k, v: bf16[1, S, 1024], inv_freq: bf16[64], positions: i64[1, S]. Returns cos, sin
    (bf16[1, 1, S, 128]) and q, k, v as bf16[1, 32, S, 128]. Multiplies and adds are bf16 operations, each rounded in
    eager mode; a compiler may keep them in f32.
    """
    q, k, v, cos, sin = _prepare(q, k, v, inv_freq, positions)
    q = q * cos + _rotate_half(q) * sin
    k = k * cos + _rotate_half(k) * sin
    return cos, sin, q, _repeat(k), _repeat(v)


def mistral_rope_graph(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, inv_freq: torch.Tensor, positions: torch.Tensor
) -> Tensors:
    """The same with exactly the casts of examples/mistral_rope_forward.nvfuser.py: f32 arithmetic, rounded once."""
    q, k, v, cos, sin = _prepare(q, k, v, inv_freq, positions)
    q = (q.float() * cos.float() + _rotate_half(q).float() * sin.float()).to(torch.bfloat16)
    k = (k.float() * cos.float() + _rotate_half(k).float() * sin.float()).to(torch.bfloat16)
    return cos, sin, q, _repeat(k), _repeat(v)


SPELLINGS: dict[str, Callable[..., Tensors]] = {"bf16": mistral_rope_module, "f32": mistral_rope_graph}


def _prepare(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, inv_freq: torch.Tensor, positions: torch.Tensor
) -> Tensors:
    q = q.view(1, -1, HEADS, HEAD_SIZE).transpose(1, 2)
    k = k.view(1, -1, KV_HEADS, HEAD_SIZE).transpose(1, 2)
    v = v.view(1, -1, KV_HEADS, HEAD_SIZE).transpose(1, 2)
    angles = (inv_freq[None, :, None].float() @ positions[:, None, :].float()).transpose(1, 2)
    angles = torch.cat((angles, angles), -1)
    return q, k, v, angles.cos().to(torch.bfloat16).unsqueeze(1), angles.sin().to(torch.bfloat16).unsqueeze(1)


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    low, high = x[..., : HEAD_SIZE // 2], x[..., HEAD_SIZE // 2 :]
    return torch.cat((-high, low), -1)


def _repeat(x: torch.Tensor) -> torch.Tensor:
    """bf16[1, 8, S, 128] -> bf16[1, 32, S, 128], each head four times."""
    count = HEADS // KV_HEADS
    return x[:, :, None].expand(-1, -1, count, -1, -1).reshape(1, HEADS, -1, HEAD_SIZE)
