"""Graphs that AOTAutograd kept: a program that starts again computes what it did, with the same groups, and what cannot
be kept is compiled as ever."""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch import graph_cache
from fuseplan_client.torch.backend import Backend
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._inductor.utils import fresh_cache
from torch.nn import functional as F

from testing.local_plans import LocalPlans
from tests.support.taken_plans import NoPlans, take_all
from tests.support.torch_models import CASES, Of

COUNTED = ("hit", "miss", "saved", "bypass")


@pytest.fixture(autouse=True)
def started() -> Iterator[None]:
    """A cache of the test's own."""
    torch._dynamo.reset()
    with fresh_cache(), functorch_config.patch(strict_autograd_cache=True):
        yield
    torch._dynamo.reset()


def counted() -> dict[str, int]:
    return {name: n for name in COUNTED if (n := counters["aot_autograd"][f"autograd_cache_{name}"])}


class Run:
    """A program that starts, and what it computes in two steps. found: results, inputs, gradients and buffers. groups:
    labels, with code."""

    def __init__(
        self, module: nn.Module, inputs: Sequence[Any], train: bool = True, dynamic: bool = False, **options: Any
    ) -> None:
        torch._dynamo.reset()
        counters.clear()
        self.module, self.found = copy.deepcopy(module).train(train), list[Any]()
        self.backend = Backend(**{"asker": NoPlans(), "least_ops": 1} | options)
        compiled = torch.compile(self.module, backend=self.backend, dynamic=dynamic)
        for seed in (0, 1):
            torch.manual_seed(seed)
            given = copy.deepcopy(inputs)
            with torch.set_grad_enabled(train):
                results = compiled(*given)
            results = results if isinstance(results, tuple) else (results,)
            if train:
                torch.stack([r.float().square().mean() for r in results]).sum().backward()
            self.found += [r.detach().clone() for r in results] + list(given)
        self.found += [p.grad for p in self.module.parameters() if p.grad is not None] + list(self.module.buffers())
        self.counted = counted()
        assert self.backend.problems == []
        self.groups = [(g.label, g.module.code) for g in self.backend.groups]


def same(a: Sequence[Any], b: Sequence[Any]) -> None:
    """To the bit."""
    assert len(a) == len(b)
    for left, right in zip(a, b, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)


def updating(m: nn.ModuleDict, x: Tensor, count: Tensor) -> Tensor:
    count.add_(1)
    return m["out"](x) * count


def views(m: nn.ModuleDict, x: Tensor) -> tuple[Tensor, Tensor]:
    y = F.gelu(m["out"](x))
    return y, y.t()


OWN: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "dropout": (lambda: nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.GELU()), lambda: (torch.randn(8, 16),)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32)), lambda: (torch.randn(8, 16),)),
    "updated input": (lambda: Of(updating, out=nn.Linear(16, 16)), lambda: (torch.randn(8, 16), torch.ones(16))),
    "results that share memory": (lambda: Of(views, out=nn.Linear(16, 16)), lambda: (torch.randn(8, 16),)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        lambda: (torch.randn(2, 64, 14, 14),),
    ),
    "numbers": (
        lambda: Of(lambda m, x, k: m["out"](x) * k, out=nn.Linear(16, 16)),
        lambda: (torch.randn(8, 16), 2.5),
    ),
}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", OWN)
def test_the_second_start_takes_the_graphs_of_the_first(name: str, train: bool) -> None:
    torch.manual_seed(0)
    model, inputs = OWN[name]
    module, given = model(), inputs()
    first = Run(module, given, train)
    assert first.counted == {"miss": 1, "saved": 1}
    second = Run(module, given, train)
    assert second.counted == {"hit": 1}
    same(second.found, first.found)
    assert second.groups == first.groups != []
    with functorch_config.patch(enable_autograd_cache=False):
        without = Run(module, given, train)
    assert without.counted == {}
    same(without.found, first.found)
    assert without.groups == first.groups


@pytest.mark.sweep(0.05)
@pytest.mark.parametrize("name", CASES)
def test_models_that_start_again(name: str) -> None:
    torch.manual_seed(0)
    module, inputs = CASES[name].model(), CASES[name].inputs()
    first = Run(module, inputs)
    second = Run(module, inputs)
    assert ("hit" in second.counted) == ("saved" in first.counted), (first.counted, second.counted)
    same(second.found, first.found)
    assert sorted(second.groups) == sorted(first.groups)


def test_plans_for_graphs_that_were_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_all(monkeypatch)
    plans = LocalPlans.made(tmp_path / "cache")
    module = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32))
    x = torch.randn(16, 32)
    for expected in ({"miss": 1, "saved": 1}, {"hit": 1}):
        torch._dynamo.reset()
        counters.clear()
        backend = Backend(asker=plans, least_ops=1)
        compiled = torch.compile(module, backend=backend, dynamic=False)
        for _ in range(24):
            torch.testing.assert_close(compiled(x), module(x))
            compiled(x).sum().backward()
        assert counted() == expected
        assert {s.state for g in backend.groups for s in g.slots.values()} == {"planned"}
        assert not backend.problems
    plans.close()


def test_gradients_that_are_asked_for_twice() -> None:
    module, x = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()), torch.randn(8, 16)
    for expected in ({"miss": 1, "saved": 1}, {"hit": 1}):
        torch._dynamo.reset()
        counters.clear()
        compiled = torch.compile(module, backend=Backend(asker=NoPlans(), least_ops=1), dynamic=False)
        for call in (compiled, module):
            y = call(x).square().sum()
            first = torch.autograd.grad(y, list(module.parameters()), retain_graph=True)
            same(torch.autograd.grad(y, list(module.parameters())), first)
        assert counted() == expected


def test_constants_of_graphs_that_were_kept() -> None:
    module, x = nn.Sequential(nn.Linear(16, 16), nn.GELU()), torch.randn(8, 16)
    asked: list[Any] = []

    class Asking(NoPlans):
        def ask(self, question: Any) -> None:
            asked.append([row.get("constant") for row in question.requests()[0]["graph"]["inputs"]])

    for _ in range(2):
        Run(module, [x], train=False, asker=Asking(), constants=True)
    assert asked[0] == asked[1]
    assert "torch" in asked[0]


def test_other_options_of_other_back_ends_are_theirs() -> None:
    """`aot_eager` keeps graphs in the same way; neither takes the other's."""
    module, x = nn.Sequential(nn.Linear(16, 16), nn.GELU()), torch.randn(8, 16)
    Run(module, [x])
    torch._dynamo.reset()
    counters.clear()
    with functorch_config.patch(
        force_autograd_cache=True, bundled_autograd_cache=True, force_non_lazy_backward_lowering=True
    ):
        torch.compile(module, backend="aot_eager", dynamic=False)(x).sum().backward()
    assert "hit" not in counted()
    assert Run(module, [x]).counted == {"hit": 1}


def test_another_version_does_not_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = nn.Sequential(nn.Linear(16, 16), nn.GELU()), torch.randn(8, 16)
    Run(module, [x])
    monkeypatch.setattr(graph_cache, "_version", lambda: "another")
    assert Run(module, [x]).counted == {"miss": 1, "saved": 1}


def test_sizes_that_vary_are_not_kept() -> None:
    module = nn.Sequential(nn.Linear(16, 16), nn.GELU())
    with functorch_config.patch(strict_autograd_cache=False):
        for _ in range(2):
            found = Run(module, [torch.randn(8, 16)], dynamic=True)
            assert "saved" not in found.counted
            assert "hit" not in found.counted


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:100], lambda data: data[:-40] + bytes(40)])
def test_damaged_files_are_not_taken(damage: Callable[[bytes], bytes]) -> None:
    module, x = nn.Sequential(nn.Linear(16, 16), nn.GELU()), torch.randn(8, 16)
    first = Run(module, [x])
    files = [p for p in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "aotautograd").rglob("*") if p.is_file()]
    assert files
    for file in files:
        file.write_bytes(damage(file.read_bytes()))
    with functorch_config.patch(strict_autograd_cache=False):
        second = Run(module, [x])
    assert "hit" not in second.counted
    same(second.found, first.found)


def test_a_place_where_nothing_can_be_written() -> None:
    module, x = nn.Sequential(nn.Linear(16, 16), nn.GELU()), torch.randn(8, 16)
    Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "aotautograd").touch()
    with functorch_config.patch(strict_autograd_cache=False):
        assert "saved" not in Run(module, [x]).counted


def test_a_fault_of_the_cache_is_not_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("of the cache's")

    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache

    monkeypatch.setattr(AOTAutogradCache, "make_entry", fails)
    module, x = nn.Sequential(nn.Linear(16, 16), nn.GELU()), torch.randn(8, 16)
    found = Run(module, [x])
    assert [label for label, _ in found.groups] == ["forward 0", "backward 1"]
    torch.testing.assert_close(found.found[0], module(x))


def test_graphs_that_are_kept_name_no_classes_of_the_program() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(x.sin())

    Own.__module__, Own.__qualname__ = "__main__", "NoSuchClass"  # pickle looks it up, and finds none
    module, x = nn.Sequential(nn.Linear(16, 16), Own()), torch.randn(8, 16)
    assert Run(module, [x]).counted == {"miss": 1, "saved": 1}
    assert Run(module, [x]).counted == {"hit": 1}


def test_a_graph_whose_other_half_cannot_be_loaded_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """AOTAutograd compiles both anew where its cache gives the forward graph and fails at the backward one."""
    module, given = nn.Sequential(nn.Linear(16, 32), nn.GELU()), (torch.randn(8, 16),)
    loaded, kinds = graph_cache.KeptGraph.post_compile, list[str]()

    def failing(kept: graph_cache.KeptGraph, *args: Any) -> None:
        if kept.run is None:
            kinds.append(kept.kind)
            if kept.kind == "backward":
                raise AttributeError("no such class")
        loaded(kept, *args)

    with functorch_config.patch(strict_autograd_cache=False):
        first = Run(module, given)
        monkeypatch.setattr(graph_cache.KeptGraph, "post_compile", failing)
        second = Run(module, given)
    assert kinds == ["forward", "backward"]
    assert [label for label, _ in second.groups] == [label for label, _ in first.groups]
    same(second.found, first.found)
