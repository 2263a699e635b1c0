"""Checksums of rows. What does not verify is a miss, logged here: a cache fault costs time, never a wrong answer."""

import hashlib
import json
from collections import Counter
from typing import Any

import structlog

_log: Any = structlog.get_logger("tuning_db")


def digest(content: object) -> str:
    """sha256 of bytes or text in hexadecimal; "" for anything else, which a damaged SQLite file can hand out."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else ""


def checksum(*parts: object) -> str:
    """sha256 over the columns of a row, in order. Damaged rows may hold any type, so every type is accepted."""
    return digest(json.dumps(parts, default=repr, allow_nan=True))


_missed: Counter[str] = Counter()


def miss(table: str, key: str, reason: str) -> None:
    """Logs and counts that a stored row is treated as if it were not there."""
    _missed[table] += 1
    _log.warning("stored row does not verify", table=table, key=key, reason=reason)


def missed() -> dict[str, int]:
    """How many rows this process found damaged, by table; one that is read twice counts twice."""
    return dict(_missed)


def storable(text: str) -> str:
    """`text` as both databases can hold it: NUL and lone surrogates (compiler output has them) become U+FFFD."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
