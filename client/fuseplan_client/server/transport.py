"""One attempt of a request: sent, and its answer read within limits of time and bytes."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from fuseplan_client.server.background import background
from fuseplan_client.server.errors import (
    AnswerCutOff,
    BadAnswer,
    BadArgument,
    PlanServerError,
    ServerAbsent,
    ServerSlow,
)

SCHEMES = ("http", "https")
HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


@dataclass(frozen=True)
class Request:
    """A request that may be sent more than once. most_bytes: of its answer's body."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    most_bytes: int = 2**20


@dataclass(frozen=True)
class Received:
    """A whole answer, whatever its status. headers: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def base_url(url: str) -> httpx.URL:
    """The address of a server, without a slash at its end. Raises BadArgument unless it is http or https and holds
    neither a password nor a query: addresses are shown in messages."""
    try:
        found = httpx.URL(url.rstrip("/") if isinstance(url, str) else url)
    except (httpx.InvalidURL, TypeError) as e:
        raise BadArgument(f"the server's address is no URL: {e}") from e
    if found.userinfo:
        raise BadArgument("the server's address holds a user or a password, which would be shown in messages")
    is_plain = not found.query and not found.fragment and (found.port is None or 0 < found.port < 65536)
    if found.scheme not in SCHEMES or not HOST.fullmatch(found.host) or not is_plain:
        raise BadArgument(f"expected an address like http://127.0.0.1:8080, got {str(found)!r:.200}")
    return found


async def send(server: httpx.URL, request: Request, attempt_s: float, connect_s: float) -> Received:
    """Makes one attempt. Raises ServerAbsent, ServerSlow, AnswerCutOff, BadAnswer, and PlanServerError for whatever
    else the transport may raise."""
    pool = background().pool(server.scheme)
    times = httpx.Timeout(attempt_s, connect=connect_s)
    received = _Reading(request.most_bytes)
    try:
        # The limits of httpx are for each read or write: a server that sends a byte now and then is within them.
        async with asyncio.timeout(attempt_s):
            async with pool.stream(
                request.method, f"{server}{request.path}", content=request.body, headers=request.headers, timeout=times
            ) as response:
                return await received.whole(response)
    except PlanServerError:
        raise
    except (httpx.ConnectError, httpx.ConnectTimeout) as e:
        why = f"no answer within {connect_s:g} s" if isinstance(e, httpx.ConnectTimeout) else str(e) or type(e).__name__
        raise ServerAbsent(f"no connection to {server}: {why}; is the server running there (`fuseplan serve`)?") from e
    except (TimeoutError, httpx.TimeoutException) as e:
        raise ServerSlow(f"{server} gave no whole answer within {attempt_s:g} s{received.so_far()}") from e
    except (httpx.NetworkError, httpx.RemoteProtocolError) as e:
        if received.began:
            raise AnswerCutOff(f"the answer of {server} was cut off{received.so_far()}: {e}") from e
        raise ServerAbsent(f"the connection to {server} was lost before an answer: {str(e) or type(e).__name__}") from e
    except Exception as e:  # whatever a transport may raise, callers get errors of this room alone
        raise PlanServerError(f"the request to {server} failed: {type(e).__name__}: {e}") from e


class _Reading:
    """The body of an answer while it comes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._count = most_bytes, 0
        self.began = False

    async def whole(self, response: httpx.Response) -> Received:
        self.began = True
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise BadAnswer(f"the answer came encoded as {encoding[:40]!r}, which nobody asked for")
        declared = response.headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 20:
            self._check(int(declared))
        pieces = list[bytes]()
        async for piece in response.aiter_raw():
            self._count += len(piece)
            self._check(self._count)
            pieces.append(piece)
        return Received(response.status_code, dict(response.headers.items()), b"".join(pieces))

    def so_far(self) -> str:
        """A clause on the bytes that came, "" where none did."""
        return f", after {self._count:,} bytes" if self._count else ""

    def _check(self, count: int) -> None:
        if count > self._most_bytes:
            raise BadAnswer(f"the answer has more than {self._most_bytes:,} bytes, the most that is read")
