"""Requests to one server, in the process's thread: what `PlanClient` and `AsyncPlanClient` have in common."""

import asyncio
import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fuseplan_client.server.answers import (
    SHA256,
    Answer,
    Operation,
    Pending,
    answer_in,
    operation_in,
    pending_in,
    problem_in,
)
from fuseplan_client.server.attempts import HedgeAllowance, attempts
from fuseplan_client.server.cache import MOST_BYTES, Kept, PlanCache, answer_digest, default_folder
from fuseplan_client.server.errors import BadAnswer, BadArgument, PlanServerError, ProblemAnswer, shown
from fuseplan_client.server.limits import Limits
from fuseplan_client.server.problems import Problems
from fuseplan_client.server.transport import Received, Request, base_url, send
from fuseplan_client.server.trust import Trust

RESOLVE = "/v1/plans:resolve"
SIGNATURE = "fuseplan-signature"
EXECUTOR = "/v1/executor"
ARCHITECTURE = re.compile(r"[0-9A-Za-z_-]{1,32}")
OPERATION_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
SMALL_BYTES = 2**20  # of answers that hold no plan
WHYS = ("wrong", "slower", "unusable")
TEXT_CHARACTERS = 2000


class Session:
    """One server, with the limits of requests to it, and the cache. See `PlanClient` for the arguments."""

    def __init__(
        self,
        url: str,
        limits: Limits | None,
        cache: Path | str | None = None,
        cache_bytes: int = MOST_BYTES,
        server_keys: Iterable[str] | None = None,
        signed: bool | None = None,
    ) -> None:
        self.server, self.limits = base_url(url), limits or Limits()
        self._trust = Trust(self.server, server_keys, signed)
        self.problems = Problems()
        folder = default_folder() if cache is None else Path(cache).absolute()
        if folder is None and cache_bytes:
            self.problems.note("nothing is kept: this user has no home folder, and no `cache` was given")
        self._cache = PlanCache(folder, cache_bytes, self.problems.note) if folder is not None and cache_bytes else None
        self._allowance = HedgeAllowance()

    async def resolve(
        self, request: Mapping[str, Any] | bytes, *, again: bool = False, fresh_s: float = 0.0
    ) -> Answer | Pending:
        """See `PlanClient.resolve`."""
        body = request_body(request)
        digest = answer_digest(str(self.server), body)
        if fresh_s > 0 and not again and (young := await self._kept(digest, body, fresh_s)) is not None:
            return young
        headers = {"Content-Type": "application/json"} | ({"Cache-Control": "no-cache"} if again else {})
        try:
            received = await self._received(Request("POST", RESOLVE, body, headers, self.limits.answer_bytes))
            if received.status == 202:
                return pending_in(received)
            signature = _ok(received).headers.get(SIGNATURE, "")
            self._trust.check(signature, "POST", RESOLVE, body, received.body)
            answer = _for_device(answer_in(received.body, signature=signature), request)
        except PlanServerError as error:
            kept = await self._kept(digest, body) if _may_pass(error) else None
            if kept is None:
                raise
            self.problems.note(f"a kept answer was used: {error.reason}")
            return kept
        if self._cache is not None:
            await asyncio.to_thread(self._cache.keep_answer, digest, Kept(received.body, signature, time.time()))
        return answer

    async def operation(self, operation_id: str) -> Operation:
        """See `PlanClient.operation`."""
        if not isinstance(operation_id, str) or not OPERATION_ID.fullmatch(operation_id):
            raise BadArgument(f"expected an operation's id, got {operation_id!r:.80}")
        request = Request("GET", f"/v1/operations/{operation_id}", most_bytes=SMALL_BYTES)
        return operation_in(_ok(await self._received(request)))

    async def binary(self, sha256: str) -> bytes:
        """See `PlanClient.binary`."""
        if not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
            raise BadArgument(f"expected a sha256 in 64 hexadecimal digits, got {sha256!r:.80}")
        if self._cache is not None and (kept := await asyncio.to_thread(self._cache.binary, sha256)) is not None:
            return kept
        request = Request("GET", f"/v1/binaries/{sha256}", most_bytes=self.limits.binary_bytes)
        content = _ok(await self._received(request)).body
        if (is_ := hashlib.sha256(content).hexdigest()) != sha256:
            raise BadAnswer(f"the binary does not hash to its name: expected {sha256}, got {is_}")
        if self._cache is not None:
            await asyncio.to_thread(self._cache.keep_binary, sha256, content)
        return content

    async def executor(self, arch: str) -> tuple[str, bytes]:
        """See `PlanClient.executor`."""
        content = (await self.signed_executor(arch)).body
        return hashlib.sha256(content).hexdigest(), content

    async def signed_executor(self, arch: str) -> Kept:
        """See `PlanClient.signed_executor`."""
        if not isinstance(arch, str) or not ARCHITECTURE.fullmatch(arch):
            raise BadArgument(f"expected an architecture such as x86-64, got {arch!r:.80}")
        digest = answer_digest(str(self.server), f"{EXECUTOR} {arch}".encode())
        request = Request("GET", f"{EXECUTOR}?arch={arch}", most_bytes=self.limits.binary_bytes)
        try:
            received = _ok(await self._received(request))
            found = Kept(received.body, received.headers.get(SIGNATURE, ""), time.time())
            self._trust.check(found.signature, "GET", EXECUTOR, b"", found.body)
        except PlanServerError as error:
            kept = await asyncio.to_thread(self._cache.answer, digest) if self._cache and _may_pass(error) else None
            if kept is None:
                raise
            self._trust.check(kept.signature, "GET", EXECUTOR, b"", kept.body)
            return kept
        if self._cache is not None:
            await asyncio.to_thread(self._cache.keep_answer, digest, found)
        return found

    async def refuse(self, plan_key: str, why: str, text: str, took_us: float | None, instead_us: float | None) -> bool:
        """See `PlanClient.refuse`. Raises PlanServerError."""
        if not isinstance(plan_key, str) or not SHA256.fullmatch(plan_key) or why not in WHYS:
            expected = f"a plan's key and one of {', '.join(WHYS)}"
            raise BadArgument(f"expected {expected}, got {plan_key!r:.80} and {why!r:.40}")
        if self._cache is not None and why != "slower":
            await asyncio.to_thread(self._cache.refuse, plan_key)
        said: dict[str, Any] = {"id": secrets.token_hex(16), "why": why, "text": shown(text, TEXT_CHARACTERS)}
        for name, time_us in (("took_us", took_us), ("instead_us", instead_us)):
            said |= {} if time_us is None else {name: float(time_us)}
        headers = {"Content-Type": "application/json"}
        path = f"/v1/plans/{plan_key}/refusals"
        await self._received(Request("POST", path, request_body(said), headers, SMALL_BYTES))
        return True

    async def _kept(self, digest: str, request: bytes, most_age_s: float | None = None) -> Answer | None:
        """The kept answer, no older than this many seconds; None where there is none that may be used."""
        if self._cache is None:
            return None
        return await asyncio.to_thread(self._read, self._cache, digest, request, most_age_s)

    def _read(self, cache: PlanCache, digest: str, request: bytes, most_age_s: float | None) -> Answer | None:
        kept = cache.answer(digest)
        if kept is None or (most_age_s is not None and not 0 <= time.time() - kept.stored <= most_age_s):
            return None
        try:
            self._trust.check(kept.signature, "POST", RESOLVE, request, kept.body)
            answer = answer_in(kept.body, signature=kept.signature, kept=True)
        except PlanServerError as error:
            self.problems.note(f"a kept answer is not used: {error.reason}")
            return None
        return None if cache.is_refused(answer.plan_key) else answer

    async def _received(self, request: Request) -> Received:
        """The answer to a request, below 400. Raises PlanServerError."""
        limits = self.limits
        received = await attempts(
            lambda: send(self.server, request, limits.attempt_s, limits.connect_s), limits, self._allowance
        )
        if received.status >= 400:
            raise problem_in(received)
        return received


def request_body(request: Mapping[str, Any] | bytes) -> bytes:
    """The body of a request: bytes as they are, an object as JSON with its members in order of their names, so that
    equal requests are equal bytes. Raises BadArgument."""
    if isinstance(request, bytes):
        return request
    try:
        text = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise BadArgument(f"the request cannot be written as JSON: {e}") from e
    return text.encode()


def _ok(received: Received) -> Received:
    if received.status != 200:
        raise BadAnswer(f"the answer has status {received.status}, expected 200; redirects are not followed")
    return received


def _for_device(answer: Answer, request: Mapping[str, Any] | bytes) -> Answer:
    """The answer. Raises BadAnswer where it is for another class of devices than the request asks for."""
    wanted = request.get("device_key") if isinstance(request, Mapping) else None
    if wanted is not None and answer.device_key != wanted:
        raise BadAnswer(f"the answer is for devices of class {answer.device_key!r:.40}, expected {wanted!r:.40}")
    return answer


def _may_pass(error: PlanServerError) -> bool:
    """Whether an error says nothing about the request itself, so that an answer of before is still one."""
    if isinstance(error, ProblemAnswer):
        return error.status >= 500 or error.status in (408, 429)
    return not isinstance(error, BadArgument)
