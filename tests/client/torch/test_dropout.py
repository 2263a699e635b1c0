"""Dropout: masks with PyTorch's bits, its generator in the state that eager leaves, and plans around the draw."""

import itertools
from typing import Any

import pytest
import torch
from fuseplan_client.torch import Refused, export, partition
from fuseplan_client.torch.draws import DRAWS, drawn_mask

from tests.support.aten_graphs import examples_of, nodes_of, outcome, run, traced
from tests.support.whole import some

aten = torch.ops.aten
LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1) if x.dim() > 1 else x,
    "with gaps": lambda x: torch.stack([x, x], -1)[..., 0],
    "expanded": lambda x: x[:1].expand(x.shape) if x.dim() else x,
}
CASES = list(
    itertools.product(
        [(), (1,), (0, 3), (7,), (16, 33), (4, 5, 6), (3000,)],
        [torch.float32, torch.float64, torch.bfloat16, torch.float16],
        LAYOUTS,
        [0.0, 0.1, 0.5, 0.999, 1.0],
    )
)


@pytest.mark.parametrize(("shape", "dtype", "layout", "probability"), some(CASES, 14, "dropout"))
def test_bits_and_the_generator_afterwards_are_eagers(
    shape: tuple[int, ...], dtype: torch.dtype, layout: str, probability: float
) -> None:
    x = LAYOUTS[layout](torch.randn(shape).to(dtype))
    (graph,) = traced(lambda x: aten.native_dropout(x, probability, True), [x])
    parts = partition(graph.module, least_ops=1)
    assert aten.native_dropout.default not in [n.target for n in nodes_of(parts.module)]
    torch.manual_seed(5)
    expected = aten.native_dropout(x, probability, True)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    found = parts.module(x)
    assert torch.equal(torch.get_rng_state(), after)
    for mine, theirs in zip(found, expected, strict=True):
        if x.numel():  # of nothing, eager's mask has x's dtype, and AOTAutograd takes it for bool
            assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs), (layout, mine, theirs)


def test_what_follows_the_draw_is_planned_and_the_draw_is_not() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(torch.relu(x @ w), 0.3, True) + x

    for graph in traced(function, [torch.rand(8, 8, requires_grad=True), torch.rand(8, 8, requires_grad=True)]):
        parts = partition(graph.module)
        left = {n.target for n in nodes_of(parts.module)}
        assert parts.groups
        assert drawn_mask in left or graph.kind == "backward"
        assert len(parts.groups) == 1, "a mask depends on no tensor"
        for name in parts.groups:
            assert not DRAWS & {n.target for n in nodes_of(getattr(parts.module, name))}


def test_outside_of_training_nothing_is_drawn() -> None:
    (graph,) = traced(lambda x: aten.native_dropout(x + 1, 0.3, False), [torch.rand(4)])
    assert outcome(graph).state == "said"


def test_a_mask_is_never_drawn_by_a_plan() -> None:
    (graph,) = traced(lambda x: aten.native_dropout(x + 1, 0.3, True), [torch.rand(4)])
    with pytest.raises(Refused, match="draws random numbers"):
        export(graph.module, examples_of(graph.module))


def test_gradients_go_through_the_mask_that_was_drawn() -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.nn.functional.dropout(x * 2, 0.5, True)

    forward, backward = traced(function, [torch.randn(50, requires_grad=True)])
    assert outcome(forward).state == "partly"
    assert outcome(backward).state == "said"
    made = export(backward.module, examples_of(backward.module))
    (found,) = run(made, backward.inputs)
    assert torch.equal(found, backward.module(*backward.inputs)[0])
