"""Graphs that are traced for any size, as torch.compile gives them: parts are exported for the sizes of a call."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuseplan_client.torch import export, partition
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.fx import GraphModule

from tests.support.aten_graphs import difference, run


class Exporting(torch.nn.Module):
    """A group that is exported for the sizes and numbers of each call, and run by the interpreter."""

    def __init__(self, module: GraphModule, seen: list[Any]) -> None:
        super().__init__()
        self.module, self.seen = module, seen

    def forward(self, *inputs: Any) -> Any:
        """The outputs of the group."""
        exported = export(self.module, [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs])
        self.seen.append(exported)
        return tuple(run(exported, [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs]))


def compiled(function: Callable[..., Any], seen: list[Any]) -> Callable[..., Any]:
    """The function by torch.compile for any size, its groups by the interpreter."""

    def compiler(module: GraphModule, _: Any) -> Callable[..., Any]:
        parts = partition(module)
        for name in parts.groups:
            setattr(parts.module, name, Exporting(getattr(parts.module, name), seen))
        return make_boxed_func(parts.module.forward)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, inference_compiler=compiler)
    return torch.compile(function, backend=backend, dynamic=True)


def test_any_size_of_a_layer_with_its_gradients() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        n, d = x.shape
        y = torch.softmax(x @ w.t() / d, -1).view(n, 2, -1)
        kept, _ = torch.sort(y.transpose(0, 1), -1)
        return (kept * y.transpose(0, 1)).sum(-1).exp() + n

    seen: list[Any] = []
    planned = compiled(function, seen)
    for rows, wide in ((4, 6), (7, 6), (2, 9)):
        tensors = [torch.randn(rows, wide), torch.randn(8, wide)]
        mine, theirs = ([t.clone().requires_grad_() for t in tensors] for _ in range(2))
        found, expected = planned(*mine), function(*theirs)
        assert difference(found.detach(), expected.detach()) == ""
        grads = [torch.autograd.grad(r.square().sum(), t) for r, t in ((found, mine), (expected, theirs))]
        for a, b in zip(*grads, strict=True):
            assert difference(a, b) == ""
    assert len({str(e.body["inputs"]) for e in seen}) > 3


def test_a_float_that_changes_is_no_constant() -> None:
    def function(x: torch.Tensor, rate: float) -> torch.Tensor:
        return torch.tanh(x * rate) - rate

    seen: list[Any] = []
    planned = compiled(function, seen)
    for rate in (0.1, 0.2, 0.7):
        x = torch.rand(5, 3)
        assert difference(planned(x, rate), function(x, rate)) == ""
    bodies = {str(e.body) for e in seen[1:]}
    assert len(bodies) == 1, "a body for each number"


@pytest.mark.parametrize("count", [1, 3])
def test_whole_numbers_among_sizes(count: int) -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return (x.new_ones(n, 2) * n + x[:1, :2]).exp() * x.shape[0]

    seen: list[Any] = []
    planned = compiled(function, seen)
    for rows in (3, 5):
        x = torch.rand(rows, 4)
        assert difference(planned(x, count), function(x, count)) == ""
    assert seen
