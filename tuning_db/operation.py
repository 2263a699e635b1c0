"""One operation of the queue, as a record: read from its row, made anew, and as the columns of a row."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Row

from tuning_db.checks import fitting, miss, storable
from tuning_db.failures import FailureKey
from tuning_db.models import OperationRow
from tuning_db.states import OPERATION_STATES, OperationState


@dataclass(frozen=True, slots=True)
class Operation:
    """A job as it stood when read. Times are seconds since 1970; `progress`, `result` and `error` the worker's text.
    started: when a worker took it the last time; progress is of that attempt.

    request_key, conditions, had_s: the key under which its failure is noted where it is given up (`FailureKey`).
    """

    id: str
    kind: str
    payload: str
    dedupe_key: str | None
    device_key: str | None
    state: OperationState
    priority: int
    owner: str
    token: int
    lease_until: float
    attempt: int
    not_before: float
    cancel_requested: bool
    progress: str
    result: str | None
    error: str | None
    created: float
    started: float | None
    finished: float | None
    request_key: str | None = None
    conditions: str | None = None
    had_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Queued or running."""
        return self.state in ("queued", "running")


COLUMNS = tuple(OperationRow.__table__.c[field.name] for field in fields(Operation))


def read_operations(rows: Iterable[Row[Any]]) -> list[Operation]:
    """The operations of rows, without those that are damaged."""
    found = [Operation(*row) for row in fitting(COLUMNS, rows)]
    for operation in found:
        if operation.state not in OPERATION_STATES:
            miss("operations", operation.id, f"state cannot be {operation.state!r:.40}")
    return [operation for operation in found if operation.state in OPERATION_STATES]


def new_operation(
    kind: str,
    payload: str,
    dedupe_key: str | None,
    device_key: str | None,
    priority: int,
    created: float,
    failing: FailureKey | None = None,
) -> Operation:
    """A queued operation that is stored nowhere yet. Raises ValueError for text that not every database can hold."""
    for what, text in (
        ("kind", kind),
        ("payload", payload),
        ("dedupe key", dedupe_key or ""),
        ("device key", device_key or ""),
    ):
        if storable(text) != text:
            raise ValueError(f"the {what} of an operation contains NUL or a lone surrogate")
    return Operation(
        id=uuid.uuid4().hex,
        kind=kind,
        payload=payload,
        dedupe_key=dedupe_key,
        device_key=device_key,
        state="queued",
        priority=priority,
        owner="",
        token=0,
        lease_until=0.0,
        attempt=0,
        not_before=0.0,
        cancel_requested=False,
        progress="",
        result=None,
        error=None,
        created=created,
        started=None,
        finished=None,
        request_key=None if failing is None else failing.request.digest,
        conditions=None if failing is None else failing.conditions.json(),
        had_s=None if failing is None else float(failing.had_s),
    )


def columns_of(operation: Operation) -> dict[str, Any]:
    """The row of an operation."""
    return {field.name: getattr(operation, field.name) for field in fields(Operation)}
