"""`torch.compile` by plans on the device: results, gradients, other streams, CUDA graphs of the program's own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch.agreement import disagreement
from fuseplan_client.torch.backend import Backend
from torch.nn import functional as F

from codegen.workbench.workbench import Workbench
from testing.local_plans import LocalPlans
from tests.support.taken_plans import take_all

pytestmark = [
    pytest.mark.own_context,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
]
CALLS = 56


@pytest.fixture(scope="module")
def plans(bench: Workbench) -> LocalPlans:
    return LocalPlans.on(bench)


@pytest.fixture
def backend(plans: LocalPlans, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    take_all(monkeypatch)
    torch._dynamo.reset()
    plans.failures.clear()
    yield Backend(asker=plans, least_ops=1)
    torch._dynamo.reset()


def of(*shapes: tuple[int, ...], dtype: Any = torch.float32, grad: bool = False) -> Callable[[], tuple[Any, ...]]:
    return lambda: tuple(torch.randn(s, dtype=dtype, device="cuda").requires_grad_(grad) for s in shapes)


def norm_gelu(x: Any, w: Any) -> Any:
    return F.gelu(F.layer_norm(x, x.shape[-1:], w)) + x


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q * 2, k, v, is_causal=True).exp()


PLANNED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "pointwise": (lambda x, y: torch.tanh(x) * y + 1, of((170, 330), (330,))),
    "normalization": (norm_gelu, of((64, 1024), (1024,), dtype=torch.bfloat16)),
    "with gradients": (norm_gelu, of((64, 1024), (1024,), grad=True)),
    "product": (lambda x, w, b: torch.relu(x @ w + b), of((256, 512), (512, 256), (256,), dtype=torch.float16)),
    "attention": (attention, of((2, 4, 128, 64), (2, 4, 128, 64), (2, 4, 128, 64), dtype=torch.bfloat16, grad=True)),
    "dropout": (lambda x: F.dropout(x.exp(), 0.3, True) * 2 + x, of((40, 500), grad=True)),
    "numbers": (lambda x, a: (x * a).exp() + a, lambda: (torch.randn(5, 7, device="cuda"), float(torch.rand(())))),
    "updates": (lambda x, w: x.copy_((x * w).tanh()), of((90, 330), (330,))),
    "a number on the CPU": (
        lambda x, t: (x * t).exp() * 2 + 1,
        lambda: (torch.randn(50, 70, device="cuda"), torch.rand(())),
    ),
}


@pytest.mark.parametrize("name", PLANNED)
def test_plans_give_what_pytorch_gives(name: str, backend: Backend, plans: LocalPlans) -> None:
    function, make = PLANNED[name]
    compiled = torch.compile(function, backend=backend, dynamic=None if name == "numbers" else False)
    for seed in range(CALLS):
        sides: list[list[Any]] = []
        for call in (compiled, function):
            torch.manual_seed(seed)
            args = make()
            torch.manual_seed(seed)
            out = call(*args)
            leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
            if leaves:
                out.float().square().sum().backward()
            sides.append([out, *(a.grad for a in leaves), *args])
        assert disagreement(*sides) == "", seed
    assert not plans.failures and not backend.problems
    assert any(s.planned_calls for g in backend.groups for s in g.slots.values())


def settled(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]], backend: Backend) -> Callable[..., Any]:
    compiled = torch.compile(function, backend=backend, dynamic=False)
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(*make())
    assert all(s.planned_calls for g in backend.groups for s in g.slots.values())
    return compiled


def test_streams_of_the_program(backend: Backend) -> None:
    """Work goes to the current stream, in whose order the program's own is."""
    make = of((512, 1024), (1024,))
    compiled = settled(norm_gelu, make, backend)
    streams = [torch.cuda.Stream() for _ in range(3)]
    with torch.no_grad():
        args = make()
        torch.cuda.synchronize()
        found = []
        for stream in streams:
            with torch.cuda.stream(stream):
                x = args[0] * 2
                for _ in range(5):
                    x = compiled(x, args[1])
                found.append(x)
        torch.cuda.synchronize()
        expected = args[0] * 2
        for _ in range(5):
            expected = norm_gelu(expected, args[1])
    assert [disagreement(x, expected) for x in found] == ["", "", ""]


def test_a_cuda_graph_of_the_programs_own(backend: Backend) -> None:
    make = of((512, 1024), (1024,))
    compiled = settled(norm_gelu, make, backend)
    with torch.no_grad():
        x, w = make()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = compiled(compiled(x, w), w)
        for _ in range(3):
            x.copy_(make()[0])
            graph.replay()
            torch.cuda.synchronize()
            assert disagreement(out, norm_gelu(norm_gelu(x, w), w)) == ""
