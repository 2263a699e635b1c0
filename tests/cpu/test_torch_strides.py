"""Models whose tensors lie otherwise than PyTorch's fake tensors foresee: right without plans, and with them."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch import backend as backend_module
from fuseplan_client.torch import group as group_module
from fuseplan_client.torch.backend import Backend
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn import functional as F

from testing.local_plans import LocalPlans
from tests.support.taken_plans import NoPlans, take_all
from tests.support.torch_models import Of

CALLS = 24
MODES = ("train", "eval", "autocast")


def batch_norm_of_tokens(m: nn.ModuleDict, x: Tensor) -> Tensor:
    y = m["norm"](m["in"](x).transpose(1, 2)).transpose(1, 2)
    return x + m["out"](F.gelu(y).reshape(-1, 32)).view(*x.shape)


def residual(m: nn.ModuleDict, x: Tensor) -> Tensor:
    y = m["conv"](F.silu(m["norm"](x)))
    y = (y + m["mix"](y.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(y.shape)) / 1.0
    return m["out"](F.silu(m["last"](y)))


def reduced_attention(m: nn.ModuleDict, x: Tensor) -> Tensor:
    n, width = x.shape[0], x.shape[2]
    image = m["norm"](x).transpose(1, 2).reshape(n, width, 8, 8)
    kept = m["inner"](m["reduce"](image).flatten(2).transpose(1, 2))
    scores = (m["q"](m["norm"](x)) @ kept.transpose(1, 2)).softmax(-1)
    return x + scores @ kept


def block(m: nn.ModuleDict, x: Tensor) -> Tensor:
    y = F.relu(m["norm1"](m["conv1"](x)))
    return F.relu(m["norm2"](m["conv2"](y)) + x)


MODELS: dict[str, tuple[Callable[[], nn.Module], Sequence[int]]] = {
    "batch norm of tokens": (
        lambda: Of(
            batch_norm_of_tokens,
            **{"in": nn.Linear(16, 32), "norm": nn.BatchNorm1d(32), "out": nn.Linear(32, 16)},
        ),
        (6, 8, 16),
    ),
    "one image": (
        lambda: Of(
            residual,
            norm=nn.GroupNorm(8, 32),
            conv=nn.Conv2d(32, 32, 3, padding=1),
            mix=nn.Linear(32, 32),
            last=nn.GroupNorm(8, 32),
            out=nn.Conv2d(32, 8, 3, padding=1),
        ),
        (1, 32, 16, 16),
    ),
    "reduced attention": (
        lambda: Of(
            reduced_attention,
            norm=nn.LayerNorm(32),
            inner=nn.LayerNorm(32),
            reduce=nn.Conv2d(32, 32, 2, 2),
            q=nn.Linear(32, 32),
        ),
        (2, 64, 32),
    ),
    "batch norms of images": (
        lambda: Of(
            block,
            conv1=nn.Conv2d(64, 64, 3, padding=1, bias=False),
            norm1=nn.BatchNorm2d(64),
            conv2=nn.Conv2d(64, 64, 3, padding=1, bias=False),
            norm2=nn.BatchNorm2d(64),
        ),
        (4, 64, 14, 14),
    ),
}


def step(module: nn.Module, call: Any, x: Tensor, mode: str) -> list[Tensor]:
    """Result, gradients and buffers."""
    module.zero_grad()
    x = x.clone().requires_grad_(mode != "eval")
    with torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"), torch.set_grad_enabled(mode != "eval"):
        y = call(x)
    if mode != "eval":
        y.float().square().mean().backward()
    grads = [t.grad for t in (x, *module.parameters()) if t.grad is not None]
    return [y.detach(), *grads, *(b.clone() for b in module.buffers())]


def same(found: Sequence[Tensor], expected: Sequence[Tensor], mode: str) -> None:
    near = {"rtol": 5e-2, "atol": 5e-2} if mode == "autocast" else {"rtol": 1e-4, "atol": 1e-4}
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, **near)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_without_plans(name: str, mode: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, sizes = MODELS[name]
    module = model().train(mode != "eval")
    own, backend = copy.deepcopy(module), Backend(asker=NoPlans(), least_ops=1)
    compiled = torch.compile(module, backend=backend, dynamic=False)
    for _ in range(2):
        x = torch.randn(*sizes)
        same(step(module, compiled, x, mode), step(own, own, x, mode), mode)
    assert backend.groups
    assert not backend.problems


@pytest.mark.sweep(0.2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_with_plans(name: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_all(monkeypatch)
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, sizes = MODELS[name]
    module = model().train(mode != "eval")
    plans = LocalPlans.made(tmp_path / "cache")
    own, backend = copy.deepcopy(module), Backend(asker=plans, least_ops=1)
    compiled = torch.compile(module, backend=backend, dynamic=False)
    for _ in range(CALLS):
        x = torch.randn(*sizes)
        same(step(module, compiled, x, mode), step(own, own, x, mode), mode)
    slots = [s for g in backend.groups for s in g.slots.values()]
    assert not plans.failures
    assert not backend.problems
    assert {s.state for s in slots} == {"planned"}, [(s.state, s.reason) for s in slots]
    plans.close()


FORESEEN_OTHERWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": lambda x: F.softplus(x).transpose(1, 2),
    "relu6": lambda x: F.relu6(x).transpose(1, 2),
    "layer norm": lambda x: F.layer_norm(x, (4,)).transpose(1, 2),
    "dropout": lambda x: F.dropout(x.transpose(1, 2), 0.1) * 2,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FORESEEN_OTHERWISE)
def test_plans_are_asked_for_with_layouts_that_were_seen(
    name: str, dynamic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_all(monkeypatch)
    torch._dynamo.reset()
    function, plans = FORESEEN_OTHERWISE[name], LocalPlans.made(tmp_path / "cache")
    backend = Backend(asker=plans, least_ops=1)
    compiled = torch.compile(lambda x, g: function(x) * g, backend=backend, dynamic=dynamic)
    for seed in range(CALLS):
        x, g = torch.randn(2, 6, 4, requires_grad=True), torch.randn(2, 4, 6)
        found = list[Tensor]()
        for call in (compiled, lambda x, g: function(x) * g):
            torch.manual_seed(seed)
            y = call(x, g)
            found += [y, *torch.autograd.grad(y.sum(), x)]
        same(found[:2], found[2:], "train")
    slots = [s for g in backend.groups for s in g.slots.values()]
    assert not backend.problems
    assert not plans.refusals
    assert [s.state for s in slots] == ["planned"] * 2, [(s.state, s.reason) for s in slots]
    plans.close()


def test_groups_write_running_statistics_where_they_belong() -> None:
    model, sizes = MODELS["batch norms of images"]
    module = model()
    torch._dynamo.reset()
    own, backend = copy.deepcopy(module), Backend(asker=NoPlans(), least_ops=1)
    compiled = torch.compile(module, backend=backend, dynamic=False)
    for _ in range(3):
        x = torch.randn(*sizes)
        same(step(module, compiled, x, "train"), step(own, own, x, "train"), "train")
    assert sum(len(group.updates) for group in backend.groups) == 6, "two statistics and a count for each norm"
    assert not [n for g in backend.graphs for n in g.module.graph.nodes if n.target is torch.ops.aten.copy_.default]


def test_elements_that_are_read_by_strides() -> None:
    """The strides are of the kernel's result, which lies otherwise than its fake tensor."""
    norm = nn.BatchNorm1d(8).eval()

    def function(x: Tensor) -> Tensor:
        y = norm(x.transpose(1, 2)) * 2
        return torch.as_strided(y, (8, 4), (32, 1)).tanh() + y.mean()

    torch._dynamo.reset()
    backend = Backend(asker=NoPlans(), least_ops=1)
    compiled = torch.compile(function, backend=backend, dynamic=False)
    x = torch.randn(8, 4, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x))
    assert not backend.problems


def recompiled(module: GraphModule) -> GraphModule:
    module.recompile()
    return module


def test_a_graph_that_fails_by_groups_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The view that AOTAutograd wrote is none; the model itself has no such view."""
    monkeypatch.setattr(backend_module, "tolerant", recompiled)
    monkeypatch.setattr(backend_module, "foresee", lambda module: None)
    monkeypatch.setattr(group_module, "is_tolerant", lambda graph: True)
    torch._dynamo.reset()
    model, sizes = MODELS["batch norm of tokens"]
    module = model().eval()
    backend = Backend(asker=NoPlans(), least_ops=1)
    compiled = torch.compile(module, backend=backend, dynamic=False)
    for _ in range(3):
        x = torch.randn(*sizes)
        same(step(module, compiled, x, "eval"), step(module, module, x, "eval"), "eval")
    assert backend.groups == []
    assert len(backend.problems) == 1
    assert "view size is not compatible" in backend.problems[0]


def test_nothing_is_updated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that fails behind an update raises what it raised."""
    module = nn.BatchNorm1d(8)

    def function(x: Tensor, i: Tensor) -> Tensor:
        return module(x)[i].exp()

    torch._dynamo.reset()
    backend = Backend(asker=NoPlans(), least_ops=1)
    compiled = torch.compile(function, backend=backend, dynamic=False)
    x = torch.randn(16, 8)
    compiled(x, torch.tensor([7]))
    count, mean = module.num_batches_tracked.clone(), module.running_mean.clone()  # type: ignore[union-attr]
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([99]))
    assert module.num_batches_tracked - count <= 1
    steps = [mean + k * 0.1 * (x.mean(0) - mean) for k in (0, 1)]
    assert any(torch.allclose(module.running_mean, step, atol=1e-5) for step in steps)  # type: ignore[arg-type]
    assert backend.groups


def test_a_fault_of_the_program_is_raised_as_it_is() -> None:
    def function(x: Tensor, i: Tensor) -> Tensor:
        return (x * 2)[i].exp()

    torch._dynamo.reset()
    backend = Backend(asker=NoPlans(), least_ops=1)
    compiled = torch.compile(function, backend=backend, dynamic=False)
    x = torch.randn(8, 4)
    torch.testing.assert_close(compiled(x, torch.tensor([7])), function(x, torch.tensor([7])))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([8]))


def test_a_graph_whose_grouping_fails_takes_any_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Op by op, as PyTorch has it for models, not for its own graphs."""

    def failing(*args: Any) -> Any:
        raise ArithmeticError("no groups")

    monkeypatch.setattr(backend_module, "partition", failing)
    for name, (model, sizes) in MODELS.items():
        torch._dynamo.reset()
        module = model()
        own, backend = copy.deepcopy(module), Backend(asker=NoPlans(), least_ops=1)
        compiled = torch.compile(module, backend=backend, dynamic=False)
        x = torch.randn(*sizes)
        same(step(module, compiled, x, "train"), step(own, own, x, "train"), name)
        assert all("no groups" in problem for problem in backend.problems), (name, backend.problems)
        assert len(backend.problems) == 2, name
