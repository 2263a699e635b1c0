"""Programs around their ops: autocast, no_grad and inference mode, models with their gradients, in parts."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.support.aten_graphs import outcome, traced
from tests.support.whole import in_turn


class Block(nn.Module):
    """A layer of a transformer, as small as can be."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out_norm = nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [batch, tokens, 8]."""
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, 8))
        return x + self.narrow(nn.functional.gelu(self.wide(self.out_norm(x))))


def graphs_of(model: nn.Module, x: torch.Tensor) -> Any:
    """The graphs of a model, whose parameters and buffers are inputs."""
    held = dict(model.named_parameters()) | dict(model.named_buffers())

    def call(*tensors: torch.Tensor) -> Any:
        return torch.func.functional_call(model, dict(zip(held, tensors[1:], strict=True)), (tensors[0],))

    return traced(call, [x, *held.values()])


def test_a_transformers_layer_forward_and_backward() -> None:
    torch.manual_seed(0)
    graphs = graphs_of(Block(), torch.randn(2, 5, 8, requires_grad=True))
    assert [(g.kind, outcome(g).state) for g in graphs] == [("forward", "said"), ("backward", "said")]


@pytest.mark.parametrize("dtype", in_turn([torch.bfloat16, torch.float16], 1, "autocast"))
def test_autocast(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype):
        graphs = graphs_of(Block(), torch.randn(2, 5, 8, requires_grad=True))
    found = [outcome(g, slack=2) for g in graphs]
    assert [f.state for f in found] == ["said", "said"], found


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_is_one_graph(context: Any) -> None:
    torch.manual_seed(0)
    with context():
        graphs = graphs_of(Block(), torch.randn(2, 5, 8))
        states = [(g.kind, outcome(g).state) for g in graphs]
    assert states == [("inference", "said")]


def test_batch_norm_in_training_writes_its_statistics_outside_of_the_plan() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU())
    graphs = graphs_of(model, torch.randn(7, 6))
    assert all(outcome(g).state in ("said", "empty") for g in graphs)
