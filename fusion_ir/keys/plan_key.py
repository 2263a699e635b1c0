"""Keys of plans: two with equal keys hold the same bytes."""

import hashlib


def plan_key(body: bytes) -> str:
    """sha256, in hexadecimal, of a plan's whole body: of everything that it holds, as it is stored and published. The
    conditions under which a stored plan answers a request are no part of it: see `tuning_db.requests.RequestKey`."""
    return hashlib.sha256(body).hexdigest()
