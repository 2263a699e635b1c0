"""Waiting for operations without turning: all who wait in one process share one look at the database."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from service.errors import ApiError
from tuning_db.operation import Operation

LOOK_SECONDS = (0.25, 0.5)  # first and longest pause between looks; the first again when somebody comes


@dataclass(eq=False, frozen=True, slots=True)
class _Waiter:
    """A request that waits until the operation `id` leaves `state`."""

    id: str
    state: str
    change: asyncio.Future[None]


class Watcher:
    """Tells those who wait for operations when these change their state: one query for all of them after every pause of
    LOOK_SECONDS, none while nobody waits. For one event loop.

    look: the states of operations by id, without ids that do not exist. stopping: whether the server ends.
    """

    def __init__(self, look: Callable[[set[str]], Awaitable[Mapping[str, str]]], stopping: Callable[[], bool]) -> None:
        self._look, self._stopping = look, stopping
        self._waiters: set[_Waiter] = set()
        self._looking: asyncio.Task[None] | None = None
        self._pause = LOOK_SECONDS[0]

    async def changed(self, operation: Operation, seconds: float) -> None:
        """Waits until the operation leaves the state that `operation` has, for `seconds` at the most.

        Raises ApiError `stopping` where the server ends before, and what `look` raises.
        """
        if self._stopping():
            raise _stop(operation.id)
        waiter = _Waiter(operation.id, operation.state, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        self._pause = LOOK_SECONDS[0]
        try:
            if self._looking is None:
                self._looking = asyncio.create_task(self._watch())
            await asyncio.wait([waiter.change], timeout=seconds)
        finally:
            self._waiters.discard(waiter)
        if waiter.change.done():
            waiter.change.result()  # raises

    async def _watch(self) -> None:
        try:
            while self._waiters:
                await asyncio.sleep(self._pause)
                self._pause = min(1.2 * self._pause, LOOK_SECONDS[1])
                if self._stopping():
                    for waiter in self._open():
                        waiter.change.set_exception(_stop(waiter.id))
                    return
                await self._look_once()
        finally:
            self._looking = None

    async def _look_once(self) -> None:
        ids = {waiter.id for waiter in self._open()}
        if not ids:
            return
        try:
            states = await self._look(ids)
        except Exception as error:  # the answer of all who wait
            for waiter in self._open():
                waiter.change.set_exception(error)
            return
        for waiter in self._open():
            if states.get(waiter.id) != waiter.state:
                waiter.change.set_result(None)

    def _open(self) -> list[_Waiter]:
        """Waiters that still wait: they were told of no change and no error yet."""
        return [waiter for waiter in self._waiters if not waiter.change.done()]


def _stop(id: str) -> ApiError:
    headers = {"Location": f"/v1/operations/{id}"}
    return ApiError("stopping", "The operation goes on with the next server.", headers=headers)
