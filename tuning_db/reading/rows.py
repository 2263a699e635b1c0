"""The reader that statements are run by: a database that many threads share, or one SQLite file for one hit."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Reader(Protocol):
    """Runs one SELECT, as text with `:names` for values, and decides what a damaged row means."""

    def cached(self, table: str, key: str, statement: str, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Every row, as a tuple. table, key: for a message where the table cannot be read."""
        ...

    def miss(self, table: str, key: str, reason: str) -> None:
        """Is told of a row that does not verify; the caller goes on as if it were not there."""
        ...
