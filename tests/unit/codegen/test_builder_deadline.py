"""Compilers begin with no file of an optional plan once the seconds of a search are over."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from codegen.kernel import Kernel, Launch
from codegen.limits import DEFAULT_LIMITS
from codegen.object_cache import ObjectCache
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary, OutOfTime
from codegen.toolchain.patience import Patience

EACH_S = 2.0  # that each file takes


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class NoSlot:
    def close(self) -> None:
        pass


class SlowCompiler:
    """Makes a binary of whatever it gets, while the clock goes on."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.compiled = clock, list[str]()

    def identity(self) -> str:
        return "slow"

    def slot(self) -> NoSlot:
        return NoSlot()

    def unit(self, kernels: Sequence[Kernel]) -> str:
        return "".join(k.source for k in kernels)

    def compile(self, _slot: NoSlot, source: str, entries: Sequence[str], *_: Any) -> tuple[bytes, dict[str, Any]]:
        self.compiled += entries
        self.clock.now += EACH_S
        return source.encode(), {}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def compiler(clock: Clock) -> SlowCompiler:
    return SlowCompiler(clock)


@pytest.fixture
def builder(compiler: SlowCompiler, clock: Clock, tmp_path: Path) -> Iterator[Builder]:
    made = Builder(compiler, ObjectCache(tmp_path), DEFAULT_LIMITS, 1)  # type: ignore[arg-type]
    made.patience = Patience(60.0, clock)
    yield made
    made.close()


def kernels(*entries: str) -> list[Kernel]:
    return [Kernel(e, f"void {e}() {{}}", "cpu", "pointwise", "pointwise{}", Launch(tasks=1)) for e in entries]


def test_what_is_optional_ends_one_file_after_the_budget(builder: Builder, compiler: SlowCompiler) -> None:
    builder.patience.until(3 * EACH_S / 2)
    with pytest.raises(OutOfTime):
        builder.compile(kernels("a", "b", "c", "d"), alone=True, optional=True)
    assert compiler.compiled == ["a", "b"], "the second was begun in time"
    with pytest.raises(OutOfTime):
        builder.compile(kernels("e"), alone=True, optional=True)
    assert compiler.compiled == ["a", "b"]


def test_what_was_compiled_before_is_there_after_the_budget(builder: Builder, compiler: SlowCompiler) -> None:
    builder.patience.until(EACH_S)
    [first] = builder.compile(kernels("a"), alone=True, optional=True)
    [again] = builder.compile(kernels("a"), alone=True, optional=True)
    assert isinstance(first, Binary)
    assert isinstance(again, Binary)
    assert compiler.compiled == ["a"]


def test_what_a_plan_cannot_do_without_is_compiled_however_late(builder: Builder, compiler: SlowCompiler) -> None:
    builder.patience.until(EACH_S / 2)
    found = builder.compile(kernels("a", "b", "c"), alone=True)
    assert all(isinstance(b, Binary) for b in found)
    assert compiler.compiled == ["a", "b", "c"]


def test_without_a_search_nothing_is_over(builder: Builder, compiler: SlowCompiler, clock: Clock) -> None:
    clock.now = 1e6
    assert all(isinstance(b, Binary) for b in builder.compile(kernels("a", "b"), alone=True, optional=True))
    assert compiler.compiled == ["a", "b"]
