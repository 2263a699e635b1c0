"""The clients: `PlanClient` for threads, `AsyncPlanClient` for event loops, with the same methods."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from fuseplan_client.server.answers import Answer, Operation, Pending
from fuseplan_client.server.background import background, run
from fuseplan_client.server.limits import Limits
from fuseplan_client.server.session import Session

T = TypeVar("T")


class PlanClient:
    """A server's client for any number of threads, which it may also be handed to by a fork. All clients of a process
    share one pool of connections, in a thread of their own.

    url: address of the server, such as "http://127.0.0.1:8080". limits: see `Limits`.

    Methods raise PlanServerError alone, whose classes say what is wrong: BadArgument, ServerAbsent, ServerSlow,
    BadAnswer (of which AnswerCutOff), ProblemAnswer.
    """

    def __init__(self, url: str, *, limits: Limits | None = None) -> None:
        self._session = Session(url, limits or Limits())

    def resolve(self, request: Mapping[str, Any] | bytes, *, again: bool = False) -> Answer | Pending:
        """The plan for a request, which is the body of `POST /v1/plans:resolve`; or the operation that will make it.
        again: a search is made again, though there is a plan, or though one failed. Raises PlanServerError."""
        return run(self._session.resolve(request, again=again))

    def operation(self, operation_id: str) -> Operation:
        """How far a search is. Raises PlanServerError."""
        return run(self._session.operation(operation_id))

    def binary(self, sha256: str) -> bytes:
        """A kernel's bytes, which hash to their name. Raises PlanServerError."""
        return run(self._session.binary(sha256))


class AsyncPlanClient:
    """`PlanClient` for coroutines of any event loop. A task that is cancelled cancels its request."""

    def __init__(self, url: str, *, limits: Limits | None = None) -> None:
        self._session = Session(url, limits or Limits())

    async def resolve(self, request: Mapping[str, Any] | bytes, *, again: bool = False) -> Answer | Pending:
        """See `PlanClient.resolve`. Raises PlanServerError."""
        return await _run(self._session.resolve(request, again=again))

    async def operation(self, operation_id: str) -> Operation:
        """See `PlanClient.operation`. Raises PlanServerError."""
        return await _run(self._session.operation(operation_id))

    async def binary(self, sha256: str) -> bytes:
        """See `PlanClient.binary`. Raises PlanServerError."""
        return await _run(self._session.binary(sha256))


async def _run(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(background().start(work))
