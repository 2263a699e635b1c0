"""Statements that a hit needs, as SQL text: SQLAlchemy runs them for a `Store`, sqlite3 alone for `SqliteHits`."""
