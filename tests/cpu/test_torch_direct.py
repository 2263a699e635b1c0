"""Graphs without gradients that are called without AOTAutograd's code around them: where that may be, and that results
lie in memory as PyTorch's do."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch import direct
from fuseplan_client.torch.agreement import disagreement
from fuseplan_client.torch.backend import Backend
from torch import Tensor

from testing.local_plans import LocalPlans
from tests.support.taken_plans import take_all
from tests.support.whole import in_turn

CALLS = 3  # the first one, one that compares, and one by the plan

# Results of x [4, 6], w [4, 6] and a [4, 6] computed of both.
RESULTS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "computed": lambda x, w, a: (a * 2).exp(),
    "the same": lambda x, w, a: a,
    "a view of it": lambda x, w, a: a.t(),
    "a part of it": lambda x, w, a: a[1:3],
    "an input": lambda x, w, a: x,
    "a view of an input": lambda x, w, a: x.view(6, 4),
    "a part of an input": lambda x, w, a: w[:, 2:],
    "an updated input": lambda x, w, a: x.mul_(0.5),
    "a view of an update": lambda x, w, a: w.add_(a).t(),
    "detached": lambda x, w, a: a.detach(),
    "none": lambda x, w, a: None,
}
LEFT = {"a view of an input", "a part of an input", "an updated input", "a view of an update"}  # to AOTAutograd
OF_A = {"the same", "a view of it", "a part of it", "detached"}  # in the memory of one tensor


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlans]:
    made = LocalPlans.made(tmp_path_factory.mktemp("torch") / "cache")
    yield made
    made.close()


@pytest.fixture
def backend(plans: LocalPlans, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    take_all(monkeypatch)
    torch._dynamo.reset()
    yield Backend(asker=plans, least_ops=1)
    torch._dynamo.reset()


def program(*names: str) -> Callable[[Tensor, Tensor], Any]:
    def call(x: Tensor, w: Tensor) -> Any:
        a = torch.tanh(x + w) * 3
        return tuple(RESULTS[name](x, w, a) for name in names)

    return call


def is_direct(backend: Backend) -> bool:
    (whole,) = backend.wholes
    return whole.compiled is not None and whole.compiled.__module__ == direct.__name__


def sharing(tensors: Sequence[Any]) -> Sequence[Any]:
    """Which of the tensors lie in one memory, where in it, and which have gradients; whether the two inputs were
    written."""
    held = [t.untyped_storage().data_ptr() if isinstance(t, Tensor) else None for t in tensors]
    lies = [(t.storage_offset(), t.stride(), t.requires_grad) if isinstance(t, Tensor) else None for t in tensors]
    written = [t._version > 0 for t in tensors[:2] if not t.is_inference()]
    return [held.index(address) for address in held], lies, written


def check(call: Callable[..., Any], backend: Backend, context: Callable[[], AbstractContextManager[Any]]) -> None:
    """Calls by way of the graphs give what PyTorch gives, in memory that is shared as PyTorch's is."""
    compiled = torch.compile(call, backend=backend, dynamic=False)
    for seed in range(CALLS):
        sides = []
        for side in (compiled, call):
            torch.manual_seed(seed)
            x, w = torch.randn(4, 6), torch.randn(4, 6)
            with context():
                if side is compiled and backend.wholes:
                    with backend.wholes[0].by_groups():
                        found = side(x, w)
                else:
                    found = side(x, w)
            sides.append([x, w, *found])
        assert disagreement(*[[t for t in side if t is not None] for side in sides]) == ""
        assert sharing(sides[0]) == sharing(sides[1])


@pytest.mark.parametrize("names", in_turn(list(itertools.product(RESULTS, repeat=2)), 12, "results"), ids=" and ".join)
def test_results_lie_as_pytorchs(names: tuple[str, str], backend: Backend) -> None:
    check(program(*names), backend, torch.no_grad)
    assert not (is_direct(backend) and (LEFT & set(names) or (set(names) <= OF_A and len(set(names)) == 2)))


@pytest.mark.parametrize("name", RESULTS)
def test_one_result_alone(name: str, backend: Backend) -> None:
    check(program(name, "computed"), backend, torch.no_grad)
    assert is_direct(backend) == (name not in LEFT)  # Dynamo gives inputs, and None, by itself


@pytest.mark.parametrize(
    ("context", "expected"),
    [(torch.no_grad, True), (torch.inference_mode, True), (nullcontext, True), (lambda: torch.autocast("cpu"), False)],
    ids=["no_grad", "inference_mode", "gradients on, none asked for", "autocast"],
)
def test_contexts(context: Callable[[], Any], expected: bool, backend: Backend) -> None:
    check(program("computed"), backend, context)
    assert is_direct(backend) == expected


def test_gradients_that_are_on_for_a_graph_without_any_are_off_within(backend: Backend) -> None:
    """Results of PyTorch's own ops behind a group have no gradient where the program asked for none."""
    weight = torch.nn.Parameter(torch.randn(6))

    def call(x: Tensor, w: Tensor) -> Any:
        with torch.no_grad():
            return (torch.sort((x + w) * weight)[0],)

    check(call, backend, nullcontext)
    assert is_direct(backend)


def test_an_input_that_comes_twice(backend: Backend) -> None:
    def call(x: Tensor, w: Tensor) -> Any:
        return (torch.tanh(x * w),)

    compiled = torch.compile(call, backend=backend, dynamic=False)
    with torch.no_grad():
        for _ in range(CALLS):
            x, w = torch.randn(4, 6), torch.randn(4, 6)
            assert disagreement(compiled(x, x), call(x, x)) == ""
            assert disagreement(compiled(x, w), call(x, w)) == ""


def test_statistics_of_a_batch_norm_are_updated(backend: Backend) -> None:
    norms = [torch.nn.BatchNorm1d(6) for _ in range(2)]
    ours = torch.compile(norms[0], backend=backend, dynamic=False)
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.randn(4, 6)
            assert disagreement([ours(x)], [norms[1](x)]) == ""
    assert disagreement(list(norms[0].buffers()), list(norms[1].buffers())) == ""
    assert not is_direct(backend)
