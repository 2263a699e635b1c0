"""Answers that never change: named by their content's sha256, cached for good, 304 where the client has them."""

import re

from fastapi import Request
from starlette.responses import Response

from service.api.models import KEY
from service.errors import ApiError

_KEY = re.compile(KEY)
YEAR_SECONDS = 31_536_000


def check_key(key: str, what: str) -> str:
    """`key` if it can be one. Raises ApiError `not-found`: nothing is stored under anything else."""
    if not _KEY.fullmatch(key):
        raise ApiError("not-found", f"There is no {what} with this key: keys are 64 lower-case hexadecimal digits.")
    return key


def immutable(request: Request, key: str, content: bytes, media_type: str, place: str | None = None) -> Response:
    """200 with a strong ETag, or 304 where If-None-Match names it.

    place: the address of the content where the request had another, which may come to mean something else; only that
    one is cached for good.
    """
    tag = f'"{key}"'
    headers = {"ETag": tag, "Cache-Control": f"public, max-age={YEAR_SECONDS}, immutable"}
    if place is not None:
        headers |= {"Cache-Control": "no-cache", "Content-Location": place}
    if matches(request.headers.getlist("if-none-match"), tag, weak=True):
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, media_type)


def matches(values: list[str], tag: str, *, weak: bool = False) -> bool:
    """Whether a header of entity tags names `tag` or is `*`; `weak`: W/ does not matter (RFC 9110, 8.8.3.2)."""
    tags = [t.strip() for value in values for t in value.split(",")]
    return "*" in tags or tag in ([t.removeprefix("W/") for t in tags] if weak else tags)
