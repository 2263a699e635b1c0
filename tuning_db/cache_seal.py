"""The database's secret: object caches believe what somebody wrote who knows it."""

import secrets

from tuning_db.engine import Database
from tuning_db.errors import DatabaseError
from tuning_db.models import SealRow
from tuning_db.reading.seal import BYTES, NAME, SEAL


def seal(database: Database) -> bytes:
    """The secret, made by whoever asks first. Raises DatabaseError, also for one that is damaged."""
    rows = database.rows(SEAL)
    if not rows:
        with database.write() as connection:
            made = database.insert(SealRow).on_conflict_do_nothing()
            connection.execute(made, {"name": NAME, "secret": secrets.token_bytes(BYTES)})
        rows = database.rows(SEAL)
    secret = next(row[-1] for row in rows)
    if not isinstance(secret, bytes) or len(secret) != BYTES:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DatabaseError(
            f"database {database.place}: the row of `seals` is damaged; delete it, and kernels are compiled anew"
        )
    return secret
