"""Checksums of rows. A row that does not verify is a miss, logged here: such faults cost time, never a wrong answer."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from tuning_db.logs import warn

if TYPE_CHECKING:
    from sqlalchemy import Row


def digest(content: object) -> str:
    """sha256 of bytes or text in hexadecimal; "" for anything else, which a damaged SQLite file can hand out."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else ""


def checksum(*parts: object) -> str:
    """sha256 over the columns of a row, in order. Damaged rows may hold any type, so every type is accepted."""
    return digest(json.dumps(parts, default=repr, allow_nan=True))


MOST_SECONDS = 250_000_000_000.0  # since 1970: the year 9892, not far from the last that calendars here have
_TIMES = ("created", "started", "finished", "cancelled", "last_hit")
_R = TypeVar("_R", bound="Row[Any]")


def misfit(columns: Iterable[Any], values: Iterable[object]) -> str:
    """The first value of a row that its column cannot hold, as a message; "" where all fit. PostgreSQL keeps to the
    types of columns, SQLite does not, and damage in tables without a checksum is found by this alone."""
    for column, value in zip(columns, values, strict=True):
        kind = column.type.python_type
        if value is None:
            wrong = not column.nullable
        elif kind is float:
            wrong = not isinstance(value, float | int) or not isfinite(value)
            wrong = wrong or (column.name in _TIMES and not 0 <= float(str(value)) <= MOST_SECONDS)
        else:
            wrong = not isinstance(value, kind)
        if wrong:
            return f"{column.name} cannot be {value!r:.40}"
    return ""


def fitting(columns: Sequence[Any], rows: Iterable[_R]) -> list[_R]:
    """The rows whose values fit; the first of `columns` is the key under which others are logged as missing."""
    found: list[_R] = []
    for row in rows:
        wrong = misfit(columns, row[: len(columns)])
        if wrong:
            miss(columns[0].table.name, str(row[0]), wrong)
        else:
            found.append(row)
    return found


_missed: Counter[str] = Counter()


def miss(table: str, key: str, reason: str) -> None:
    """Logs and counts that a stored row is treated as if it were not there."""
    _missed[table] += 1
    warn("stored row does not verify", table=table, key=key, reason=reason)


def missed() -> dict[str, int]:
    """How many rows this process found damaged, by table; one that is read twice counts twice."""
    return dict(_missed)


def storable(text: str) -> str:
    """`text` as both databases can hold it: NUL and lone surrogates (compiler output has them) become U+FFFD."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
