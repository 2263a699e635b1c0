"""The models that are measured: what is called, on which tensors, and what a step gives to be compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models import blocks

Step = Callable[[Callable[..., Any]], Sequence[Tensor]]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}


@dataclass
class Model:
    """compiled: what `torch.compile` gets. step: one step, given that or what became of it; its results. state: tensors
    that a step changes, which `reset` puts back."""

    name: str
    compiled: Callable[..., Any]
    step: Step
    state: Sequence[Tensor] = ()

    def __post_init__(self) -> None:
        self._saved = [t.detach().clone() for t in self.state]

    def reset(self) -> None:
        """Puts the state back to what it was."""
        with torch.no_grad():
            for t, saved in zip(self.state, self._saved, strict=True):
                t.copy_(saved)


@dataclass(frozen=True)
class Entry:
    """A model by batch size. module: made anew. inputs: for a batch size, floats in f32."""

    module: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    batches: tuple[int, int]
    modes: tuple[str, ...] = ("eval", "train")


def _tokens(count: int, width: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda batch: (torch.randn(batch, count, width),)


def _edges(nodes: int) -> tuple[Tensor, Tensor]:
    """Sources and targets of ten edges for each node, most of them to few nodes."""
    return torch.randint(0, nodes, (10 * nodes,)), (nodes * torch.rand(10 * nodes) ** 2).long()


ZOO: Mapping[str, Entry] = {
    "gpt2": Entry(blocks.GptBlock, _tokens(256, 768), (1, 4)),
    "llama": Entry(blocks.LlamaBlock, _tokens(256, 768), (1, 4)),
    "vit": Entry(blocks.VitBlock, _tokens(197, 384), (1, 8)),
    "dlrm": Entry(blocks.Dlrm, lambda b: (torch.randn(b, 13), torch.randn(b, 26, 64)), (128, 1024)),
    "gcn": Entry(blocks.GraphNet, lambda b: (torch.randn(b, 64), *_edges(b)), (1000, 8000)),
    "resnet": Entry(blocks.ResNetBlock, lambda b: (torch.randn(b, 128, 28, 28),), (1, 8)),
    "norm_dropout": Entry(blocks.NormDropout, lambda b: (torch.randn(b, 512, 1024),), (1, 4)),
    "diffusion": Entry(blocks.DiffusionMlp, lambda b: (torch.randn(b, 512), torch.rand(b) * 1000), (32, 256)),
    "mamba": Entry(blocks.MambaLike, _tokens(128, 256), (1, 4)),
    "experts": Entry(blocks.MixtureOfExperts, lambda b: (torch.randn(b, 256),), (128, 512)),
}
ADAM = "adam"
ADAM_SIZES = (((512, 512), (512,), (2048, 512), (2048,)), ((1024, 1024), (1024,), (4096, 1024), (4096,)))


def names() -> list[str]:
    """Every model with its mode: "gpt2.eval", "adam.step"."""
    return [f"{n}.{mode}" for n, e in ZOO.items() for mode in e.modes] + [f"{ADAM}.step"]


def make(name: str, size: int, dtype: str, device: str = "cpu") -> Model:
    """The model in one of its two sizes (0, 1), with the same random weights and inputs each time."""
    torch.manual_seed(0)
    kind, _, mode = name.partition(".")
    if kind == ADAM:
        return _adam(name, size, DTYPES[dtype], device)
    entry = ZOO[kind]
    module = entry.module().to(device, DTYPES[dtype])
    given = [t.to(device) for t in entry.inputs(entry.batches[size])]
    inputs = tuple(t.to(DTYPES[dtype]) if t.is_floating_point() else t for t in given)
    if mode == "eval":
        module.eval()

        def evaluate(call: Callable[..., Any]) -> Sequence[Tensor]:
            with torch.no_grad():
                return [call(*inputs)]

        return Model(name, module, evaluate)
    module.train()
    parameters = [*module.parameters()]
    leaf = inputs[0].requires_grad_()

    def train(call: Callable[..., Any]) -> Sequence[Tensor]:
        for p in (*parameters, leaf):
            p.grad = None
        torch.manual_seed(1)
        out = call(*inputs)
        (out.float() * weights).sum().backward()
        return [out.detach(), *(p.grad for p in (*parameters, leaf) if p.grad is not None)]

    with torch.no_grad():
        weights = torch.randn_like(module(*inputs), dtype=torch.float32)
    return Model(name, module, train, [b for b in module.buffers() if b.is_floating_point()])


def _adam(name: str, size: int, dtype: torch.dtype, device: str) -> Model:
    """A step of Adam as PyTorch has it for many tensors at once, whose state it updates in place."""
    parameters = [nn.Parameter(torch.randn(shape, dtype=dtype).to(device)) for shape in ADAM_SIZES[size]]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, foreach=True)
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer.step()

    def update() -> None:
        optimizer.step()

    state = [*parameters, *(v for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor))]

    def step(call: Callable[..., Any]) -> Sequence[Tensor]:
        with torch.no_grad():
            call()
        return [t.detach() for t in state]

    return Model(name, update, step, state)
