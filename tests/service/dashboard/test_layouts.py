"""Layouts are made once, few at a time; what is there waits for nobody, and what failed is not tried every time."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from service.api.threads import Threads
from service.dashboard.layout import Layout, LayoutError
from service.dashboard.layouts import FAILURE_SECONDS, KEPT, Layouts

AT_ONCE = 2
LAYOUT = Layout(1.0, 1.0, (), ())


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def layouts(clock: Clock) -> Iterator[Layouts]:
    threads = Threads(AT_ONCE, 20, 30.0, "busy", "The test")
    yield Layouts(threads, clock)
    threads.close()


class Making:
    """Makes layouts, counts them, and does not end before it may."""

    def __init__(self, *, fails: LayoutError | None = None) -> None:
        self.fails, self.calls, self.at_once, self.most = fails, 0, 0, 0
        self.begun, self.may_end = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    def __call__(self) -> Layout:
        with self._lock:
            self.calls += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        self.begun.set()
        assert self.may_end.wait(30)
        with self._lock:
            self.at_once -= 1
        if self.fails:
            raise self.fails
        return LAYOUT

    @property
    def quick(self) -> "Making":
        self.may_end.set()
        return self


def test_a_failure_is_told_again_without_another_try(layouts: Layouts, clock: Clock) -> None:
    make = Making(fails=LayoutError("too slow")).quick

    async def ask() -> None:
        with pytest.raises(LayoutError, match="too slow"):
            await layouts.get("a", make)

    assert layouts.failure("a") == ""
    for _ in range(3):
        asyncio.run(ask())
    assert (make.calls, layouts.failure("a"), layouts.failure("b")) == (1, "too slow", "")
    clock.now_s = FAILURE_SECONDS
    assert layouts.failure("a") == ""
    asyncio.run(ask())
    assert make.calls == 2


def test_what_may_be_better_the_next_time_is_tried_again(layouts: Layouts) -> None:
    make = Making(fails=LayoutError("not installed", lasts=False)).quick

    async def ask() -> None:
        with pytest.raises(LayoutError, match="not installed"):
            await layouts.get("a", make)

    asyncio.run(ask())
    asyncio.run(ask())
    assert (make.calls, layouts.failure("a")) == (2, "")


def test_all_who_ask_for_one_get_the_same(layouts: Layouts) -> None:
    make = Making()

    async def ask() -> list[Layout]:
        calls = [asyncio.create_task(layouts.get("a", make)) for _ in range(6)]
        await asyncio.to_thread(make.begun.wait, 30)
        calls.append(asyncio.create_task(layouts.get("a", make)))
        gone = calls.pop(0)  # a reader who leaves does not end it for the others
        gone.cancel()
        await asyncio.sleep(0)
        make.may_end.set()
        return await asyncio.gather(*calls)

    assert asyncio.run(ask()) == [LAYOUT] * 6
    assert make.calls == 1


def test_few_are_made_at_a_time_and_what_is_there_does_not_wait(layouts: Layouts) -> None:
    make = Making()

    async def ask() -> Layout:
        await layouts.get("there", Making().quick)
        calls = [asyncio.create_task(layouts.get(str(i), make)) for i in range(5)]
        await asyncio.to_thread(make.begun.wait, 30)
        found = await layouts.get("there", make)  # ends only if it does not wait for those
        assert not any(call.done() for call in calls)
        make.may_end.set()
        await asyncio.gather(*calls)
        return found

    assert asyncio.run(ask()) == LAYOUT
    assert (make.calls, make.most <= AT_ONCE) == (5, True)


def test_those_asked_for_last_are_kept(layouts: Layouts) -> None:
    make = Making().quick

    async def ask() -> None:
        for i in range(KEPT + 1):
            await layouts.get(str(i), make)
            await layouts.get("0", make)

    asyncio.run(ask())
    assert make.calls == KEPT + 1

    async def ask_again() -> None:
        await layouts.get("0", make)
        await layouts.get("1", make)

    asyncio.run(ask_again())
    assert make.calls == KEPT + 2
