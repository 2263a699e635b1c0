"""Requests to one server, in the process's thread: what `PlanClient` and `AsyncPlanClient` have in common."""

import hashlib
import json
import re
from collections.abc import Mapping
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
from fuseplan_client.server.errors import BadAnswer, BadArgument
from fuseplan_client.server.limits import Limits
from fuseplan_client.server.transport import Received, Request, base_url, send

RESOLVE = "/v1/plans:resolve"
OPERATION_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
SMALL_BYTES = 2**20  # of answers that hold no plan


class Session:
    """One server, with the limits of requests to it."""

    def __init__(self, url: str, limits: Limits) -> None:
        self.server, self.limits = base_url(url), limits
        self._allowance = HedgeAllowance()

    async def resolve(self, request: Mapping[str, Any] | bytes, *, again: bool = False) -> Answer | Pending:
        """See `PlanClient.resolve`."""
        body = request_body(request)
        headers = {"Content-Type": "application/json"} | ({"Cache-Control": "no-cache"} if again else {})
        received = await self._received(Request("POST", RESOLVE, body, headers, self.limits.answer_bytes))
        if received.status == 202:
            return pending_in(received)
        return answer_in(_ok(received).body)

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
        request = Request("GET", f"/v1/binaries/{sha256}", most_bytes=self.limits.binary_bytes)
        content = _ok(await self._received(request)).body
        if (is_ := hashlib.sha256(content).hexdigest()) != sha256:
            raise BadAnswer(f"the binary does not hash to its name: expected {sha256}, got {is_}")
        return content

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
