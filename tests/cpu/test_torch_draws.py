"""Masks of dropout that are drawn a block at a time: PyTorch's bits, and its generator as PyTorch leaves it."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.cpu.executor import Executor, vector_bits
from fuseplan_client.torch import draws
from fuseplan_client.torch.draws import LEAST_ELEMENTS, drawn_mask, drawn_mask_like

from codegen.sandbox.object_cache import ObjectCache
from service.planning.executor import executor
from tests.support.whole import some

COUNTS = (1, 2, 311, 312, 313, 623, 624, 625, 1247, 1248, 5000)
BEFORE = (0, 1, 2, 311, 312, 622, 623, 624, 625)  # words that were drawn before
KEPT = (0.0, 1e-300, 2.0**-53, 0.1, 0.5, 0.9, 1 - 2.0**-53, 1.0)
BITS = [bits for bits in (0, 256, 512) if bits <= vector_bits()]
CASES = list(itertools.product(COUNTS, BEFORE, KEPT, BITS))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Executor:
    return Executor(*executor(ObjectCache(tmp_path_factory.mktemp("cache"))))


@pytest.fixture
def here(found: Executor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """The executor is there, and nobody has asked yet whether it draws as this PyTorch does."""
    draws._agrees.cache_clear()
    monkeypatch.setattr(draws, "the_executor", lambda: found)
    yield found
    draws._agrees.cache_clear()


def test_bits_are_pytorchs_and_the_generator_is_behind_them(found: Executor) -> None:
    for count, before, kept, bits in some(CASES, 400, "draws"):
        torch.manual_seed(count)
        if before:
            torch.empty(before, dtype=torch.int32).random_()  # a word each
        state = torch.get_rng_state()
        mask = torch.zeros(count, dtype=torch.bool)
        found.draw_below(state.data_ptr(), mask.data_ptr(), count, draws._limit(kept), bits)
        expected = torch.empty(count, dtype=torch.bool).bernoulli_(kept)
        case = count, before, kept, bits
        assert torch.equal(mask, expected), case
        after = torch.get_rng_state()
        assert torch.equal(state, after), case
        torch.set_rng_state(state)
        numbers = torch.rand(700), torch.randn(5)
        torch.set_rng_state(after)
        assert torch.equal(numbers[0], torch.rand(700)), case
        assert torch.equal(numbers[1], torch.randn(5)), case


LAYOUTS: dict[str, Callable[[], Any]] = {
    "dense": lambda: torch.randn(70, 90),
    "transposed": lambda: torch.randn(90, 70).t(),
    "permuted": lambda: torch.randn(6, 40, 30).permute(2, 0, 1),
    "channels last": lambda: torch.randn(3, 5, 20, 20).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.randn(1, 90).expand(70, 90),
    "with gaps": lambda: torch.randn(70, 90, 2)[..., 0],
    "small": lambda: torch.randn(5, 7),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_masks_are_those_of_eager_dropout(layout: str, here: Executor) -> None:
    x = LAYOUTS[layout]()
    torch.manual_seed(3)
    expected = torch.ops.aten.native_dropout(x, 0.3, True)[1]
    after = torch.get_rng_state()
    for made in (lambda: drawn_mask_like(x, 0.7), lambda: drawn_mask(x.shape, torch.empty_like(x).stride(), 0.7)):
        torch.manual_seed(3)
        mask = made()
        assert torch.equal(mask, expected)
        assert mask.stride() == expected.stride()
        assert torch.equal(torch.get_rng_state(), after)


class Watched:
    """The executor, with something that happens while it draws for a program."""

    def __init__(self, executor: Executor, meanwhile: Callable[[], object]) -> None:
        self.executor, self.draws, self.meanwhile, self.counts = executor, executor.draws, meanwhile, list[int]()

    def draw_below(self, state: int, out: int, count: int, limit: int) -> None:
        self.executor.draw_below(state, out, count, limit)
        if count >= LEAST_ELEMENTS:
            self.counts.append(count)
            self.meanwhile()


def test_large_masks_are_drawn_by_the_executor(here: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(here, lambda: None)
    monkeypatch.setattr(draws, "the_executor", lambda: watched)
    for count in (LEAST_ELEMENTS - 1, LEAST_ELEMENTS, 9000):
        drawn_mask((count,), (1,), 0.5)
    assert watched.counts == [LEAST_ELEMENTS, 9000]


def test_masks_are_on_the_cpu_whatever_the_default_device_is(here: Executor) -> None:
    """A mask on another device has no memory that the executor could write to."""
    torch.manual_seed(4)
    with torch.device("meta"):
        mask = drawn_mask((5000,), (1,), 0.5)
    torch.manual_seed(4)
    assert torch.equal(mask, torch.empty(5000, dtype=torch.bool).bernoulli_(0.5))


def test_what_another_thread_draws_meanwhile_is_not_drawn_again(
    here: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[Any] = []
    monkeypatch.setattr(draws, "the_executor", lambda: Watched(here, lambda: others.append(torch.rand(5000))))
    torch.manual_seed(9)
    mask = drawn_mask((5000,), (1,), 0.5)
    torch.manual_seed(9)
    assert torch.equal(others[0], torch.rand(5000))
    assert torch.equal(mask, torch.empty(5000, dtype=torch.bool).bernoulli_(0.5))


@pytest.mark.parametrize("fault", ["bits", "state", "none"])
def test_a_pytorch_that_draws_otherwise_draws_itself(
    fault: str, here: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(Watched):
        def draw_below(self, state: int, out: int, count: int, limit: int) -> None:
            self.executor.draw_below(state, out, count, limit + (fault == "bits") * (1 << 47))
            if fault == "state":
                one = torch.empty(1, dtype=torch.bool)
                self.executor.draw_below(state, one.data_ptr(), 1, limit)
            if count >= LEAST_ELEMENTS:
                self.counts.append(count)

    other = Other(here, lambda: None)
    monkeypatch.setattr(draws, "the_executor", lambda: other)
    torch.manual_seed(2)
    mask = drawn_mask((5000,), (1,), 0.25)
    torch.manual_seed(2)
    assert torch.equal(mask, torch.empty(5000, dtype=torch.bool).bernoulli_(0.25))
    assert bool(other.counts) == (fault == "none")


def test_an_executor_of_a_server_that_has_no_draws_leaves_them_to_pytorch(here: Executor) -> None:
    here.draws = False
    try:
        torch.manual_seed(4)
        mask = drawn_mask((5000,), (1,), 0.5)
        torch.manual_seed(4)
        assert torch.equal(mask, torch.empty(5000, dtype=torch.bool).bernoulli_(0.5))
    finally:
        here.draws = True
