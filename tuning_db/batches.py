"""Batches: many requests submitted together, worked through by the one queue of operations.

Every item is a request that had its answer when it came, or failed, or waits for an operation of the queue; equal
requests, of other batches and of interactive callers too, wait for one operation. Operations of batches come after all
others. The result of an item is kept with the item (`tuning_db.batch_endings`), as operations are forgotten.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, case, exists, func, insert, select, tuple_, update

from tuning_db.batch_endings import Ending, end_items
from tuning_db.checks import fitting, miss, storable
from tuning_db.engine import Database
from tuning_db.errors import KeyReused, NeverFits, QueueFull
from tuning_db.failures import FailureKey
from tuning_db.graphs import NewGraph, put_graphs
from tuning_db.models import BatchItemRow, BatchRow, GraphSegmentRow, OperationRow
from tuning_db.operation import columns_of, new_operation
from tuning_db.operations import SUBMIT, withdraw
from tuning_db.page_tokens import Page, Position, check_limit
from tuning_db.prefixes import beginning_with
from tuning_db.states import OPERATION_STATES, BatchState, OperationState

# Below that of every interactive request: an operation above it is wanted by somebody outside of batches.
PRIORITY = -1
_TICK_SECONDS = 1e-6  # between operations of one batch, so that they are taken in the order of its lines
_CHUNK = 500  # values in one statement; SQLite takes some ten thousand


@dataclass(frozen=True, slots=True)
class Work:
    """The operation that an item needs; it is joined where an equal one (`dedupe_key`) is open. failing: under which it
    is a failed search once it is given up."""

    kind: str
    payload: str
    dedupe_key: str
    device_key: str | None = None
    failing: FailureKey | None = None


@dataclass(frozen=True, slots=True)
class NewItem:
    """A request as it is submitted. `outcome`: what it waits for, or how it has ended already."""

    custom_id: str
    graph_key: str | None
    outcome: Work | Ending


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it stood when read. Times are seconds since 1970. `counts`: items by state."""

    id: str
    payload: str
    items: int
    created: float
    cancelled: float | None
    finished: float | None
    counts: Mapping[OperationState, int]

    @property
    def state(self) -> BatchState:
        if self.finished is None:
            return "running"
        return "done" if self.cancelled is None else "cancelled"


@dataclass(frozen=True, slots=True)
class BatchItem:
    """`event`: n for the n-th item of the batch to end. `progress`: of the operation, while it runs."""

    number: int
    custom_id: str
    graph_key: str | None
    operation_id: str | None
    state: OperationState
    result: str | None
    error: str | None
    event: int | None
    progress: str | None


@dataclass(frozen=True, slots=True)
class Sharing:
    """Numbers of segments of several graphs. used: the sum over the graphs; distinct: each segment counted once."""

    used: int
    distinct: int


_STATE = case(
    (and_(BatchItemRow.state == "queued", OperationRow.state == "running"), "running"), else_=BatchItemRow.state
)
_ITEM: Any = (
    select(
        BatchItemRow.number,
        BatchItemRow.custom_id,
        BatchItemRow.graph_key,
        BatchItemRow.operation_id,
        _STATE,
        BatchItemRow.result,
        BatchItemRow.error,
        BatchItemRow.event,
        OperationRow.progress,
    )
    .join(OperationRow, OperationRow.id == BatchItemRow.operation_id, isouter=True)
    .where(BatchItemRow.batch_id == bindparam("batch"))
)
_ITEM_OWN = ("number", "custom_id", "graph_key", "operation_id", "state", "result", "error", "event")
_ITEM_COLUMNS = tuple(BatchItemRow.__table__.c[name] for name in _ITEM_OWN)  # of `_ITEM`, which has one more
_ITEM_STATE = _ITEM_OWN.index("state")
_COLUMNS = tuple(BatchRow.__table__.c[name] for name in ("id", "payload", "items", "created", "cancelled", "finished"))
_SHARING = select(func.count(), func.count(GraphSegmentRow.segment_key.distinct())).where(
    GraphSegmentRow.graph_key.in_(select(BatchItemRow.graph_key).where(BatchItemRow.batch_id == bindparam("batch")))
)


class Batches:
    """The batches of one database. `clock` gives seconds since 1970."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def submit(
        self,
        items: Sequence[NewItem],
        graphs: Sequence[NewGraph],
        payload: str,
        *,
        idempotency_key: str | None = None,
        limit: int | None = None,
    ) -> Batch:
        """Stores the batch, its graphs and its operations, all or nothing; or finds the one with `idempotency_key`.

        payload: the sha256 of what was submitted. Raises KeyReused where the key came with another payload, QueueFull
        where more than `limit` operations of batches would wait, NeverFits where this one alone needs more, ValueError
        for a batch without items, a custom_id that comes twice, and text that not every database can hold.
        """
        _check(items)
        id, now = uuid.uuid4().hex, self._clock()
        with self._database.write() as connection:
            self._database.serialize(connection, SUBMIT)
            earlier: str | None = None
            if idempotency_key is not None:
                earlier = _earlier(connection.execute(_with_key(idempotency_key)).all(), payload)
            if earlier is None:
                put_graphs(self._database, connection, graphs)
                served = self._operations(connection, items, now, limit)
                row = {"id": id, "idempotency_key": idempotency_key, "payload": payload, "items": len(items)}
                connection.execute(insert(BatchRow).values(**row, ended=0, created=now))
                connection.execute(insert(BatchItemRow), [_row(id, n, i, served) for n, i in enumerate(items)])
                ended = [(n, i.outcome) for n, i in enumerate(items)]
                end_items(connection, id, [(n, o) for n, o in ended if isinstance(o, Ending)], now)
        found = self.batch(earlier or id)
        assert found is not None
        return found

    def find(self, idempotency_key: str, payload: str) -> Batch | None:
        """The batch submitted with this key. Raises KeyReused where it had another payload."""
        id = _earlier(self._database.rows(_with_key(idempotency_key)), payload)
        return None if id is None else self.batch(id)

    def batch(self, id: str) -> Batch | None:
        """The batch as it stands now."""
        return next(iter(self._batches(select(*_COLUMNS).where(BatchRow.id == id))), None)

    def ids(self, prefix: str, limit: int = 1000) -> list[str]:
        """At most `limit` ids of batches that begin with `prefix`. Raises ValueError for what is no prefix."""
        return beginning_with(self._database, BatchRow.id, prefix, limit)

    def batches(self, page_token: str | None = None, limit: int = 50) -> Page[Batch]:
        """A page of batches, newest first. Raises ValueError for a bad page token or a limit outside 1 ... 1000."""
        chosen = select(*_COLUMNS).order_by(BatchRow.created.desc(), BatchRow.id.desc()).limit(check_limit(limit) + 1)
        if page_token is not None:
            position = Position.of_token(page_token, "batches")
            after = tuple_(bindparam(None, position.created), bindparam(None, position.key))
            chosen = chosen.where(tuple_(BatchRow.created, BatchRow.id) < after)
        found = self._batches(chosen)
        shown = found[:limit]
        last = shown[-1] if len(found) > limit else None
        return Page(shown, last and Position(last.created, last.id).token("batches"))

    def cancel(self, id: str) -> Batch | None:
        """Ends the items that have not ended, and the operations that only they wait for; None for an unknown id.

        Operations that an interactive caller or another open batch waits for go on. An ended batch stays as it is.
        """
        now = self._clock()
        mine = and_(BatchItemRow.batch_id == id, BatchItemRow.state == "queued")
        operations = select(BatchItemRow.operation_id).where(mine)
        other = BatchItemRow.__table__.alias("other")
        elsewhere = exists().where(
            other.c.operation_id == OperationRow.id, other.c.state == "queued", other.c.batch_id != id
        )
        with self._database.write() as connection:
            self._database.serialize(connection, SUBMIT)
            # Whoever ends one of these operations meanwhile is waited for here, before its items are looked at.
            held = select(OperationRow.id).where(OperationRow.id.in_(operations)).order_by(OperationRow.id)
            connection.execute(held.with_for_update()).all()
            numbers = [n for (n,) in connection.execute(select(BatchItemRow.number).where(mine).order_by("number"))]
            if numbers:
                only_mine = and_(OperationRow.id.in_(operations), OperationRow.priority <= PRIORITY, ~elsewhere)
                withdraw(connection, only_mine, now)
                connection.execute(update(BatchRow).where(BatchRow.id == id).values(cancelled=now))
                end_items(connection, id, [(n, Ending("cancelled")) for n in numbers], now)
        return self.batch(id)

    def items(
        self, id: str, states: Sequence[OperationState] = OPERATION_STATES, after: int = -1, limit: int = 1000
    ) -> list[BatchItem]:
        """Items in these states whose number is above `after`, in order."""
        chosen = _ITEM.where(_STATE.in_(states), BatchItemRow.number > after).order_by(BatchItemRow.number)
        return self._items(chosen.limit(limit), id)

    def ended(self, id: str, after: int = 0, limit: int = 1000) -> list[BatchItem]:
        """Items that have ended, in the order in which they did, from the one after event `after`."""
        return self._items(_ITEM.where(BatchItemRow.event > after).order_by(BatchItemRow.event).limit(limit), id)

    def sharing(self, id: str) -> Sharing:
        """The segments that the graphs of the batch share, as far as searches have found them."""
        return Sharing(*self._database.rows(_SHARING.params(batch=id))[0])

    def _items(self, statement: Select[Any], id: str) -> list[BatchItem]:
        rows = fitting(_ITEM_COLUMNS, self._database.rows(statement.params(batch=id)))
        return [BatchItem(*row) for row in rows if row[_ITEM_STATE] in OPERATION_STATES]

    def _batches(self, statement: Select[Any]) -> list[Batch]:
        """One statement for batches and counts: one moment for both."""
        chosen = statement.subquery()
        counted: Select[Any] = (
            select(*chosen.c, _STATE.label("item_state"), func.count().label("number"))
            .join(BatchItemRow, BatchItemRow.batch_id == chosen.c.id)
            .join(OperationRow, OperationRow.id == BatchItemRow.operation_id, isouter=True)
            .group_by(*chosen.c, "item_state")
            .order_by(chosen.c.created.desc(), chosen.c.id.desc())
        )
        found = fitting(_COLUMNS, self._database.rows(counted))
        return [_batch(list(rows)) for _, rows in groupby(found, key=lambda row: row.id)]

    def _operations(
        self, connection: Connection, items: Sequence[NewItem], now: float, limit: int | None
    ) -> Mapping[str, str]:
        """Ids of the operations that serve the items, by dedupe key: open ones, held until the end, and new ones."""
        needed = {i.outcome.dedupe_key: i.outcome for i in items if isinstance(i.outcome, Work)}
        served: dict[str, str] = {}
        is_open = OperationRow.state.in_(("queued", "running"))
        keys = list(needed)
        for some in (keys[n : n + _CHUNK] for n in range(0, len(keys), _CHUNK)):
            same = select(OperationRow.dedupe_key, OperationRow.id).where(OperationRow.dedupe_key.in_(some), is_open)
            served |= {str(key): id for key, id in connection.execute(same.order_by("id").with_for_update())}
        missing = [work for key, work in needed.items() if key not in served]
        if limit is not None:
            queued = and_(OperationRow.state == "queued", OperationRow.priority <= PRIORITY)
            if len(missing) > limit:
                raise NeverFits(len(missing), limit)
            waiting = connection.execute(select(func.count()).select_from(OperationRow).where(queued)).scalar_one()
            if waiting + len(missing) > limit:
                raise QueueFull(waiting)
        new = [
            new_operation(w.kind, w.payload, w.dedupe_key, w.device_key, PRIORITY, now + n * _TICK_SECONDS, w.failing)
            for n, w in enumerate(missing)
        ]
        if new:
            connection.execute(insert(OperationRow), [columns_of(operation) for operation in new])
        return served | {str(operation.dedupe_key): operation.id for operation in new}


def _with_key(idempotency_key: str) -> Select[str, str]:
    return select(BatchRow.id, BatchRow.payload).where(BatchRow.idempotency_key == idempotency_key)


def _earlier(rows: Sequence[Row[str, str]], payload: str) -> str | None:
    """The id of the batch that came with this key. Raises KeyReused."""
    for row in rows:
        if row.payload != payload:
            raise KeyReused(row.id)
        return str(row.id)
    return None


def _check(items: Sequence[NewItem]) -> None:
    if not items:
        raise ValueError("a batch has at least one item")
    seen: set[str] = set()
    for item in items:
        if item.custom_id in seen:
            raise ValueError(f"two items have the custom_id {item.custom_id!r}")
        seen.add(item.custom_id)
        texts = {"custom_id": item.custom_id}
        if isinstance(item.outcome, Work):
            texts |= {"payload": item.outcome.payload, "dedupe key": item.outcome.dedupe_key}
        for what, text in texts.items():
            if storable(text) != text:
                raise ValueError(f"the {what} of an item contains NUL or a lone surrogate")


def _row(batch_id: str, number: int, item: NewItem, served: Mapping[str, str]) -> dict[str, Any]:
    operation = served[item.outcome.dedupe_key] if isinstance(item.outcome, Work) else None
    return {
        "batch_id": batch_id,
        "number": number,
        "custom_id": item.custom_id,
        "graph_key": item.graph_key,
        "operation_id": operation,
        "state": "queued",
    }


def _batch(rows: Sequence[Row[Any]]) -> Batch:
    """The batch, from one row for each state of its items."""
    counts: dict[OperationState, int] = dict.fromkeys(OPERATION_STATES, 0)
    for row in rows:
        if row.item_state in counts:
            counts[row.item_state] = row.number
        else:
            miss("batch_items", row.id, f"state cannot be {row.item_state!r:.40}")
    first = rows[0]
    return Batch(first.id, first.payload, first.items, first.created, first.cancelled, first.finished, counts)
