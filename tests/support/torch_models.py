"""Small models of many kinds, as programs have them: layers of PyTorch's, losses, and what stands between."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Inputs = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A model, made anew, and inputs, drawn anew. modes: of "train", "eval", "autocast" (in training)."""

    model: Callable[[], nn.Module]
    inputs: Inputs
    modes: tuple[str, ...] = ("train", "eval", "autocast")


class Of(nn.Module):
    """A function of layers and inputs."""

    def __init__(self, function: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleDict(layers)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.layers, *inputs)


def of(*shapes: tuple[int, ...]) -> Inputs:
    return lambda: tuple(torch.randn(s) for s in shapes)


def ids(count: int, *shape: int) -> Inputs:
    return lambda: (torch.randint(0, count, shape),)


def attention_block(m: nn.ModuleDict, x: Tensor) -> Tensor:
    q, k, v = m["qkv"](m["norm"](x)).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    return x + m["out"](mixed)


def alibi(m: nn.ModuleDict, x: Tensor) -> Tensor:
    q, k, v = m["qkv"](x).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
    tokens = x.shape[1]
    distance = torch.arange(tokens)[None, :] - torch.arange(tokens)[:, None]
    slopes = 2.0 ** -torch.arange(1, 5).float()
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + slopes[:, None, None] * distance
    scores = scores.masked_fill(distance > 0, float("-inf"))
    return m["out"]((scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).flatten(2))


def rotary(m: nn.ModuleDict, x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1])[:, None] * (10000.0 ** (-torch.arange(half) / half))
    a, b = m["in"](x).chunk(2, -1)
    turned = torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)
    return m["out"](turned)


def experts(m: nn.ModuleDict, x: Tensor) -> Tensor:
    gates = m["gate"](x).softmax(-1)
    weight, index = gates.topk(2, -1)
    chosen = torch.zeros_like(gates).scatter(-1, index, weight)
    return sum(chosen[:, i : i + 1] * m[f"expert{i}"](x) for i in range(4))  # type: ignore[return-value]


def squeeze_excite(m: nn.ModuleDict, x: Tensor) -> Tensor:
    y = m["norm"](m["conv"](x))
    return F.silu(y) * m["up"](F.relu(m["down"](y.mean((2, 3))))).sigmoid()[:, :, None, None]


def unet(m: nn.ModuleDict, x: Tensor) -> Tensor:
    low = F.silu(m["norm"](m["down"](x)))
    high = F.interpolate(low, scale_factor=2, mode="nearest")
    return m["out"](torch.cat((high, x), 1))


def contrastive(m: nn.ModuleDict, x: Tensor, y: Tensor) -> Tensor:
    a, b = F.normalize(m["a"](x), dim=-1), F.normalize(m["b"](y), dim=-1)
    logits = a @ b.t() * m["scale"].weight.exp()
    labels = torch.arange(x.shape[0])
    return F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels, label_smoothing=0.1)


def variational(m: nn.ModuleDict, x: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_var = m["encode"](x).chunk(2, -1)
    z = mean + (0.5 * log_var).exp() * torch.linspace(-1, 1, mean.shape[-1])
    lost = F.binary_cross_entropy_with_logits(m["decode"](z), (x > 0).to(z.dtype))
    return lost, -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(-1).mean()


def pooled(m: nn.ModuleDict, x: Tensor) -> Tensor:
    y = m["conv"](x)
    return torch.cat((F.max_pool2d(y, 2).flatten(1), F.avg_pool2d(y, 3, 2, 1).flatten(1), y.amax((2, 3))), 1)


def graph_layer(m: nn.ModuleDict, x: Tensor, edges: Tensor) -> Tensor:
    messages = F.relu(m["message"](torch.cat((x[edges[0]], x[edges[1]]), -1)))
    gathered = torch.zeros(x.shape[0], messages.shape[-1], dtype=messages.dtype).index_add(0, edges[1], messages)
    return m["norm"](m["own"](x) + gathered)


def state_space(m: nn.ModuleDict, x: Tensor) -> Tensor:
    step = F.softplus(m["step"](x))
    sums = (-step.float()).cumsum(1)
    inner = (x * step).float() * (-sums).clamp(max=20).exp()
    return m["out"]((inner.cumsum(1) * sums.exp()).to(x.dtype))


def wavenet(m: nn.ModuleDict, x: Tensor) -> Tensor:
    a, b = m["conv"](F.pad(x, (4, 0))).chunk(2, 1)
    return x + m["out"](a.tanh() * b.sigmoid())


def highway(m: nn.ModuleDict, x: Tensor) -> Tensor:
    for _ in range(3):
        gate = m["gate"](x).sigmoid()
        x = gate * F.relu(m["own"](x)) + (1 - gate) * x
    return x


def quantiles(m: nn.ModuleDict, x: Tensor, y: Tensor) -> Tensor:
    levels = torch.tensor([0.1, 0.5, 0.9])
    off = y[:, None] - m["own"](x)
    return torch.maximum(levels * off, (levels - 1) * off).mean() + F.huber_loss(m["own"](x)[:, 1], y)


def triplet(m: nn.ModuleDict, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return F.triplet_margin_loss(m["own"](a), m["own"](b), m["own"](c)) + F.cosine_similarity(a, b).mean()


def window(m: nn.ModuleDict, x: Tensor) -> Tensor:
    batch, side, _, width = x.shape
    tiles = x.view(batch, side // 4, 4, side // 4, 4, width).transpose(2, 3).reshape(-1, 16, width)
    tiles = attention_block(m, tiles).view(batch, side // 4, side // 4, 4, 4, width).transpose(2, 3)
    return torch.roll(tiles.reshape(batch, side, side, width), (-2, -2), (1, 2))


def einsum(m: nn.ModuleDict, x: Tensor, y: Tensor) -> Tensor:
    return (
        m["own"](torch.einsum("bhid,bhjd->bijh", x, y).softmax(2))
        + torch.einsum("bhid,bhid->bi", x, x)[..., None, None]
    )


def batch_statistics(m: nn.ModuleDict, x: Tensor) -> Tensor:
    return m["second"](F.gelu(m["norm"](m["first"](x))))


linear = nn.Linear
TRAINED = ("train", "autocast")  # without gradients PyTorch has one op for the whole layer
CASES: dict[str, Case] = {
    "batch norm behind a layer": Case(
        lambda: Of(batch_statistics, first=linear(24, 40), norm=nn.BatchNorm1d(40), second=linear(40, 8)), of((17, 24))
    ),
    "attention": Case(
        lambda: Of(attention_block, norm=nn.LayerNorm(32), qkv=linear(32, 96), out=linear(32, 32)), of((2, 12, 32))
    ),
    "alibi": Case(lambda: Of(alibi, qkv=linear(32, 96), out=linear(32, 32)), of((2, 12, 32))),
    "rotary": Case(lambda: Of(rotary, **{"in": linear(16, 16), "out": linear(16, 16)}), of((2, 12, 16))),
    "windows": Case(
        lambda: Of(window, norm=nn.LayerNorm(16), qkv=linear(16, 48), out=linear(16, 16)), of((2, 8, 8, 16))
    ),
    "experts": Case(
        lambda: Of(experts, gate=linear(16, 4), **{f"expert{i}": linear(16, 16) for i in range(4)}), of((20, 16))
    ),
    "transformer encoder": Case(
        lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), of((2, 10, 32)), TRAINED
    ),
    "norm first": Case(
        lambda: nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", norm_first=True, batch_first=True),
        of((2, 10, 32)),
        TRAINED,
    ),
    "transformer decoder": Case(
        lambda: nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True), of((2, 7, 32), (2, 10, 32))
    ),
    "squeeze and excite": Case(
        lambda: Of(
            squeeze_excite,
            conv=nn.Conv2d(8, 16, 3, padding=1),
            norm=nn.BatchNorm2d(16),
            down=linear(16, 4),
            up=linear(4, 16),
        ),
        of((2, 8, 10, 10)),
    ),
    "u-net": Case(
        lambda: Of(unet, down=nn.Conv2d(8, 12, 3, 2, 1), norm=nn.GroupNorm(3, 12), out=nn.Conv2d(20, 8, 1)),
        of((2, 8, 12, 12)),
    ),
    "pools": Case(lambda: Of(pooled, conv=nn.Conv2d(3, 6, 3, padding=1)), of((2, 3, 12, 12))),
    "depthwise": Case(
        lambda: nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 16, 1, bias=False)
        ),
        of((2, 8, 9, 9)),
    ),
    "transposed convolution": Case(
        lambda: nn.Sequential(nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.InstanceNorm2d(4, affine=True), nn.LeakyReLU(0.2)),
        of((2, 8, 5, 5)),
    ),
    "wavenet": Case(lambda: Of(wavenet, conv=nn.Conv1d(8, 16, 3, dilation=2), out=nn.Conv1d(8, 8, 1)), of((2, 8, 20))),
    "three dimensions": Case(
        lambda: nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ELU()), of((2, 2, 4, 5, 6))
    ),
    "pixel shuffle": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(3)), of((2, 3, 6, 6))
    ),
    "language model": Case(
        lambda: nn.Sequential(nn.Embedding(50, 24), nn.LayerNorm(24), linear(24, 50), nn.LogSoftmax(-1)), ids(50, 2, 9)
    ),
    "embedding bag": Case(lambda: nn.Sequential(nn.EmbeddingBag(30, 16, mode="sum"), nn.Tanh()), ids(30, 4, 5)),
    "lstm cell": Case(lambda: Of(lambda m, x: m["own"](x)[0].tanh(), own=nn.LSTMCell(8, 12)), of((3, 8))),
    "contrastive": Case(
        lambda: Of(contrastive, a=linear(16, 8), b=linear(16, 8), scale=linear(1, 1, bias=False)), of((9, 16), (9, 16))
    ),
    "variational": Case(lambda: Of(variational, encode=linear(20, 12), decode=linear(6, 20)), of((9, 20))),
    "quantiles": Case(lambda: Of(quantiles, own=linear(12, 3)), of((9, 12), (9,))),
    "triplet": Case(lambda: Of(triplet, own=linear(12, 6)), of((9, 12), (9, 12), (9, 12))),
    "graph": Case(
        lambda: Of(graph_layer, message=linear(16, 12), own=linear(8, 12), norm=nn.BatchNorm1d(12)),
        lambda: (torch.randn(10, 8), torch.randint(0, 10, (2, 25))),
    ),
    "state space": Case(  # a planner that has all the time there is proves covers of its bf16 backward pass for minutes
        lambda: Of(state_space, step=linear(12, 12), out=linear(12, 12)), of((2, 9, 12)), ("train", "eval")
    ),
    "highway": Case(lambda: Of(highway, gate=linear(16, 16), own=linear(16, 16)), of((9, 16))),
    "einsum": Case(lambda: Of(einsum, own=linear(3, 3)), of((2, 3, 6, 5), (2, 3, 6, 5))),
    "bilinear": Case(
        lambda: Of(lambda m, x, y: F.softplus(m["own"](x, y)), own=nn.Bilinear(6, 7, 5)),
        of((9, 6), (9, 7)),
    ),
    "weight norm": Case(lambda: nn.utils.parametrizations.weight_norm(linear(12, 9)), of((7, 12))),
    "spectral": Case(
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(linear(12, 9)), nn.Softsign()),
        of((7, 12)),
        ("eval",),
    ),
    "activations": Case(
        lambda: nn.Sequential(
            linear(12, 24),
            nn.GLU(),
            nn.Mish(),
            nn.Hardswish(),
            linear(12, 12),
            nn.SELU(),
            nn.Hardsigmoid(),
            nn.LogSigmoid(),
        ),
        of((9, 12)),
    ),
    "rms norm": Case(lambda: nn.Sequential(linear(12, 16), nn.RMSNorm(16), nn.SiLU(), linear(16, 4)), of((2, 9, 12))),
    "local response": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.LocalResponseNorm(3), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        of((2, 3, 9, 9)),
    ),
    "upsample": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Softmax2d()),
        of((2, 3, 7, 7)),
    ),
}
