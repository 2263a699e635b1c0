"""Order and times of compilations: nothing optional begins once the seconds of a search are over, kernels that are
expected next are begun while other compilers work, and nothing begins while kernels are timed."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codegen.kernel import Kernel, Launch
from codegen.sandbox.limits import DEFAULT_LIMITS
from codegen.sandbox.object_cache import ObjectCache
from codegen.timing.core_use import CoreUse
from codegen.toolchain.builder import Builder
from codegen.toolchain.compile_patience import Patience
from codegen.toolchain.compiler import Binary, Failure, OutOfTime
from fusion_ir.records import Status

EACH_S = 2.0  # that each file takes


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class NoSlot:
    def close(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def abort(self) -> None:
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


def test_files_are_of_equal_length_and_the_longest_comes_first(compiler: SlowCompiler, tmp_path: Path) -> None:
    lengths = (900, 100, 100, 500, 200, 100, 100)
    made = [replace(k, source=k.source.ljust(n)) for k, n in zip(kernels(*"abcdefg"), lengths, strict=True)]
    builder = Builder(compiler, ObjectCache(tmp_path), DEFAULT_LIMITS, 2)  # type: ignore[arg-type]
    files = builder._batches({k.entry: k for k in made}, 16)  # pyright: ignore[reportPrivateUsage]
    builder.close()
    assert [sum(len(k.source) for k in file.values()) for file in files] == [1000, 1000]
    assert next(iter(files[0])) == "a"


def test_what_was_compiled_quickly_is_no_answer_to_who_has_time(builder: Builder, compiler: SlowCompiler) -> None:
    builder.compile(kernels("a"), quickly=True)
    builder.compile(kernels("a"), quickly=True)
    builder.compile(kernels("a"))
    assert compiler.compiled == ["a", "a"]


def test_who_has_no_time_takes_what_was_compiled_well(builder: Builder, compiler: SlowCompiler) -> None:
    [well] = builder.compile(kernels("a"))
    found = builder.compile(kernels("a", "b"), quickly=True)
    assert found[0] == replace(well, seconds=0.0)  # type: ignore[type-var]
    again = builder.compile(kernels("a", "b"), quickly=True)
    assert [b.quickly for b in (*found, *again) if isinstance(b, Binary)] == [False, True] * 2
    assert compiler.compiled == ["a", "b"]


def test_who_asks_before_is_told_that_there_is_no_time(builder: Builder, compiler: SlowCompiler) -> None:
    builder.patience.until(EACH_S)
    builder.admit(kernels("a", "b"))
    builder.compile(kernels("a"))
    builder.admit(kernels("a"))
    with pytest.raises(OutOfTime):
        builder.admit(kernels("a", "b"))
    with pytest.raises(OutOfTime):
        builder.admit(kernels("a"), alone=True)
    assert compiler.compiled == ["a"]


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


@pytest.mark.parametrize(
    ("seconds", "late", "alone"), [(10.0, False, True), (EACH_S, True, True), (EACH_S, False, False)]
)
def test_what_failed_beside_others_is_compiled_alone_while_there_is_time_or_need(
    tmp_path: Path, clock: Clock, seconds: float, late: bool, alone: bool
) -> None:
    class Fragile(SlowCompiler):
        def compile(self, slot: NoSlot, source: str, entries: Sequence[str], *rest: Any) -> Any:
            built = super().compile(slot, source, entries, *rest)
            return Failure(Status.compile_timeout, "used up its CPU time") if len(entries) > 1 else built

    compiler = Fragile(clock)
    builder = Builder(compiler, ObjectCache(tmp_path), DEFAULT_LIMITS, 1)  # type: ignore[arg-type]
    builder.patience = Patience(60.0, clock)
    builder.patience.until(seconds)
    found = builder.compile(kernels("a", "b"), late=late)
    builder.close()
    assert compiler.compiled == (["a", "b", "a", "b"] if alone else ["a", "b"])
    assert all(isinstance(b, Binary) == alone for b in found)


def test_without_a_search_nothing_is_over(builder: Builder, compiler: SlowCompiler, clock: Clock) -> None:
    clock.now = 1e6
    assert all(isinstance(b, Binary) for b in builder.compile(kernels("a", "b"), alone=True, optional=True))
    assert compiler.compiled == ["a", "b"]


def test_what_comes_next_is_compiled_once(builder: Builder, compiler: SlowCompiler) -> None:
    builder.compile(kernels("a"), then=kernels("b", "c"))
    found = builder.compile(kernels("c", "b"), then=kernels("a"))
    assert all(isinstance(b, Binary) for b in found)
    assert sorted(compiler.compiled) == ["a", "b", "c"]


def test_what_nobody_asks_for_is_forgotten_unless_it_was_begun(tmp_path: Path, clock: Clock) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Blocked(SlowCompiler):
        def compile(self, slot: NoSlot, source: str, entries: Sequence[str], *rest: Any) -> tuple[bytes, Any]:
            if "a" in entries:
                begun.set()
                assert goes_on.wait(60)
            return super().compile(slot, source, entries, *rest)

    compiler = Blocked(clock)
    limits = replace(DEFAULT_LIMITS, kernels_per_file=1)
    builder = Builder(compiler, ObjectCache(tmp_path), limits, 1)  # type: ignore[arg-type]
    try:
        builder.compile((), then=kernels("a", "b"))
        assert begun.wait(60)
        with ThreadPoolExecutor(1) as other:
            asked = other.submit(builder.compile, kernels("c"))
            goes_on.set()
            asked.result()
        assert compiler.compiled == ["a", "c"]
    finally:
        goes_on.set()
        builder.close()


def test_what_was_begun_too_late_is_compiled_where_it_is_needed(
    builder: Builder, compiler: SlowCompiler, clock: Clock
) -> None:
    builder.patience.until(EACH_S / 2)
    builder.compile(kernels("a"), then=kernels("b"))
    clock.now = 10 * EACH_S
    [found] = builder.compile(kernels("b"))
    assert isinstance(found, Binary)


def test_what_is_expected_beside_itself_is_compiled_once(builder: Builder, compiler: SlowCompiler) -> None:
    """Kernels of the first plans are expected of the first races, too."""
    builder.compile(kernels("a", "b"), then=kernels("a", "c"))
    builder.compile(kernels("c", "a"))
    assert sorted(compiler.compiled) == ["a", "b", "c"]


def test_what_was_given_up_ahead_is_looked_for_among_what_is_there(
    builder: Builder, compiler: SlowCompiler, clock: Clock
) -> None:
    builder.patience.until(EACH_S / 2)
    builder.compile(kernels("a"), then=kernels("b"))  # no file is begun for b any more
    other = Builder(compiler, builder.cache, DEFAULT_LIMITS, 1)  # type: ignore[arg-type]
    try:
        other.compile(kernels("b"))
    finally:
        other.close()
    [found] = builder.compile(kernels("b"))
    assert isinstance(found, Binary)
    assert compiler.compiled == ["a", "b"]


def test_while_kernels_are_timed_no_compiler_begins(builder: Builder, compiler: SlowCompiler) -> None:
    with ThreadPoolExecutor(1) as other:
        with builder.paused():
            asked = other.submit(builder.compile, kernels("a"))
            time.sleep(0.1)
            assert not compiler.compiled
        assert isinstance(asked.result()[0], Binary)


def test_time_spent_standing_still_is_not_the_compilers(tmp_path: Path, clock: Clock) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Waiting(SlowCompiler):
        def compile(self, slot: NoSlot, source: str, entries: Sequence[str], *rest: Any) -> tuple[bytes, Any]:
            begun.set()
            assert goes_on.wait(60)
            return super().compile(slot, source, entries, *rest)

    occupancy = CoreUse(2)
    builder = Builder(Waiting(clock), ObjectCache(tmp_path), DEFAULT_LIMITS, 1, occupancy)  # type: ignore[arg-type]
    try:
        with ThreadPoolExecutor(1) as other:
            asked_at = time.monotonic()
            asked = other.submit(builder.compile, kernels("a"))
            assert begun.wait(60)
            with builder.paused(), occupancy.waiting():
                occupancy.restart()
                time.sleep(0.3)
                assert occupancy.core_seconds() == 0.0, "a compiler that stands still does not work"
            goes_on.set()
            [found] = asked.result()
        assert isinstance(found, Binary)
        assert found.seconds <= time.monotonic() - asked_at - 0.3, "what it stood still is not counted"
    finally:
        goes_on.set()
        builder.close()
