"""Small models of many kinds by `torch.compile`, in training, without gradients and under autocast: what eager mode
gives, by plans none of which is wrong."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch.agreement import disagreement
from fuseplan_client.torch.backend import Backend
from torch.utils._pytree import tree_leaves

from testing.local_plans import LocalPlans
from tests.support.taken_plans import take_all
from tests.support.torch_models import CASES
from tests.support.whole import WHOLE, one_part

CALLS = 24
# Planners without a limit of time take half a minute to two for these: they are for the long run.
LONG = {("norm first", "autocast"), ("transformer decoder", "train"), ("transformer decoder", "autocast")}
NAMES = [(name, mode) for name, case in CASES.items() for mode in case.modes if WHOLE or (name, mode) not in LONG]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlans]:
    made = LocalPlans.made(tmp_path_factory.mktemp("models") / "cache")
    yield made
    made.close()


def step(module: Any, call: Any, inputs: tuple[Any, ...], mode: str) -> list[Any]:
    """Results, gradients and buffers."""
    module.zero_grad()
    context = torch.autocast("cpu", torch.bfloat16) if mode == "autocast" else nullcontext()
    with context, torch.set_grad_enabled(mode != "eval"):
        found = [t for t in tree_leaves(call(*inputs)) if isinstance(t, torch.Tensor)]
    if mode != "eval":
        torch.stack([t.float().square().mean() for t in found]).sum().backward()
    grads = [p.grad for p in module.parameters() if p.grad is not None]
    return [*(t.detach() for t in found), *grads, *(b.clone() for b in module.buffers())]


@pytest.mark.parametrize(("name", "mode"), one_part(NAMES, 2, "models"))
def test_models(name: str, mode: str, plans: LocalPlans, monkeypatch: pytest.MonkeyPatch) -> None:
    take_all(monkeypatch)
    plans.failures.clear()
    torch._dynamo.reset()
    torch.manual_seed(0)
    case = CASES[name]
    module = case.model().train(mode != "eval")
    own = copy.deepcopy(module)
    backend = Backend(asker=plans, least_ops=1)
    compiled = torch.compile(module, backend=backend, dynamic=False)
    half = torch.bfloat16 if mode == "autocast" else None
    for seed in range(CALLS):
        torch.manual_seed(seed)
        inputs = case.inputs()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, expected = (step(m, c, inputs, mode) for m, c in ((module, compiled), (own, own)))
        assert disagreement(found, expected, [half] * len(expected)) == "", (seed, backend.problems)
    slots = [s for g in backend.groups for s in g.slots.values()]
    assert slots, backend.problems
    assert not plans.failures
    assert not backend.problems
    assert all(s.state == "planned" for s in slots), [(s.state, s.reason) for s in slots]
    torch._dynamo.reset()
