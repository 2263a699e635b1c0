"""Keyset pagination: a page of rows, and the opaque token that continues after its last row."""

import base64
import binascii
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tuning_db.checks import checksum

Row = TypeVar("Row")

MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """One page of a list. `next_page_token` is None on the last page."""

    items: Sequence[Row]
    next_page_token: str | None


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a list ordered by (created, key), newest first: rows come after it."""

    created: float
    key: str

    def token(self, query: object) -> str:
        """The opaque text for this place in the list that `query` selects."""
        text = json.dumps([self.created, self.key, checksum(repr(query))[:16]], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @staticmethod
    def of_token(token: str, query: object) -> "Position":
        """The place that `token` names.

        Raises ValueError where the token was not made by `token`, or was made for another query.
        """
        if len(token) > 512:
            raise ValueError("page token is too long")
        try:
            raw = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
            value: Any = json.loads(raw)
        except (UnicodeError, binascii.Error, ValueError, RecursionError):
            raise ValueError("page token is damaged") from None
        match value:
            case [float() | int() as created, str() as key, str() as made_for] if _is_time(created) and _is_key(key):
                if made_for != checksum(repr(query))[:16]:
                    raise ValueError("page token belongs to a list with other filters")
                return Position(float(created), key)
            case _:
                raise ValueError("page token is damaged")


def check_limit(limit: int) -> int:
    """`limit`, or ValueError where it is not in 1 ... MAX_LIMIT."""
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit must be between 1 and {MAX_LIMIT}, not {limit}")
    return limit


def _is_time(value: float) -> bool:
    return not isinstance(value, bool) and abs(value) < 1e15 and math.isfinite(value)


def _is_key(text: str) -> bool:
    return 0 < len(text) <= 64 and all(c in "0123456789abcdef" for c in text)
