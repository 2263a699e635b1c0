"""Preferences of a request in its `Prefer` header (RFC 7240)."""

import re

from fastapi import Request

_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?([0-9]{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)


def wait_seconds(request: Request, most: float) -> float:
    """N of `Prefer: wait=N`, `most` where that is less, 0 without the header or where it cannot be read."""
    match = _WAIT.search(", ".join(request.headers.getlist("prefer")))
    return min(float(match[1]), most) if match else 0.0
