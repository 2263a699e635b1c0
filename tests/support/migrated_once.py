"""New SQLite databases: the first of a process is made by the migrations, later ones by the tables that it came to.

Each of a thousand tests has a database of its own, and the migrations take 0.1 s.
"""

import sqlite3

import pytest
from sqlalchemy import Connection, inspect

from tuning_db import upgrading
from tuning_db.revisions import revisions


class MigratedOnce:
    """`tuning_db.upgrading.upgrade_to`, quicker for an empty SQLite database that is brought to the newest revision."""

    def __init__(self) -> None:
        self._migrate = upgrading.upgrade_to
        self._statements: list[str] = []

    def install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(upgrading, "upgrade_to", self.upgrade_to)

    def upgrade_to(self, connection: Connection, target: str) -> None:
        """Brings the tables to a revision, in the connection's transaction."""
        copied = connection.dialect.name == "sqlite" and target == revisions()[-1]
        if not copied or inspect(connection).get_table_names():
            self._migrate(connection, target)
            return
        if not self._statements:
            self._migrate(connection, target)
            database = connection.connection.driver_connection
            assert isinstance(database, sqlite3.Connection)
            self._statements = [s for s in database.iterdump() if s not in ("BEGIN TRANSACTION;", "COMMIT;")]
            return
        for statement in self._statements:
            connection.exec_driver_sql(statement)
