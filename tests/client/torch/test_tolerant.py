"""Graphs of any layouts: what they give is to autograd what the model gives."""

import pytest
import torch
from fuseplan_client.torch.backend import Backend
from torch import Tensor

from tests.support.taken_plans import NoPlans


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed sizes", "any sizes"])
def test_results_that_are_written_over_have_gradients(dynamic: bool) -> None:
    """Products of more axes than two are no views to autograd, in groups and outside of them."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(product, backend=Backend(asker=NoPlans(), least_ops=1), dynamic=dynamic)
    for _ in range(4):
        x, w = torch.randn(2, 3, 4), torch.randn(5, 4)
        grads: list[tuple[Tensor, ...]] = []
        for function in (compiled, product):
            leaves = x.clone().requires_grad_(), w.clone().requires_grad_()
            results = function(*leaves)
            for found in results:
                found.div_(2.0)
            grads.append(torch.autograd.grad(sum(r.exp().sum() for r in results), leaves))
        torch.testing.assert_close(*grads)


def product(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """One that plans compute, and one behind a sort, which they do not."""
    return torch.nn.functional.linear(x.tanh(), w), torch.nn.functional.linear(x.sort().values, w)
