"""What every request passes: host check, body limit, security headers, metrics, a problem document for any fault."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import problem_response

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


class _BodyTooLarge(Exception):
    """The streamed body went over the limit."""


class Gate:
    """Pure ASGI middleware. `observe(template, method, status, seconds)` is called after every request.

    limits: name and value of the setting that limits bodies, by path; that of "" holds for all others.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Mapping[str, tuple[str, int]],
        observe: Callable[[str, str, int, float], None],
    ) -> None:
        self.app, self.limits, self.observe = app, limits, observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        count = 0
        limit = self._limit(scope)[1]

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > limit:
                raise _BodyTooLarge
            return message

        async def dressed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await problem_response(*refusal)(scope, receive, dressed)
            elif _declared_bytes(scope) > limit:
                raise _BodyTooLarge
            else:
                await self.app(scope, counted, dressed)
        except _BodyTooLarge:
            if status:
                raise
            await self._too_large(scope, receive, dressed)
        except Exception:
            incident = secrets.token_hex(6)
            log.exception("incident %s: %s %s", incident, scope["method"], scope["path"])
            if status:
                raise
            response = problem_response(
                "internal", f"The request failed inside the server; its log has incident {incident}."
            )
            await response(scope, receive, dressed)
        finally:
            route = scope.get("route")
            template = getattr(route, "path", None) or "(none)"
            self.observe(template, scope["method"], status, time.perf_counter() - started)

    @staticmethod
    def _refusal(scope: Scope) -> tuple[str, str, str] | None:
        """Slug, detail and place if the request may not reach the application at all."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in LOOPBACK_NAMES:
            return "wrong-host", "The Host header must name the loopback address.", "Host"
        site = headers.get("sec-fetch-site", "none")
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and site not in ("none", "same-origin"):
            return "cross-site", "Only this server's own pages may send this request from a browser.", "Sec-Fetch-Site"
        return None

    def _limit(self, scope: Scope) -> tuple[str, int]:
        """Name and value of the setting that limits this request's body."""
        return self.limits.get(scope["path"], self.limits[""])

    async def _too_large(self, scope: Scope, receive: Receive, send: Send) -> None:
        setting, limit = self._limit(scope)
        detail = f"The limit is {limit} bytes (setting {setting})."
        response = problem_response("body-too-large", detail, headers={"Connection": "close"})
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
        left = DRAIN_FACTOR * limit
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        break
        except TimeoutError:
            log.info("a body over the limit was still being sent after %g s; closing", DRAIN_SECONDS)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _declared_bytes(scope: Scope) -> int:
    """The Content-Length, 0 if there is none or it is no number (the server then counts, or has refused it)."""
    text = Headers(scope=scope).get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
