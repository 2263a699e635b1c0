"""Gradients that PyTorch adds up in place, in graphs that give several views of one tensor."""

from collections.abc import Callable

import pytest
import torch
from fuseplan_client.torch.backend import Backend
from torch import Tensor

from tests.support.taken_plans import NoPlans

aten = torch.ops.aten

Model = Callable[[Tensor, Tensor], Tensor]

# Function of a leaf a [4, 6] and a leaf b of 24 elements, sizes of b, and how many gradients have to be copied.
MODELS: dict[str, tuple[Model, tuple[int, ...], int]] = {
    "flat": (lambda a, b: (a + b.view(4, 6)).tanh().sum(), (24,), 1),
    "reshaped": (lambda a, b: (a.reshape(2, 12) + b).tanh().sum(), (2, 12), 1),
    "transposed": (lambda a, b: (a + b.T).tanh().sum(), (6, 4), 1),
    "summed along an axis of one element": (lambda a, b: (a + b).tanh().sum(), (1, 4, 6), 0),
    "with an axis more": (lambda a, b: (a[None] + b).tanh().sum(), (1, 4, 6), 1),
    "views of both": (lambda a, b: (a.view(3, 8) + b.view(3, 8)).tanh().sum(), (2, 12), 1),
    "the same": (lambda a, b: (a + b).tanh().sum(), (4, 6), 0),
    "side by side": (lambda a, b: torch.cat([a, b]).tanh().sum(), (4, 6), 0),
    "tensors of their own": (lambda a, b: (a.sin() + b.view(4, 6)).tanh().sum(), (24,), 0),
    "what backward is given": (lambda a, b: a + b.view(4, 6), (24,), 1),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed sizes", "any sizes"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_leaves_have_memory_of_their_own(name: str, dynamic: bool) -> None:
    """PyTorch takes a gradient that nobody else has as it comes, and adds later ones to it in place."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, sizes, copies = MODELS[name]
    backend = Backend(asker=NoPlans(), least_ops=1)
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    leaves = torch.randn(4, 6, requires_grad=True), torch.randn(sizes, requires_grad=True)
    found = model(*leaves)
    once = torch.autograd.grad(found, leaves, torch.ones_like(found))
    for times in range(1, 4):  # by way of the groups
        found = compiled(*leaves)
        found.backward(torch.ones_like(found))
        torch.testing.assert_close([t.grad for t in leaves], [times * g for g in once])
    modules = [g.module for g in (*backend.graphs, *backend.groups)]
    assert dynamic or sum(n.target is aten.clone.default for m in modules for n in m.graph.nodes) == copies
