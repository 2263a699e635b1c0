"""Blocks of transformers, image and recommendation models, written anew: each a module and inputs for a batch size."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GptBlock(nn.Module):
    """A block of GPT-2 (Radford and others, 2019): width 768, 12 heads, GELU by its tanh form."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm_1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, halves against each other."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class RmsNorm(nn.Module):
    """Root mean square normalization, computed in f32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (wide * scale).to(x.dtype)


class LlamaBlock(nn.Module):
    """A block of Llama (Touvron and others, 2023): rotary embedding, grouped queries, gated SiLU."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self, width: int = 768, heads: int = 12, groups: int = 4, tokens: int = 256, inner: int = 2048
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm_1, self.norm_2 = RmsNorm(width), RmsNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        angles = torch.outer(torch.arange(tokens), 1e4 ** (-torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        h = self.norm_1(x)
        q = self.q(h).view(batch, tokens, self.heads, self.size).transpose(1, 2)
        k, v = (f(h).view(batch, tokens, self.groups, self.size).transpose(1, 2) for f in (self.k, self.v))
        q, k = (rotated(t, self.cos[:tokens].to(t.dtype), self.sin[:tokens].to(t.dtype)) for t in (q, k))
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class VitBlock(nn.Module):
    """A block of a vision transformer (Dosovitskiy and others, 2021): 197 tokens of width 384, layer scale."""

    def __init__(self, width: int = 384, heads: int = 6) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale_1, self.scale_2 = (nn.Parameter(torch.full((width,), 0.1)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.scale_1 * self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.scale_2 * self.down(F.gelu(self.up(self.norm_2(x))))


class Dlrm(nn.Module):
    """The dense part of a recommendation model (Naumov and others, 2019): towers, pairwise products, a top tower.
    Embeddings come as they were looked up."""

    rows: Tensor
    columns: Tensor

    def __init__(self, features: int = 26, width: int = 64) -> None:
        super().__init__()
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU()
        )
        pairs = features * (features + 1) // 2
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid()
        )
        rows, columns = torch.tril_indices(features + 1, features + 1, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense: Tensor, embedded: Tensor) -> Tensor:
        x = self.bottom(dense)
        every = torch.cat((x.unsqueeze(1), embedded), 1)
        products = torch.bmm(every, every.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat((x, products), 1))


class GraphNet(nn.Module):
    """Two layers of a graph convolution with symmetric weights of edges (Kipf and Welling, 2017): messages along edges,
    added up where they arrive. Ten edges for each node, most of them to few nodes."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        ones = torch.ones(target.shape, dtype=x.dtype, device=x.device)
        degrees = torch.zeros(len(x), dtype=x.dtype, device=x.device).scatter_add(0, target, ones)
        scale = degrees.clamp(min=1).rsqrt()
        weights = (scale[source] * scale[target]).unsqueeze(1)
        for layer in (self.first, self.second):
            own = layer(x)
            sent = own[source] * weights
            to = target.unsqueeze(1).expand_as(sent)  # `index_add` takes PyTorch twice as long
            x = F.relu(own + torch.zeros_like(own).scatter_add(0, to, sent))
        return x


class ResNetBlock(nn.Module):
    """A basic block of ResNet-18 (He and others, 2016), second stage."""

    def __init__(self, channels: int = 128) -> None:
        super().__init__()
        self.conv_1, self.conv_2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm_1, self.norm_2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm_1(self.conv_1(x)))
        return F.relu(self.norm_2(self.conv_2(h)) + x)


class NormDropout(nn.Module):
    """The ops between products in a transformer: layer norm, softmax of scores, dropout."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(torch.softmax(self.norm(x), -1), 0.1, self.training) + x


class DiffusionMlp(nn.Module):
    """A denoiser by residual layers (as in diffusion policies): each scaled and shifted by an embedding of the time."""

    def __init__(self, width: int = 512, layers: int = 3) -> None:
        super().__init__()
        self.frequencies = width // 2
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.modulations = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        steps = torch.arange(self.frequencies, device=x.device) * (-math.log(1e4) / self.frequencies)
        angles = t[:, None] * steps.exp()
        embedded = self.time(torch.cat((angles.sin(), angles.cos()), -1).to(x.dtype))
        for layer, modulation in zip(self.layers, self.modulations, strict=True):
            scale, shift = modulation(F.silu(embedded)).chunk(2, -1)
            x = x + F.silu(layer(F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift))
        return x


class MambaLike(nn.Module):
    """A selective scan with diagonal states (after Gu and Dao, 2023), as cumulative sums of logarithms: decays of each
    step depend on the input."""

    def __init__(self, width: int = 256, states: int = 8) -> None:
        super().__init__()
        self.width, self.states = width, states
        self.into = nn.Linear(width, 2 * width, bias=False)
        self.parts = nn.Linear(width, 2 * states + 1, bias=False)
        self.decay = nn.Parameter(torch.linspace(0.5, 2, states).log().repeat(width, 1))
        self.skip = nn.Parameter(torch.ones(width))
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h, gate = self.into(x).chunk(2, -1)
        h = F.silu(h)
        b, c, step = self.parts(h).split((self.states, self.states, 1), -1)
        step = F.softplus(step)
        decay = (-step.unsqueeze(-1) * self.decay.exp()).clamp(min=-0.2).float()
        total = decay.cumsum(1)
        added = (step * h).unsqueeze(-1) * b.unsqueeze(-2)
        state = (added.float() * (-total).exp()).cumsum(1) * total.exp()
        y = (state.to(x.dtype) * c.unsqueeze(-2)).sum(-1) + self.skip * h
        return self.out(y * F.silu(gate))


class MixtureOfExperts(nn.Module):
    """A layer of experts, all of them computed and weighed by a softmax of the two largest scores of each token."""

    def __init__(self, width: int = 256, experts: int = 4, inner: int = 512) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) / inner**0.5)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).float()
        largest, _ = scores.max(-1, keepdim=True)
        second, _ = scores.masked_fill(scores == largest, float("-inf")).max(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(scores < second, float("-inf")), -1).to(x.dtype)
        h = F.gelu(torch.einsum("td,edf->etf", x, self.up))
        return torch.einsum("etf,efd,te->td", h, self.down, weights)
