"""Middleware of every request: host check, body limit, security headers, metrics, a problem document for any fault."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import printable
from service.problem_response import problem_response

log = logging.getLogger("fuseplan.http")

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# After an early 413 the rest of the body is read and dropped, so that a client which sends before it listens gets to
# read the answer; at most this many times the limit, and this long.
DRAIN_FACTOR = 8
DRAIN_SECONDS = 10.0


# A body has come after this many seconds, and one more for every so many bytes of it.
BODY_SECONDS = 10.0
SLOWEST_BYTES_PER_SECOND = 50_000
RETRY_SECONDS = 2
CLIENT_CLOSED = 499  # in metrics only: nobody was there to be answered


def host_names(allowed: str) -> frozenset[str]:
    """Names that requests may call the server by: loopback's, and those of the setting `allowed_hosts`."""
    return LOOPBACK_NAMES | frozenset(name for name in allowed.lower().split(",") if name)


class _HeadSent(Exception):
    """A stream was asked for its head alone, which was sent."""


class _Refused(Exception):
    """The body is not read to its end. `slug`: that of the problem in the answer."""

    def __init__(self, slug: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.slug, self.detail, self.headers = slug, detail, {**(headers or {}), "Connection": "close"}


class Gate:
    """Pure ASGI middleware. `observe(template, method, status, seconds)` is called after every request, `problem(slug)`
    for every problem that is answered here.

    hosts: names, in lower case, that requests may call the server by.
    limits: name and value of the setting that limits bodies, by path; that of "" holds for all others. most_held: bytes
    of all bodies together, from their first byte to their answer.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: frozenset[str],
        limits: Mapping[str, tuple[str, int]],
        most_held: int,
        observe: Callable[[str, str, int, float], None],
        problem: Callable[[str], None],
    ) -> None:
        self.app, self.hosts, self.limits, self.most_held = app, hosts, limits, most_held
        self.observe, self.problem = observe, problem
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        # Who asks for the head alone is answered as by GET, without the body.
        head = scope["method"] == "HEAD"
        inner = {**scope, "method": "GET"} if head else scope
        body = _Body(self, receive, *self._limit(scope))

        async def dressed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            elif head and message["type"] == "http.response.body":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                if message.get("more_body"):
                    raise _HeadSent  # a stream, of which nobody wants the rest
                return
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                self.problem(refusal[0])
                await problem_response(*refusal)(scope, receive, dressed)
            else:
                body.expect(_declared_bytes(scope))
                await self.app(inner, body.receive, dressed)
        except _HeadSent:
            log.debug("HEAD %s: the stream behind it was left", printable(scope["path"]))
        except _Refused as refused:
            if status:
                raise
            self.problem(refused.slug)
            await body.refuse(refused, dressed)
        except ClientDisconnect:
            status = status or CLIENT_CLOSED
        except Exception:
            incident = secrets.token_hex(6)
            log.exception("incident %s: %s %s", incident, scope["method"], printable(scope["path"]))
            if status:
                raise
            self.problem("internal")
            response = problem_response(
                "internal", f"The request failed inside the server; its log has incident {incident}."
            )
            await response(scope, receive, dressed)
        finally:
            body.release()
            route = inner.get("route")
            template = getattr(route, "path", None) or "(none)"
            self.observe(template, scope["method"], status, time.perf_counter() - started)

    def _refusal(self, scope: Scope) -> tuple[str, str, str] | None:
        """Slug, detail and place if the request may not reach the application at all."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in self.hosts:
            return "wrong-host", "The Host header must name the loopback address, or an allowed host.", "Host"
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return None
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "cross-site", "Only this server's own pages may send this request from a browser.", "Sec-Fetch-Site"
        # Older browsers send this alone; other clients send neither.
        if (origin := headers.get("origin")) is not None and origin.lower() != f"http://{host.lower()}":
            return "cross-site", "Only this server's own pages may send this request from a browser.", "Origin"
        return None

    def _limit(self, scope: Scope) -> tuple[str, int]:
        """Name and value of the setting that limits this request's body."""
        return self.limits.get(scope["path"], self.limits[""])


class _Body:
    """The body of one request as it comes, held to its limits."""

    def __init__(self, gate: Gate, receive: Receive, setting: str, limit: int) -> None:
        self._gate, self._receive, self._setting, self._limit = gate, receive, setting, limit
        self._count = self._held = 0
        self._deadline: float | None = None  # of the loop; None before anybody asked for the body, and after its end
        self._ended = False

    def expect(self, declared: int) -> None:
        """Raises _Refused for a declared length that is too large."""
        self._check(declared)

    async def receive(self) -> Message:
        """The next message. Raises _Refused."""
        if self._ended:
            return await self._receive()  # no body any more, but word that the client has gone
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            detail = f"Of the body, {self._count} bytes came in time, at {SLOWEST_BYTES_PER_SECOND} a second and more."
            raise _Refused("body-too-slow", detail) from None
        size = len(message.get("body", b""))
        self._deadline += size / SLOWEST_BYTES_PER_SECOND
        self._count += size
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)
        self._check(self._count)
        self._hold(size)
        return message

    def release(self) -> None:
        """The request is over."""
        self._gate.held -= self._held
        self._held = 0

    async def refuse(self, refused: _Refused, send: Send) -> None:
        """Answers, then reads the rest of the body and drops it."""
        self.release()
        response = problem_response(refused.slug, refused.detail, headers=refused.headers)
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
        left = DRAIN_FACTOR * self._limit
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while left > 0 and not self._ended and refused.slug != "body-too-slow":
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self._ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        except TimeoutError:
            log.info("a body that was refused was still being sent after %g s; closing", DRAIN_SECONDS)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise _Refused("body-too-large", f"The limit is {self._limit} bytes (setting {self._setting}).")

    def _hold(self, size: int) -> None:
        if self._gate.held + size > self._gate.most_held:
            detail = f"Bodies of {self._gate.held} bytes are being received or read (setting max_held_bytes)."
            raise _Refused("too-many-bodies", detail, {"Retry-After": str(RETRY_SECONDS)})
        self._held += size
        self._gate.held += size


def _declared_bytes(scope: Scope) -> int:
    """The Content-Length, 0 if there is none or it is no number (the server then counts, or has refused it)."""
    text = Headers(scope=scope).get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
