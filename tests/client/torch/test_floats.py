"""Floats of a program that change from call to call, used as tensors may be and as they may not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuseplan_client.torch.backend import Backend
from torch import Tensor, nn

from tests.support.taken_plans import NoPlans

FUNCTIONS: dict[str, Callable[[Tensor, float], Any]] = {
    "tensor": lambda x, a: (x * a, x + a),
    "constant": lambda x, a: x**a,
    "both": lambda x, a: (x * a, x**a),
    "both, of what is computed": lambda x, a: (x * (a / 2), x.clamp(max=a * 2)),
    "many": lambda x, a: (x * a, x + a, x**a, x.clamp(max=a), x % a, x / a),
    "compared": lambda x, a: x * a if a > 1.7 else x**a,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("train", [False, True])
def test_each_call_has_its_own(name: str, train: bool) -> None:
    torch._dynamo.reset()
    function = FUNCTIONS[name]
    compiled = torch.compile(function, backend=Backend(asker=NoPlans(), least_ops=1))
    for i in range(6):
        x = (torch.rand(5) + 0.5).requires_grad_(train)
        a = 1.5 + i * 0.1
        found, expected = compiled(x, a), function(x, a)
        torch.testing.assert_close(found, expected)
        if train:
            sums = [sum(t.sum() for t in (y if isinstance(y, tuple) else (y,))) for y in (found, expected)]
            torch.testing.assert_close(*(torch.autograd.grad(s, x)[0] for s in sums))


def test_of_a_module() -> None:
    class Scaled(nn.Module):
        scale = 1.0

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.scale).tanh() + x.abs() ** self.scale

    torch._dynamo.reset()
    module = Scaled()
    compiled = torch.compile(module, backend=Backend(asker=NoPlans(), least_ops=1))
    for scale in (1.0, 1.5, 2.0, 2.5, 3.0):
        module.scale = scale
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x), module(x))
