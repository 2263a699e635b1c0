"""What a request prefers (RFC 7240)."""

import re

from fastapi import Request

_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?([0-9]{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)


def wait_seconds(request: Request, most: float) -> float:
    """N of `Prefer: wait=N`, `most` where that is less, 0 without; what cannot be read is no preference."""
    match = _WAIT.search(", ".join(request.headers.getlist("prefer")))
    return min(float(match[1]), most) if match else 0.0
