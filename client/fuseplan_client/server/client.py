"""The clients: `PlanClient` for threads, `AsyncPlanClient` for event loops, with the same methods."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fuseplan_client.server.answers import Answer, Operation, Pending
from fuseplan_client.server.background import run, run_async
from fuseplan_client.server.cache import MOST_BYTES, Kept
from fuseplan_client.server.errors import PlanServerError
from fuseplan_client.server.limits import Limits
from fuseplan_client.server.session import Session


class PlanClient:
    """A server's client for any number of threads, which it may also be handed to by a fork. All clients of a process
    share one pool of connections, in a thread of their own.

    url: address of the server, such as "http://127.0.0.1:8080". limits: see `Limits`. cache: folder that answers and
    binaries are kept in, by default `fuseplan-client` in the user's cache. cache_bytes: most bytes there; 0: nothing is
    kept. server_keys: public keys of the server, in base64, those in FUSEPLAN_SERVER_KEY by default. signed: whether
    answers with plans have to be signed by one of them, kept ones included; by default where there are keys, and for
    every server that is not on a loopback address.

    Raises BadArgument, and Untrusted where answers have to be signed and there is no key.

    Methods raise PlanServerError alone, whose classes say what is wrong: BadArgument, ServerAbsent, ServerSlow,
    BadAnswer (of which AnswerCutOff), Untrusted, ProblemAnswer.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: Limits | None = None,
        cache: Path | str | None = None,
        cache_bytes: int = MOST_BYTES,
        server_keys: Iterable[str] | None = None,
        signed: bool | None = None,
    ) -> None:
        self._session = Session(url, limits, cache, cache_bytes, server_keys, signed)

    @property
    def problems(self) -> tuple[str, ...]:
        """Texts on the last things that went wrong and were worked around, such as a cache that cannot be written."""
        return self._session.problems.told()

    def resolve(
        self, request: Mapping[str, Any] | bytes, *, again: bool = False, fresh_s: float = 0.0
    ) -> Answer | Pending:
        """The plan for a request, which is the body of `POST /v1/plans:resolve`; or the operation that will make it.
        again: a search is made again, though there is a plan, or though one failed. fresh_s: an answer kept no longer
        than so many seconds ago is given without a question to the server.

        Where the server is absent, slow, busy or broken, a kept answer is given, which says so (`Answer.kept`), however
        old it is. Raises PlanServerError."""
        return run(self._session.resolve(request, again=again, fresh_s=fresh_s))

    def operation(self, operation_id: str) -> Operation:
        """How far a search is. Raises PlanServerError."""
        return run(self._session.operation(operation_id))

    def binary(self, sha256: str) -> bytes:
        """A kernel's bytes, which hash to their name. Raises PlanServerError."""
        return run(self._session.binary(sha256))

    def executor(self, arch: str) -> tuple[str, bytes]:
        """The sha256 and bytes of what runs plans for CPUs of an architecture ("x86-64"). Raises PlanServerError."""
        return run(self._session.executor(arch))

    def signed_executor(self, arch: str) -> Kept:
        """Bytes and signature of the executor for an architecture. Raises PlanServerError."""
        return run(self._session.signed_executor(arch))

    def refuse(
        self,
        plan_key: str,
        why: str,
        text: str = "",
        *,
        took_us: float | None = None,
        instead_us: float | None = None,
    ) -> bool:
        """Tells the server that a plan was of no use here, and returns whether it was told; raises nothing.

        why: "wrong", where outputs disagree: the server searches again; "slower" than what it is to replace, with the
        times of both in microseconds; "unusable", where it cannot be loaded. Kept answers with a plan that is wrong or
        unusable are not used any more, whether the server was told or not.
        """
        try:
            return run(self._session.refuse(plan_key, why, text, took_us, instead_us))
        except PlanServerError as error:
            self._session.problems.note(f"a refusal was not sent: {error.reason}")
            return False


class AsyncPlanClient:
    """`PlanClient` for coroutines of any event loop. A task that is cancelled cancels its request."""

    def __init__(
        self,
        url: str,
        *,
        limits: Limits | None = None,
        cache: Path | str | None = None,
        cache_bytes: int = MOST_BYTES,
        server_keys: Iterable[str] | None = None,
        signed: bool | None = None,
    ) -> None:
        self._session = Session(url, limits, cache, cache_bytes, server_keys, signed)

    @property
    def problems(self) -> tuple[str, ...]:
        """Texts on the last things that went wrong and were worked around, such as a cache that cannot be written."""
        return self._session.problems.told()

    async def resolve(
        self, request: Mapping[str, Any] | bytes, *, again: bool = False, fresh_s: float = 0.0
    ) -> Answer | Pending:
        """See `PlanClient.resolve`. Raises PlanServerError."""
        return await run_async(self._session.resolve(request, again=again, fresh_s=fresh_s))

    async def operation(self, operation_id: str) -> Operation:
        """See `PlanClient.operation`. Raises PlanServerError."""
        return await run_async(self._session.operation(operation_id))

    async def binary(self, sha256: str) -> bytes:
        """See `PlanClient.binary`. Raises PlanServerError."""
        return await run_async(self._session.binary(sha256))

    async def executor(self, arch: str) -> tuple[str, bytes]:
        """See `PlanClient.executor`. Raises PlanServerError."""
        return await run_async(self._session.executor(arch))

    async def refuse(
        self,
        plan_key: str,
        why: str,
        text: str = "",
        *,
        took_us: float | None = None,
        instead_us: float | None = None,
    ) -> bool:
        """See `PlanClient.refuse`."""
        try:
            return await run_async(self._session.refuse(plan_key, why, text, took_us, instead_us))
        except PlanServerError as error:
            self._session.problems.note(f"a refusal was not sent: {error.reason}")
            return False
