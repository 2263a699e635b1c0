"""Errors of the database and its queue, each with a message for the person who runs the service."""


class DatabaseError(Exception):
    """The database cannot be used: where it is, what happened, and what to do about it."""


class QueueFull(Exception):
    """The queue holds as many waiting operations as it may; the request should come again later."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} operations are waiting already")
        self.waiting = waiting


class NeverFits(Exception):
    """A batch needs more operations than may wait at all: coming again does not help."""

    def __init__(self, needed: int, limit: int) -> None:
        super().__init__(f"{needed} operations are needed, and at most {limit} may wait")
        self.needed, self.limit = needed, limit


class KeyReused(Exception):
    """The idempotency key came before, with another payload."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"this key came with another payload before: it made batch {batch_id}")
        self.batch_id = batch_id
