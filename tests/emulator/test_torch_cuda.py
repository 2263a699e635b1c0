"""`torch.compile` by plans for CUDA devices: on a stand-in for the driver, whose kernels the emulator runs."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch import backend as backend_module
from fuseplan_client.torch.agreement import disagreement
from fuseplan_client.torch.backend import Backend
from fuseplan_client.torch.plan_call import HalfDone
from fuseplan_client.torch.slot import Slot
from torch.nn import functional as F

from testing.local_plans import LocalPlans
from testing.stub_cuda import STREAM, Posing, instead_of_cuda, stub_driver
from tests.support.taken_plans import take_all

CALLS = 52


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlans]:
    made = LocalPlans.made(tmp_path_factory.mktemp("torch") / "cache", "emulator")
    yield made
    made.close()


@pytest.fixture(scope="module")
def stub(plans: LocalPlans) -> Iterator[ctypes.CDLL]:
    made = stub_driver(plans.bench.cache)
    made.stub_report.restype = ctypes.c_char_p
    with instead_of_cuda(made):
        yield made


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Posing:
    posing = Posing()
    monkeypatch.setattr(backend_module, "device_of", lambda module: posing)
    monkeypatch.setattr(backend_module, "class_key", lambda target: f"key of {target}")
    return posing


@pytest.fixture
def backend(plans: LocalPlans, stub: ctypes.CDLL, device: Posing, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A back end whose plans are there at once and are taken whatever their times are."""
    take_all(monkeypatch)
    torch._dynamo.reset()
    plans.failures.clear()
    yield Backend(asker=plans, least_ops=1)
    stub.stub_fail(0)
    stub.stub_dry(0)
    torch._dynamo.reset()


def slots(backend: Backend) -> list[Slot]:
    return [s for g in backend.groups for s in g.slots.values()]


def norm_gelu(x: Any, w: Any) -> Any:
    return F.gelu(F.layer_norm(x, x.shape[-1:], w)) + x


def softmax_twice(x: Any) -> Any:
    """Two kernels, with a temporary between them."""
    return torch.softmax(torch.softmax(x, 0).sum(1) * 2, 0)


def of(*shapes: tuple[int, ...], dtype: Any = torch.float32, grad: bool = False) -> Callable[[], tuple[Any, ...]]:
    return lambda: tuple(torch.randn(s, dtype=dtype).requires_grad_(grad) for s in shapes)


PLANNED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "pointwise": (lambda x, y: torch.tanh(x) * y + 1, of((17, 33), (33,))),
    "normalization": (norm_gelu, of((6, 64), (64,))),
    "with gradients": (norm_gelu, of((6, 64), (64,), grad=True)),
    "several kernels": (softmax_twice, of((24, 40))),
    "product": (lambda x, w, b: torch.relu(x @ w + b), of((16, 32), (32, 16), (16,), dtype=torch.float16)),
    "numbers": (lambda x, a: (x * a).exp() + a, lambda: (torch.randn(5, 7), float(torch.rand(())))),
    "updates": (lambda x, w: x.copy_((x * w).tanh()), of((9, 33), (33,))),
    "views of results": (lambda x: ((y := x.exp() * 2), y.view(-1), y[0]), of((5, 7))),
}


@pytest.mark.parametrize("name", PLANNED)
def test_plans_give_what_pytorch_gives(
    name: str, backend: Backend, plans: LocalPlans, stub: ctypes.CDLL, device: Posing
) -> None:
    function, make = PLANNED[name]
    compiled = torch.compile(function, backend=backend, dynamic=None if name == "numbers" else False)
    for seed in range(CALLS):
        sides: list[list[Any]] = []
        for call in (compiled, function):
            torch.manual_seed(seed)
            args = make()
            out = call(*args)
            outs = list(out) if isinstance(out, tuple) else [out]
            leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
            if leaves:
                sum(o.float().square().sum() for o in outs).backward()
            sides.append([*outs, *(a.grad for a in leaves), *args])
        assert disagreement(*sides) == "", (seed, stub.stub_report())
    assert not plans.failures and not backend.problems
    found = slots(backend)
    assert (found and all(s.state == "planned" and s.planned_calls for s in found)) or name == "numbers", found
    assert any(s.planned_calls for s in found)
    assert plans.questions[-1].requests()[0]["target"] == "cuda:0"
    assert stub.stub_launches() and ctypes.c_void_p(stub.stub_last_stream()).value == STREAM
    assert stub.stub_depth() == 0, "whatever context the thread had, it has again"
    assert device.marks, "times are of events"


def settled(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]], backend: Backend) -> Callable[..., Any]:
    """The function by a plan that was judged."""
    compiled = torch.compile(function, backend=backend, dynamic=False)
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(*make())
    assert all(s.state == "planned" and s.planned_calls for s in slots(backend)), slots(backend)
    return compiled


def test_a_launch_that_fails_leaves_the_call_to_pytorch(backend: Backend, plans: LocalPlans, stub: ctypes.CDLL) -> None:
    compiled = settled(norm_gelu, of((6, 64), (64,)), backend)
    stub.stub_fail(719)
    for _ in range(3):
        x, w = of((6, 64), (64,))()
        with torch.no_grad():
            assert torch.equal(compiled(x, w), norm_gelu(x, w))
    (slot,) = slots(backend)
    assert (
        slot.reason
        == "unusable: DriverError: a launch by the executor of the driver gave CUDA_ERROR_LAUNCH_FAILED (719)"
    )
    assert plans.refusals[-1].why == "unusable"


def updated_first(x: Any, y: Any) -> Any:
    """By a kernel of its own, behind which another one reads it."""
    return x.tanh_() @ y


HALVES = of((64, 32), (32, 64), dtype=torch.float16)


def test_a_launch_that_fails_behind_an_update_is_an_error(
    backend: Backend, plans: LocalPlans, stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's ops would update it once more."""
    monkeypatch.setattr(backend_module, "ways_of", lambda module: [])
    compiled = settled(updated_first, HALVES, backend)
    assert len(plans.plans[-1].steps) > 1
    assert plans.plans[-1].in_place
    x, y = HALVES()
    stub.stub_fail_after(1)
    with torch.no_grad(), pytest.raises(HalfDone, match="in the middle of updates in place"):
        compiled(x, y)
    x, y = HALVES()
    own = x.clone()
    with torch.no_grad():
        assert disagreement([compiled(x, y), x], [updated_first(own, y), own]) == ""


def test_such_a_launch_while_a_plan_is_compared_fails_on_copies(
    backend: Backend, stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_module, "ways_of", lambda module: [])
    compiled = torch.compile(updated_first, backend=backend, dynamic=False)
    stub.stub_fail_after(1)
    with torch.no_grad():
        for _ in range(5):
            x, y = HALVES()
            own = x.clone()
            assert disagreement([compiled(x, y), x], [updated_first(own, y), own]) == ""
    stub.stub_fail_after(-1)
    (slot,) = slots(backend)
    assert (slot.state, slot.reason.partition(":")[0]) == ("refused", "unusable")


def test_nothing_is_judged_while_calls_are_captured(backend: Backend, device: Posing) -> None:
    """Into a CUDA graph: neither a clock nor a comparison waits, and what was accepted by then is what is captured."""
    compiled = torch.compile(norm_gelu, backend=backend, dynamic=False)
    with torch.no_grad():
        for _ in range(3):
            compiled(*of((6, 64), (64,))())
        device.captures = True
        for _ in range(CALLS):
            x, w = of((6, 64), (64,))()
            assert disagreement(compiled(x, w), norm_gelu(x, w)) == ""
        assert not any(s.planned_calls for s in slots(backend))
        device.captures = False
        for _ in range(CALLS):
            compiled(*of((6, 64), (64,))())
        device.captures = True
        before = slots(backend)[0].planned_calls
        compiled(*of((6, 64), (64,))())
    assert slots(backend)[0].planned_calls == before + 1


def test_constants_are_computed_once_for_each_version(
    plans: LocalPlans, stub: ctypes.CDLL, device: Posing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never while a stream is captured: such a call is PyTorch's."""
    take_all(monkeypatch)
    torch._dynamo.reset()
    backend = Backend(asker=plans, least_ops=1, constants=True)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(64, 48))

        def forward(self, x: Any) -> Any:
            return torch.tanh(x) * torch.softmax(self.w.exp().sum(1), 0) + 1

    model = Model()
    compiled = settled(model, of((6, 64)), backend)
    assert plans.plans[-1].steps[0].prologue
    for round_ in range(4):
        with torch.no_grad():
            model.w.mul_(0.9)
            device.captures = round_ == 2
            launches = stub.stub_launches()
            for _ in range(3):
                (x,) = of((6, 64))()
                assert disagreement(compiled(x), model(x)) == ""
            once = sum(s.prologue for s in plans.plans[-1].steps)
            each = len(plans.plans[-1].steps) - once
            if device.captures:
                assert stub.stub_launches() == launches
            else:
                assert stub.stub_launches() - launches == once + 3 * each
            device.captures = False


def test_threads_that_call_at_once(backend: Backend) -> None:
    compiled = settled(softmax_twice, of((24, 40)), backend)
    wrong: list[str] = []

    def work() -> None:
        with torch.no_grad():
            for _ in range(20):
                (x,) = of((24, 40))()
                wrong.append(disagreement(compiled(x), softmax_twice(x)))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert wrong == [""] * 60
