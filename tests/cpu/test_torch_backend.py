"""`torch.compile` by plans: what PyTorch gives, with and without gradients, whatever comes in and whatever goes
wrong."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch import devices as devices_module
from fuseplan_client.torch import whole as whole_module
from fuseplan_client.torch.agreement import disagreement
from fuseplan_client.torch.backend import Backend
from fuseplan_client.torch.explain import explain
from fuseplan_client.torch.slot import Offered, Slot
from fuseplan_client.torch.whole import FIRST_CALLS, Race
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from testing.local_plans import LocalPlans
from tests.support.taken_plans import NoPlans, take_all


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlans]:
    made = LocalPlans.made(tmp_path_factory.mktemp("torch") / "cache")
    yield made
    made.close()


@pytest.fixture
def backend(plans: LocalPlans, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A back end whose plans are there at once and are taken whatever their times are."""
    take_all(monkeypatch)
    torch._dynamo.reset()
    made = Backend(asker=plans, least_ops=1)
    plans.failures.clear()
    yield made
    torch._dynamo.reset()


def slots(backend: Backend) -> list[Slot]:
    return [s for g in backend.groups for s in g.slots.values()]


def planned(backend: Backend) -> bool:
    """Whether every group has a plan that has run, and there are some."""
    return bool(slots(backend)) and all(s.state == "planned" and s.planned_calls for s in slots(backend))


CALLS = 52  # one that compares, 14 by which the plan is timed, 30 by which the graph is, and some more
MOST_CALLS = 100  # where parts with plans of their own are judged as well, and the whole graph


def check(function: Callable[..., Any], make: Callable[[int], tuple[Any, ...]], backend: Backend, **how: Any) -> None:
    """Calls with tensors drawn anew give what PyTorch gives: values, strides, dtypes; gradients, where there are; and
    leave inputs as PyTorch does."""
    compiled = torch.compile(function, backend=backend, **how)
    settled = 0
    for seed in range(MOST_CALLS):
        settled += bool(backend.groups) and backend.is_settled
        if settled > 2 and seed >= CALLS:
            break
        sides: list[list[Any]] = []
        for call in (compiled, function):
            torch.manual_seed(seed)
            args = make(seed)
            torch.manual_seed(seed)
            out = call(*args)
            outs = list(out) if isinstance(out, tuple | list) else [out]
            leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
            total = [o.float().square().sum() for o in outs if isinstance(o, torch.Tensor) and o.requires_grad]
            if total:
                torch.stack(total).sum().backward()
            grads = [a.grad for a in leaves]
            sides.append([*outs, *grads, *(a.detach() if isinstance(a, torch.Tensor) else a for a in args)])
        found, expected = sides
        assert [isinstance(v, torch.Tensor) for v in found] == [isinstance(v, torch.Tensor) for v in expected]
        assert disagreement(found, expected) == "", seed
        for a, b in zip(found, expected, strict=True):
            if isinstance(b, torch.Tensor):
                assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
    assert not backend.problems


def of(*shapes: tuple[int, ...], dtype: Any = torch.float32, grad: bool = False) -> Callable[[int], tuple[Any, ...]]:
    def make(seed: int) -> tuple[Any, ...]:
        return tuple(torch.randn(s, dtype=dtype).requires_grad_(grad) for s in shapes)

    return make


def norm_gelu(x: Any, w: Any) -> Any:
    return F.gelu(F.layer_norm(x, x.shape[-1:], w)) + x


def messages(x: Any, w: Any, source: Any, target: Any) -> Any:
    """One step of a graph network: messages along edges, added to the nodes that they go to."""
    sent = x[source] * w[:, None]
    return torch.relu(x.scatter_add(0, target[:, None].expand_as(sent), sent))


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


PLANNED: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "pointwise": (lambda x, y: torch.tanh(x) * y + 1, of((17, 33), (33,))),
    "normalization": (norm_gelu, of((12, 64), (64,))),
    "with gradients": (norm_gelu, of((12, 64), (64,), grad=True)),
    "product": (lambda x, w, b: torch.relu(x @ w + b), of((9, 20), (20, 31), (31,), grad=True)),
    "attention": (attention, of((2, 3, 16, 8), (2, 3, 16, 8), (2, 3, 16, 8), grad=True)),
    "bf16": (norm_gelu, of((12, 64), (64,), dtype=torch.bfloat16, grad=True)),
    "views of inputs": (lambda x: (x.t(), x[1:], (x * 2).t(), x + 1), of((5, 7))),
    "views of results": (lambda x: ((y := x.exp() * 2), y.view(-1), y[0]), of((5, 7))),
    "one tensor twice": (lambda x: ((y := x.exp() * 2), y), of((5, 7))),
    "zero sizes": (lambda x, y: (x.exp() * 2, (y.sum(0) + 1).tanh()), of((0, 7), (0, 3))),
    "not contiguous": (
        lambda x, y: x.exp() * 2 + y,
        lambda s: (torch.randn(7, 5).t(), torch.randn(5, 14)[:, ::2]),
    ),
    "repeated": (lambda x, y: (x * y).exp() + 1, lambda s: (torch.randn(1, 7).expand(5, 7), torch.randn(5, 7))),
    "numbers": (lambda x, a, b: (x * a).exp() + b, lambda s: (torch.randn(5, 7), 0.5 + s, 2)),
    "integers": (lambda x: ((x // 3) * x % 7, x > 3, x.sum()), lambda s: (torch.randint(-50, 50, (40,)),)),
    "mutation": (lambda x: x.mul_(2).add_(1).exp() * 3, of((5, 7))),
    "mutation of a view": (lambda x: (x[1].mul_(2), x.exp() * 3)[1], of((5, 7))),
    "dropout": (lambda x: F.dropout(x.exp(), 0.3, True) * 2 + x, of((40, 50), grad=True)),
    "embedding": (
        lambda w, i: torch.tanh(F.embedding(i, w)) * 2,
        lambda s: (torch.randn(50, 16).requires_grad_(), torch.randint(0, 50, (6, 30))),
    ),
    "messages": (messages, lambda s: (*of((40, 16), (300,), grad=True)(s), *torch.randint(0, 40, (2, 300)))),
    "scalars that are tensors": (lambda x, t: (x * t).exp() + t, lambda s: (torch.randn(5), torch.tensor(1.0 + s))),
}


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.sweep(0.3)
def test_plans_give_what_pytorch_gives(name: str, backend: Backend, plans: LocalPlans) -> None:
    function, make = PLANNED[name]
    check(function, make, backend, dynamic=False if name != "numbers" else None)
    assert planned(backend) or name == "numbers", [(s.state, s.reason) for s in slots(backend)]
    assert not plans.failures


@pytest.mark.turn("calls by plans: sums")
@pytest.mark.parametrize("name", ["embedding", "index_put"])
def test_sums_of_16_bit_terms_that_pytorch_rounds_one_by_one(name: str, backend: Backend, plans: LocalPlans) -> None:
    """PyTorch loses the last of a thousand terms: the plan does not, and is taken all the same."""

    def step(w: torch.Tensor, i: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        if name == "index_put":
            return torch.index_put(torch.zeros_like(w), (i,), g * 2, accumulate=True)
        (found,) = torch.autograd.grad(F.embedding(i, w) * 2, w, g)
        return found

    torch.manual_seed(0)
    w, i = torch.randn(7, 16, dtype=torch.bfloat16), torch.randint(0, 3, (4000,))
    g = (torch.randn(4000, 16) + 1).bfloat16()
    w.requires_grad_(name == "embedding")
    right = step(w.double(), i, g.double())
    compiled = torch.compile(step, backend=backend, dynamic=False)
    for _ in range(CALLS):
        found = compiled(w, i, g)
    assert disagreement(step(w, i, g), right.bfloat16()), "PyTorch's is off"
    assert planned(backend), [(s.state, s.reason) for s in slots(backend)]
    assert (found.double() - right).norm() < 0.01 * right.norm()


@pytest.mark.turn("calls by plans: sizes and casts")
def test_no_grad_and_inference_mode(backend: Backend) -> None:
    compiled = torch.compile(norm_gelu, backend=backend)
    x, w = (t.requires_grad_() for t in of((12, 64), (64,))(0))
    for mode in (torch.no_grad, torch.inference_mode):
        for _ in range(CALLS):
            with mode():
                assert disagreement(compiled(x, w), norm_gelu(x, w)) == ""
    assert planned(backend)


@pytest.mark.turn("calls by plans: sizes and casts")
@pytest.mark.parametrize("norm", [torch.nn.LayerNorm(48), torch.nn.BatchNorm1d(48), torch.nn.GroupNorm(3, 48)], ids=str)
def test_autocast(norm: torch.nn.Module, backend: Backend) -> None:
    """Norms of bf16 with parameters in f32, with what they save for their backward pass."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 48), norm, torch.nn.GELU())
    own, parameters = deepcopy(model), list(model.parameters())
    compiled = torch.compile(model, backend=backend)
    for _ in range(CALLS):
        x = torch.randn(9, 32)
        with torch.autocast("cpu", torch.bfloat16):
            found, expected = compiled(x), own(x)
        assert found.dtype == expected.dtype
        sides = [
            [out, *torch.autograd.grad(out.float().square().mean(), list(side.parameters()))]
            for out, side in ((found, model), (expected, own))
        ]
        assert disagreement(*sides, [torch.bfloat16] * (1 + len(parameters))) == ""
    assert [torch.allclose(a, b, rtol=1e-2) for a, b in zip(model.buffers(), own.buffers(), strict=True)].count(
        False
    ) == 0
    assert planned(backend), [(s.state, s.reason) for s in slots(backend)]
    assert not any("wrong" in problem for problem in backend.problems), backend.problems


def scanned(x: Any, w: Any) -> Any:
    """A scan in f32 of what is rounded to a half dtype before, and everything on the way."""
    step = F.softplus(x * 0.7 + w)
    decay = (-step * x.abs() - step).float()
    sums = decay.cumsum(1)
    return sums, sums.exp() * step.float(), (sums.exp() * step.float()).to(x.dtype)


def residual(x: Any, w: Any) -> Any:
    """A stream in f32 beside products in a half dtype, as under autocast."""
    stream = x.float()
    found = stream + ((x @ w.t()) * 0.3 + 0.1).float()
    return found, F.layer_norm(found, found.shape[-1:]).sum(1)


@pytest.mark.turn("calls by plans: sizes and casts")
@pytest.mark.parametrize("function", [scanned, residual])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_f32_that_comes_of_halves(function: Callable[..., Any], dtype: torch.dtype, backend: Backend) -> None:
    """Plans that round otherwise on the way to an f32 result, or not at all, are not wrong."""
    compiled = torch.compile(function, backend=backend)
    for seed in range(CALLS):
        torch.manual_seed(seed)
        x, w = torch.randn(6, 24).to(dtype), torch.randn(24, 24).to(dtype)
        expected = function(x, w[0] if function is scanned else w)
        found = compiled(x, w[0] if function is scanned else w)
        assert disagreement(found, expected, [dtype] * len(expected)) == ""
    assert planned(backend), backend.problems
    assert not any("wrong" in problem for problem in backend.problems), backend.problems


@pytest.mark.turn("calls by plans: what runs")
def test_graph_breaks(backend: Backend) -> None:
    def function(x: Any) -> Any:
        y = x.exp() * 2
        if y.abs().sum().item() > 0:
            y = y.sin() * y
        return (y + 1).tanh()

    check(function, of((30,)), backend)
    states = [(s.state, s.planned_calls) for s in slots(backend)]
    assert sum(state == "planned" and calls > 0 for state, calls in states) >= 2, states


@pytest.mark.turn("calls by plans: sizes and casts")
def test_sizes_that_change(backend: Backend) -> None:
    """Each of the first eight sizes gets a plan; others run what PyTorch has."""
    compiled = torch.compile(norm_gelu, backend=backend, dynamic=True)
    for rows in range(2, 14):
        for _ in range(CALLS):
            x, w = of((rows, 64), (64,))(rows)
            assert disagreement(compiled(x, w), norm_gelu(x, w)) == ""
    assert len(slots(backend)) == 8
    assert planned(backend)


STEPS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=True),
}


@pytest.mark.turn("calls by plans: what runs")
@pytest.mark.parametrize("name", STEPS)
def test_an_optimizer_step_is_made_in_place(name: str, backend: Backend, plans: LocalPlans) -> None:
    """Parameters and states are written by the plan, where they are; writes are counted as PyTorch counts its own."""

    def made() -> tuple[list[Any], Any]:
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(s)) for s in ((20, 30), (30,), (5, 5))]
        return parameters, STEPS[name](parameters)

    (mine, ours), (theirs, eager) = made(), made()
    step = torch.compile(ours.step, backend=backend)
    addresses = [p.data_ptr() for p in mine]
    for seed in range(2 * CALLS):
        torch.manual_seed(seed)
        for a, b in zip(mine, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        versions = [p._version for p in mine]
        step()
        eager.step()
        assert disagreement(mine, theirs) == "", seed
        assert all(p._version > before for p, before in zip(mine, versions, strict=True)), seed
    assert not backend.problems
    assert [p.data_ptr() for p in mine] == addresses
    groups = backend.wholes[-1].groups  # the first step, which makes the states, may be another graph
    assert all(s.state == "planned" and s.planned_calls for g in groups for s in g.slots.values())
    updates = sum(len(g.updates) for g in groups)
    placed = sum(len(p.in_place) for p in plans.plans[-len(groups) :])
    assert (updates, placed) == ((12, 12) if name == "adam" else (6, 6))


def updated_at_last(x: Any, w: Any) -> Any:
    """x is read after what becomes of it is known."""
    y = (x * w).tanh()
    z = torch.sort(x, -1)[0] + 1
    x.copy_(y)
    return z


def exchanged(x: Any, y: Any) -> Any:
    """Each is computed of both."""
    x_new, y_new = (x + y) * y, (x - y) * x
    x.copy_(x_new)
    y.copy_(y_new)
    return x_new.sum()


UPDATED: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "each element of itself": (lambda x, w: x.copy_((x * w).tanh()), of((9, 33), (33,))),
    "of other elements": (lambda x: x.copy_((x.t() * 2).tanh()), of((24, 24))),
    "of a whole row": (lambda x: x.copy_(torch.softmax(x * 2, -1)), of((9, 33))),
    "read later": (updated_at_last, of((9, 33), (33,))),
    "returned as well": (lambda x: x.mul_(2).add_(1).tanh_(), of((9, 33))),
    "two that change places": (
        exchanged,
        of((9, 33), (9, 33)),
    ),
    "a row of a tensor": (lambda x: x[1].copy_((x[1] * x[0]).exp()), of((5, 16))),
    "of a view that was made outside": (
        lambda x: x.copy_((x * 2 + torch.as_strided(x, (64, 64), (1, 64))).tanh()) + 1,
        of((64, 64)),
    ),
    "not contiguous": (lambda x: x.copy_(x.exp() * 2), lambda s: (torch.randn(33, 9).t(),)),
    "anywhere in memory": (lambda x: x.copy_(x.exp() * 2), lambda s: (torch.randn(100)[3:],)),
    "integers": (lambda x: x.add_(1).mul_(3), lambda s: (torch.randint(-9, 9, (40,)),)),
    "with a product": (lambda x, w: x.copy_(torch.tanh((x * 2) @ w) + 1), of((16, 16), (16, 16))),
}


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("name", UPDATED)
def test_inputs_that_are_updated(name: str, backend: Backend) -> None:
    function, make = UPDATED[name]
    check(function, make, backend, dynamic=False)
    assert planned(backend), [(s.state, s.reason) for s in slots(backend)]


def test_a_plan_that_is_not_kept_leaves_updates_as_they_were(
    plans: LocalPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is compared, it works on copies; a wrong one never shows."""
    torch._dynamo.reset()
    backend, offer = Backend(asker=plans), Slot.offer

    def worse(slot: Slot, plan: Offered) -> None:
        def call(args: Any) -> Any:
            found = plan.call(args)
            args[slot.updates[0].input].add_(1.0)
            return found

        offer(slot, replace(plan, call=call))

    monkeypatch.setattr(Slot, "offer", worse)

    def update(x: Any, y: Any) -> None:
        x.copy_((x * y + 1).tanh())

    compiled = torch.compile(update, backend=backend, dynamic=False)
    for seed in range(CALLS):
        x, y = of((9, 33), (9, 33))(seed)
        expected = (x * y + 1).tanh()
        compiled(x, y)
        assert disagreement(x, expected) == "", seed
    (slot,) = slots(backend)
    assert (slot.state, slot.reason.partition(":")[0]) == ("refused", "wrong")


def test_two_models_and_threads_that_call_at_once(backend: Backend) -> None:
    models = [
        torch.compile(f, backend=backend, dynamic=False) for f in (norm_gelu, lambda x, w: (x * w).softmax(-1) + 1)
    ]
    eager = (norm_gelu, lambda x, w: (x * w).softmax(-1) + 1)
    with torch.no_grad():
        for _ in range(CALLS):
            for m in models:
                m(*of((12, 64), (64,))(0))
    wrong: list[str] = []

    def work() -> None:
        with torch.no_grad():
            for i in range(60):
                x, w = torch.randn(12, 64), torch.randn(64)
                wrong.append(disagreement(models[i % 2](x, w), eager[i % 2](x, w)))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert set(wrong) == {""}
    assert planned(backend)


class Doubled(torch.utils.data.Dataset[Any]):
    """A data set that is computed by a plan, in workers that are forks."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        with torch.no_grad():
            return self.call(torch.full((12, 64), float(i)), torch.ones(64)), os.getpid()


@pytest.mark.timeout(120)
def test_workers_of_a_data_loader(backend: Backend) -> None:
    compiled = torch.compile(norm_gelu, backend=backend, dynamic=False)
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(*of((12, 64), (64,))(0))
    assert planned(backend)
    loader = torch.utils.data.DataLoader(Doubled(compiled), batch_size=3, num_workers=2, multiprocessing_context="fork")
    pids = set()
    for at, (found, pid) in enumerate(loader):
        pids |= set(pid.tolist())
        for j in range(3):
            expected = norm_gelu(torch.full((12, 64), float(3 * at + j)), torch.ones(64))
            assert disagreement(found[j], expected) == ""
    assert os.getpid() not in pids


@pytest.mark.parametrize("fault", ["wrong", "unusable", "slower"])
def test_plans_that_are_not_kept(fault: str, plans: LocalPlans, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that gives something else, raises, or takes longer: calls give what PyTorch gives, and the plan is
    refused."""
    torch._dynamo.reset()
    backend = Backend(asker=plans)
    offer, clock = Slot.offer, [0.0]

    def worse(slot: Slot, plan: Offered) -> None:
        def call(args: Any) -> Any:
            if fault == "unusable":
                raise RuntimeError("no such kernel")
            found = plan.call(args)
            if fault == "wrong":
                found[0].add_(0.01)
            clock[0] += 1.0
            return found

        offer(slot, replace(plan, call=call))

    monkeypatch.setattr(Slot, "offer", worse)
    monkeypatch.setattr(devices_module.time, "perf_counter", lambda: clock[0])
    compiled = torch.compile(norm_gelu, backend=backend, dynamic=False)
    for seed in range(CALLS):
        x, w = of((12, 64), (64,))(seed)
        with torch.no_grad():
            assert disagreement(compiled(x, w), norm_gelu(x, w)) == ""
    (slot,) = slots(backend)
    assert (slot.state, slot.reason.partition(":")[0]) == ("refused", fault)
    assert backend.problems
    told = plans.refusals.pop()
    assert (told.why, told.plan_key) == (fault, plans.plans[-1].plan_key)
    assert (told.took_us is not None) is (told.instead_us is not None) is (fault == "slower")


UNFIT = {
    "strides": lambda x, w: (x.t().contiguous().t(), w),
    "dtype": lambda x, w: (x.double(), w.double()),
    "alignment": lambda x, w: (torch.empty(12 * 64 + 1)[1:].view(12, 64).copy_(x), w),
}


@pytest.mark.parametrize("name", UNFIT)
def test_tensors_that_lie_otherwise_run_what_the_plan_replaced(name: str, backend: Backend) -> None:
    """Kernels of PyTorch's need not give what AOTAutograd foresaw: such calls do without the plan, and at last it
    goes."""
    compiled = torch.compile(lambda x, w: norm_gelu(x, w) * 2, backend=backend, dynamic=False)
    x, w = of((12, 64), (64,))(0)
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(x, w)
    (group,), (slot,) = backend.groups, slots(backend)
    assert planned(backend)
    for i in range(25):
        other = UNFIT[name](x, w)
        assert disagreement(group(*other), group.module(*other)) == ""
        assert (slot.state == "refused") is (i >= 19)
    assert "20 calls did not fit" in slot.reason


def test_code_that_was_changed_on_the_way_is_not_loaded(plans: LocalPlans) -> None:
    torch._dynamo.reset()
    changed = LocalPlans(plans.bench, plans.executor, lambda data: data[:-1] + b"x")
    backend = Backend(asker=changed)
    compiled = torch.compile(lambda x: x.exp().cos() * 5, backend=backend, dynamic=False)
    for _ in range(CALLS):
        x = torch.randn(40)
        assert torch.equal(compiled(x), x.exp().cos() * 5)
    (slot,) = slots(backend)
    assert slot.state == "waiting"
    assert "expected a binary of sha256" in slot.reason


@pytest.mark.turn("calls by plans: what runs")
def test_an_explanation_says_what_went_where(backend: Backend) -> None:
    def model(x: Any, w: Any) -> Any:
        h = torch.sort(norm_gelu(x, w) * 2, -1)[0]
        return (h.exp() + x).tanh() @ w

    found = explain(model, of((12, 64), (64,), grad=True)(0), backend=backend, inductor=False)
    assert [g.kind for g in found.graphs] == ["forward", "backward"]
    forward = found.graphs[0].parts
    assert [v.is_planned for v in found.verdicts] == [True]
    assert [bool(p.state) for p in forward] == [True, False, True]
    assert forward[1].name.startswith("aten.sort")
    assert "no such op" in forward[1].reason
    assert all(p.us is not None and p.us > 0 for p in forward)
    assert all(p.state == "planned" and (p.kernels or 0) > 0 and (p.eager_us or 0) > 0 for p in forward if p.state)
    text = str(found)
    assert "aten.sort" in text
    assert "PyTorch's: no such op" in text


@pytest.mark.sweep(0.5)
@pytest.mark.parametrize("faster", ["whole", "parts"])
def test_products_are_inside_where_that_is_faster(
    faster: str, plans: LocalPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group with products is computed by one plan, or by plans between products of PyTorch's: calls decide."""
    torch._dynamo.reset()
    backend = Backend(asker=plans, least_ops=1)
    seen: list[str] = []

    def decide(slot: Slot, plan: Offered) -> None:
        is_whole = bool(plan.key) and slot is slots(backend)[0]
        seen.append("whole" if is_whole else "part" if plan.key else "parts")
        slot.plan_us, slot.replaced_us = (1.0, 2.0) if faster == "parts" or plan.key else (2.0, 1.0)
        if slot.plan_us < slot.replaced_us:
            slot._accept(plan)
        else:
            slot._refuse(plan, "slower", "")

    monkeypatch.setattr(Slot, "_decide", decide)

    def function(x: Any, w: Any, v: Any) -> Any:
        return torch.tanh(torch.relu(x.exp() @ w) * 2 + 1) @ v

    compiled = torch.compile(function, backend=backend, dynamic=False)
    shapes = ((9, 20), (20, 31), (31, 5))
    for seed in range(3 * MOST_CALLS):  # sides of a graph that are close are timed three times as long
        if seed >= MOST_CALLS and backend.is_settled:
            break
        torch.manual_seed(seed)
        args = of(*shapes)(seed)
        with torch.no_grad():
            assert disagreement(compiled(*args), function(*args)) == "", seed
    (slot,) = slots(backend)
    assert seen[0] == "whole"
    assert seen[-1] == "parts"
    assert seen.count("part") == 2, "what is before the first product, and what is between the two"
    assert slot.accepted is not None
    assert bool(slot.accepted.key) is (faster == "whole")
    assert backend.is_settled


@pytest.mark.turn("calls by plans: what runs")
def test_inductor_runs_what_no_plan_does(plans: LocalPlans, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a plan is there, and where none is faster, a group runs as Inductor has compiled it."""
    torch._dynamo.reset()
    monkeypatch.setattr(Slot, "_decide", lambda slot, plan: slot._refuse(plan, "slower", ""))
    backend = Backend(asker=plans, until="inductor")
    compiled = torch.compile(norm_gelu, backend=backend, dynamic=False)
    for seed in range(CALLS):
        x, w = (t.requires_grad_() for t in of((12, 64), (64,))(seed))
        y, v = (t.detach().clone().requires_grad_() for t in (x, w))
        found, expected = compiled(x, w), norm_gelu(y, v)
        found.sum().backward()
        expected.sum().backward()
        assert disagreement([found, x.grad, w.grad], [expected, y.grad, v.grad]) == ""
    assert len(slots(backend)) == 2
    for group, slot in zip(backend.groups, slots(backend), strict=True):
        assert slot.state == "refused"
        assert slot.replaced.__qualname__.startswith("by_inductor"), group.label
    with pytest.raises(ValueError, match="until: expected eager or inductor, got 'aot'"):
        Backend(until="aot")


def test_what_depends_on_parameters_alone_is_computed_once(plans: LocalPlans, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `constants`, until a parameter is written to, or is another tensor."""
    take_all(monkeypatch)
    torch._dynamo.reset()
    backend = Backend(asker=plans, constants=True)

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(64, 48))

        def forward(self, x: Any) -> Any:
            return torch.tanh(x) * torch.softmax(self.w.exp().sin() * 3, -1).sum(0)

    model = Scaled()
    compiled = torch.compile(model, backend=backend, dynamic=False)
    for step in range(3 * CALLS):
        if step % CALLS == CALLS - 1:
            with torch.no_grad():
                model.w.mul_(0.9)
        if step == 2 * CALLS:
            model.w.data = torch.randn(64, 48)
        x = torch.randn(30, 48)
        with torch.no_grad():
            assert disagreement(compiled(x), model(x)) == "", step
    assert plans.plans[-1].prologue, "the search found that most of it can be done ahead"
    assert planned(backend)
    assert not plans.failures


def test_tensors_that_lie_anywhere_have_plans(backend: Backend) -> None:
    """A buffer that is a row of another tensor begins wherever that row does."""
    columns = torch.tril_indices(3, 3, -1)[1]
    assert columns.data_ptr() % 16
    whole = torch.randn(2, 9 * 7)

    def function(x: Any, at: Any, odd: Any) -> Any:
        return (x.exp()[:, at] * 2 + 1).tanh().sum() * odd.exp()

    check(function, lambda _: (torch.randn(4, 9), columns, whole[1][1:]), backend)
    assert planned(backend)


@pytest.mark.turn("calls by plans: what runs")
def test_a_graph_without_plans_runs_as_the_model_has_it(plans: LocalPlans, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every plan was refused, forward and backward run PyTorch's own ops again, not those of AOTAutograd."""
    torch._dynamo.reset()
    monkeypatch.setattr(Slot, "_decide", lambda slot, plan: slot._refuse(plan, "slower", ""))
    backend = Backend(asker=plans)
    compiled = torch.compile(norm_gelu, backend=backend, dynamic=False)
    ways = [train(compiled, norm_gelu, seed) for seed in range(2 * CALLS)]
    assert "Compiled" in ways[0]
    assert "Compiled" not in ways[-1]
    assert backend.is_settled


def train(compiled: Callable[..., Any], function: Callable[..., Any], seed: int) -> str:
    """A step of the compiled function and the same of the function agree. Returns the name of what computes the
    gradient of the result."""
    x, w = (t.requires_grad_() for t in of((12, 64), (64,))(seed))
    y, v = (t.detach().clone().requires_grad_() for t in (x, w))
    found, expected = compiled(x, w), function(y, v)
    name = found.grad_fn.name()
    found.sum().backward()
    expected.sum().backward()
    assert disagreement([found, x.grad, w.grad], [expected, y.grad, v.grad]) == "", seed
    return name


@pytest.mark.sweep(0.5)
@pytest.mark.parametrize("is_faster", [True, False])
def test_the_whole_step_is_judged_with_its_plans(
    is_faster: bool, plans: LocalPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans that are faster than the ops in their groups are used if forward and backward with them are faster than
    what the model would run."""
    torch._dynamo.reset()
    monkeypatch.setattr(Slot, "_decide", Slot._accept)
    asked: list[tuple[float, float]] = []

    def verdict(planned_us: float, own_us: float) -> bool:
        asked.append((planned_us, own_us))
        return is_faster

    monkeypatch.setattr(whole_module, "_is_faster", verdict)
    monkeypatch.setattr(whole_module, "CLOSE", 0.0)
    backend = Backend(asker=plans)
    compiled = torch.compile(norm_gelu, backend=backend, dynamic=False)
    ways = [train(compiled, norm_gelu, seed) for seed in range(MOST_CALLS)]
    assert len(asked) == 1
    assert min(asked[0]) > 0
    assert backend.is_settled
    in_race = ways[-MOST_CALLS // 2 :]
    assert {"Compiled" in way for way in in_race[-10:]} == {is_faster}
    (whole,) = backend.wholes
    assert (whole.races[()].planned_us, whole.races[()].own_us) == asked[0]
    (slot, _) = slots(backend)
    assert slot.accepted is not None
    slot.offer(slot.accepted)  # another plan: the same, once more
    assert not backend.is_settled
    for seed in range(MOST_CALLS):
        train(compiled, norm_gelu, seed)
    assert len(asked) == 1, "which is what was judged before"


def test_backward_passes_are_timed_with_their_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph for each of several layers: their backward passes come later, in the opposite order; some never do."""
    clock = [0.0]
    monkeypatch.setattr(devices_module.time, "perf_counter", lambda: clock[0])

    def side(took_s: float) -> Callable[..., Any]:
        class Timed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, w: Any) -> Any:
                clock[0] += took_s
                return x * 2 + w

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
                clock[0] += 2 * took_s
                return grad * 2, grad

        return Timed.apply

    samples_us = None
    race, sides = Race(), {True: side(1.0), False: side(3.0)}
    weights = [torch.ones(4, requires_grad=True) for _ in range(4)]
    for step in range(20):
        x = torch.ones(4, requires_grad=True)
        for w in weights:
            x = race.call(sides, (x, w))
            clock[0] += 100.0  # what is between the layers
        if step % 2:
            x.sum().backward()
        samples_us = race.samples_us()
        if samples_us is not None:
            break
    assert samples_us is not None
    assert {side: set(samples) for side, samples in samples_us.items()} == {True: {3e6}, False: {9e6}}
    race.decide(samples_us)
    assert race.is_planned
    assert (race.planned_us, race.own_us) == (3e6, 9e6)
    hooks = [w._backward_hooks for w in weights]
    assert not any(hooks), "none is left on the model's parameters"


def asked_twice(call: Callable[..., Any], x: Any, w: Any) -> list[Any]:
    found = call(x, w)
    found.sum().backward(retain_graph=True)
    found.square().sum().backward()
    return [x.grad, w.grad]


GRADIENTS: dict[str, Callable[..., list[Any]]] = {
    "of all": lambda call, x, w: list(torch.autograd.grad(call(x, w).sum(), [x, w])),
    "of one input": lambda call, x, w: list(torch.autograd.grad(call(x, w).sum(), [x])),
    "of the other": lambda call, x, w: list(torch.autograd.grad(call(x, w).sum(), [w])),
    "twice": asked_twice,
    "of one call in another": lambda call, x, w: list(torch.autograd.grad(call(call(x, w), w).sum(), [x, w])),
    "recomputed": lambda call, x, w: list(
        torch.autograd.grad(checkpoint(call, x, w, use_reentrant=False).sum(), [x, w])
    ),
    "recomputed, of two calls": lambda call, x, w: list(
        torch.autograd.grad(
            checkpoint(call, checkpoint(call, x, w, use_reentrant=False), w, use_reentrant=False).sum(), [x]
        )
    ),
    "recomputed now and then": lambda call, x, w: [
        *torch.autograd.grad(checkpoint(call, x, w, use_reentrant=False).sum(), [x, w]),
        *torch.autograd.grad(call(x, w).sum(), [x, w]),
    ],
}


@pytest.mark.sweep(0.25)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_asked_for_in_any_way_while_a_graph_is_judged(name: str, backend: Backend) -> None:
    compiled, ask = torch.compile(norm_gelu, backend=backend, dynamic=False), GRADIENTS[name]
    for seed in range(CALLS):
        x, w = (t.requires_grad_() for t in of((12, 64), (64,))(seed))
        y, v = (t.detach().clone().requires_grad_() for t in (x, w))
        assert disagreement(ask(compiled, x, w), ask(norm_gelu, y, v)) == "", seed
    assert planned(backend)
    assert backend.is_settled


@torch.compiler.nested_compile_region
def dropped(x: Any, w: Any) -> Any:
    return F.dropout(F.gelu(x * w), 0.3) * w


def without_products() -> Any:
    return create_selective_checkpoint_contexts([torch.ops.aten.mul.Tensor])


REGIONS: dict[str, Callable[[Any, Any], Any]] = {
    "a checkpoint": lambda x, w: checkpoint(norm_dropout, x, w, use_reentrant=False).exp() * w,
    "one in another": lambda x, w: checkpoint(
        lambda x, w: F.dropout(checkpoint(norm_dropout, x, w, use_reentrant=False), 0.2) * w, x, w, use_reentrant=False
    ),
    "a checkpoint of some ops": lambda x, w: checkpoint(
        norm_dropout, x, w, use_reentrant=False, context_fn=without_products
    ).exp(),
    "a checkpoint that updates what it reads": lambda x, w: updated_inside(x, w).exp() * w,
    "a region that is compiled once": lambda x, w: dropped(dropped(x, w), w).exp() * w,
}


def norm_dropout(x: Any, w: Any) -> Any:
    return F.dropout(norm_gelu(x, w), 0.3) * w


def updated_inside(x: Any, w: Any) -> Any:
    count = torch.zeros(())

    def counted(x: Any, w: Any) -> Any:
        count.add_(1.0)
        return norm_dropout(x, w)

    return checkpoint(counted, x, w, use_reentrant=False)


@pytest.mark.parametrize("name", REGIONS)
def test_regions_draw_the_same_numbers_for_gradients_on_either_side(name: str, backend: Backend) -> None:
    function = REGIONS[name]
    compiled = torch.compile(function, backend=backend, dynamic=False)
    for seed in range(CALLS):
        x, w = (t.requires_grad_() for t in of((12, 64), (64,))(seed))
        y, v = (t.detach().clone().requires_grad_() for t in (x, w))
        ways = ((compiled, x, w), (function, y, v))
        found, expected = [], []
        for (call, *args), results in zip(ways, (found, expected), strict=True):
            torch.manual_seed(seed)
            results.append(call(*args))
            results += torch.autograd.grad(results[0].sum(), args)
            results.append(torch.rand(3))
        assert disagreement(found, expected) == "", seed
    assert planned(backend)
    assert backend.is_settled


def test_forward_passes_count_where_no_gradient_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_module, "CLOSE", 0.0)
    race = Race()
    sides = dict.fromkeys((True, False), lambda w: w * 2)
    w = torch.ones(4, requires_grad=True)
    assert calls_of(race, sides, w) == 2 * whole_module.TIMED_CALLS * whole_module.WITHOUT_BACKWARD
    race.restart()
    with torch.no_grad():
        assert calls_of(race, sides, w) == 2 * whole_module.TIMED_CALLS


@pytest.mark.parametrize(("planned", "times"), [(0.98, 3), (0.9, 3), (1.05, 3), (0.8, 1), (1.2, 1)])
def test_sides_that_are_close_are_timed_longer(planned: float, times: int) -> None:
    """planned: times the other side's time; the calls that it takes are three times as many for close ones."""
    clock = [0.0]

    class Device(type(devices_module.CPU)):
        def mark(self) -> float:
            return clock[0]

        def between_us(self, start: float, end: float) -> float:
            return end - start

    def side(us: float) -> Callable[..., None]:
        def call(_: Any) -> None:
            clock[0] += us

        return call

    race = Race(Device())
    with torch.no_grad():
        calls = calls_of(race, {True: side(100.0 * planned), False: side(100.0)}, torch.ones(1))
    assert calls == 2 * whole_module.TIMED_CALLS * times


def calls_of(race: Race, sides: Any, *args: Any) -> int:
    """Calls until there are enough samples."""
    calls = 0
    while race.samples_us() is None and calls < 200:
        race.call(sides, args)
        calls += 1
    return calls


def test_tensors_that_no_plan_can_read_run_pytorchs_ops(backend: Backend) -> None:
    """On another device, without memory, or with the negative bit, as gradients may come."""
    compiled = torch.compile(lambda x: (x.sin() * 2 + 1).exp(), backend=backend, dynamic=False)
    for _ in range(CALLS):
        x = torch.ones(8, requires_grad=True)
        compiled(x).backward(torch.ones(8))
    assert planned(backend)
    for grad in (torch._neg_view(torch.ones(8)), torch._efficientzerotensor((8,))):
        x, y = (torch.ones(8, requires_grad=True) for _ in range(2))
        compiled(x).backward(grad)
        (y.sin() * 2 + 1).exp().backward(grad)
        assert disagreement(x.grad, y.grad) == ""
    meta = torch.compile(lambda x, w: (x * w + 1).relu(), backend=backend, dynamic=False)
    for _ in range(CALLS):
        assert meta(torch.ones(8, device="meta"), torch.ones(8, device="meta")).device.type == "meta"
    assert "tensors on meta" in backend.problems[-1]


@torch.compiler.nested_compile_region
def region(x: Any, w: Any) -> Any:
    return F.gelu(x @ w) + x


@torch.compiler.nested_compile_region
def regions(x: Any, w: Any) -> Any:
    return region(x.sin(), w) + region(x, w).tanh()


def test_regions_that_are_compiled_once(backend: Backend) -> None:
    """Either side of a graph with them has gradients, while it is judged and after."""
    check(lambda x, w: regions(x * 2 + 1, w).tanh() * 2, of((5, 6), (6, 6), grad=True), backend, dynamic=False)
    assert planned(backend)


def dropped_product(x: Any, w: Any) -> Any:
    return F.dropout(torch.tanh(x @ w), 0.5) * 2


def computed_again(x: Any, w: Any) -> Any:
    """One checkpoint in another."""

    def both(x: Any, w: Any) -> Any:
        return checkpoint(dropped_product, dropped_product(x, w), w, use_reentrant=False)

    return checkpoint(both, x * 2, w, use_reentrant=False) + 1


def test_checkpoints_inside_draw_what_they_drew(backend: Backend) -> None:
    """The masks are the same when they are drawn again, on either side of a graph."""
    check(computed_again, of((6, 6), (6, 6), grad=True), backend, dynamic=False)
    assert planned(backend)


def test_checkpoints_inside_count_writes(backend: Backend) -> None:
    """Buffers that a checkpoint itself updates may change, what it is given may not."""
    norm = torch.nn.BatchNorm1d(6)

    def function(x: Any, w: Any) -> Any:
        return checkpoint(lambda x, w: norm(torch.tanh(x @ w)), x, w, use_reentrant=False) * 2

    check(function, of((8, 6), (6, 6), grad=True), backend, dynamic=False)
    compiled = torch.compile(function, backend=Backend(asker=NoPlans()), dynamic=False)
    for call in range(FIRST_CALLS + 2):  # by way of the groups, then as the model has it
        x, w = of((8, 6), (6, 6), grad=True)(call)
        given = x * 2
        found = compiled(given, w)
        with torch.no_grad():
            given.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.sum().backward()


MASKED: dict[str, tuple[Callable[[Any, Any, Any], None], tuple[int, ...]]] = {
    "a row": (lambda y, mask, v: y.__setitem__(mask, v), (16,)),
    "one row": (lambda y, mask, v: y.__setitem__((mask,), v), (1, 16)),
    "a number": (lambda y, mask, v: y.__setitem__(mask, v), ()),
    "elements": (lambda y, mask, v: y.__setitem__(mask[..., None].expand_as(y), v), ()),
    "a view": (lambda y, mask, v: y[1].__setitem__(mask[1], v), (16,)),
}


@pytest.mark.parametrize("name", MASKED)
def test_values_under_a_mask_have_gradients(name: str, backend: Backend) -> None:
    """AOTAutograd cannot trace those that PyTorch computes for them."""
    update, sizes = MASKED[name]

    def function(x: Any, mask: Any, v: Any) -> Any:
        y = F.gelu(x) * 2 + 1
        update(y, mask, v)
        return F.gelu(y) * 3

    def make(_: int) -> tuple[Any, ...]:
        x, v = torch.randn(4, 8, 16), torch.randn(sizes)
        return x.requires_grad_(), torch.rand(4, 8) > 0.5, v.requires_grad_()

    check(function, make, backend, dynamic=False)
    assert planned(backend)
    assert not backend.problems


def test_tangents_of_forward_mode_gradients(backend: Backend) -> None:
    """Calls with tensors that have tangents give results with theirs, before there are plans and after."""
    compiled = torch.compile(norm_gelu, backend=backend, dynamic=False)
    x, w = of((12, 64), (64,))(0)
    for call in range(CALLS):
        compiled(x, w)
        if call in (0, 1, 20, CALLS - 1):
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x, x.cos())
                found, expected = (forward_ad.unpack_dual(f(dual, w)) for f in (compiled, norm_gelu))
            assert disagreement(tuple(found), tuple(expected)) == "", call
    assert planned(backend)


@pytest.mark.turn("calls by plans: sizes and casts")
def test_what_cancels_is_not_taken_for_wrong(backend: Backend) -> None:
    """The gradient of a bias before a batch norm is zero but for roundings."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU())
    compiled = torch.compile(model, backend=backend, dynamic=False)
    for seed in range(MOST_CALLS):
        torch.manual_seed(seed)
        compiled(torch.randn(64, 16)).square().sum().backward()
    assert not [p for p in backend.problems if "wrong" in p]


def test_an_error_in_a_plan_that_is_used_is_not_the_programs(backend: Backend) -> None:
    compiled = torch.compile(norm_gelu, backend=backend, dynamic=False)
    x, w = of((12, 64), (64,))(0)
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(x, w)
        (slot,) = slots(backend)
        assert slot.accepted is not None

        def broken(_: Any) -> Any:
            raise OSError(12, "no memory")

        slot.accepted.call = broken
        assert disagreement(compiled(x, w), norm_gelu(x, w)) == ""
    assert (slot.state, slot.reason) == ("refused", "unusable: OSError: [Errno 12] no memory")


ENDS = """
import sys, time
sys.path[:0] = {path!r}
import torch
from fuseplan_client.torch.backend import Backend
from torch.nn import GELU, LayerNorm, Linear, Sequential
model = Sequential(*(layer for _ in range(6) for layer in (Linear(8, 8), GELU(), LayerNorm(8))))
compiled = torch.compile(model, backend=Backend(server="http://127.0.0.1:9"))
compiled(torch.randn(4, 8)).sum().backward()
time.sleep({pause})
"""


@pytest.mark.parametrize("pause", [0.0, 0.1, 0.4, 1.0])
@pytest.mark.sweep(0.2)
def test_a_process_ends_as_it_would(pause: float) -> None:
    """Whatever the thread that asks is doing by then: graphs are written in PyTorch's own code."""
    script = ENDS.format(path=[p for p in sys.path if p], pause=pause)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_gradient_that_there_is_none_of_and_nobody_asks_for(backend: Backend) -> None:
    """AOTAutograd traces gradients at once; eager mode raises where one is asked for."""

    def function(x: torch.Tensor) -> Any:
        return (x * 2).tanh(), torch.floor_divide(x, 2)

    compiled = torch.compile(function, backend=backend, dynamic=False)
    for _ in range(3):
        x = torch.randn(8, requires_grad=True)
        found, expected = compiled(x), function(x)
        torch.testing.assert_close(found, expected)
        assert torch.equal(*(torch.autograd.grad(y[0].sum(), x)[0] for y in (found, expected)))
    with pytest.raises(RuntimeError, match="derivative for aten::floor_divide"):
        compiled(x)[1].sum().backward()
    assert not backend.groups
    assert "floor_divide" in backend.problems[0]


def test_copies_of_compiled_models_have_weights_of_their_own(backend: Backend) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    compiled = torch.compile(model, backend=backend, dynamic=False)
    x = torch.randn(4, 8)
    for _ in range(CALLS):
        compiled(x)
    copy = deepcopy(compiled)
    with torch.no_grad():
        copy._orig_mod[0].weight.mul_(-1)
    for _ in range(3):
        torch.testing.assert_close(copy(x), copy._orig_mod(x))
        torch.testing.assert_close(compiled(x), model(x))
    assert not torch.allclose(copy(x), compiled(x))


@pytest.mark.parametrize("divide", ["floor_divide", "remainder", "fmod"])
def test_integers_divided_by_zero_raise(divide: str, backend: Backend) -> None:
    """Eager mode does, and so do calls with plans."""
    op = getattr(torch, divide)
    compiled = torch.compile(lambda x, y: (op(x * 3, y) + 1, op(x, 4)), backend=backend, dynamic=False)
    x, y = torch.arange(-8, 8), torch.arange(-8, 8) * 2 + 1
    for _ in range(CALLS):
        torch.testing.assert_close(compiled(x, y), (op(x * 3, y) + 1, op(x, 4)))
    assert backend.groups
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, y * 0)
