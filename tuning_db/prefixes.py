"""Keys by their beginnings: the rows that a shortened key may mean."""

import re

from sqlalchemy import bindparam, select
from sqlalchemy.orm import InstrumentedAttribute

from tuning_db.checks import fitting
from tuning_db.engine import Database

PREFIX = re.compile(r"[0-9a-f]{4,64}\Z")  # what may stand for a key: at least four of its first digits
_BEHIND = "g"  # sorts behind every digit


def is_prefix(text: str) -> bool:
    """Whether `text` may be the beginning of a key, or a whole one."""
    return PREFIX.match(text) is not None


def beginning_with(database: Database, column: InstrumentedAttribute[str], prefix: str, limit: int) -> list[str]:
    """At most `limit` keys that begin with `prefix`, in order: a range of the column's index. Raises ValueError unless
    `is_prefix(prefix)`."""
    if not is_prefix(prefix):
        raise ValueError(f"expected 4 to 64 hexadecimal digits in lower case, got {prefix[:80]!r}")
    within = (column >= bindparam("first", prefix), column < bindparam("behind", prefix + _BEHIND))
    statement = select(column).where(*within).order_by(column).limit(limit)
    rows = database.cached(column.class_.__tablename__, prefix, statement)
    return [str(row[0]) for row in fitting([column.class_.__table__.c[column.key]], rows)]
