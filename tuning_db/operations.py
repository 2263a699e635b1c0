"""The durable queue: operations that workers lease, renew and finish, on SQLite and PostgreSQL alike.

    queued --lease--> running --finish--> done | failed | cancelled
      ^                  |
      +--worker lost-----+   (MAX_ATTEMPTS times: failed)

A worker is lost when its lease runs out, or when whoever started it says so (`abandon`). A loss counts however far the
worker got: an operation that kills its worker after something was measured kills the next one there, too. After each
loss the operation waits a while (BACK_OFF_SECONDS), and others go first.

Every lease raises `token`, and every write of a worker names id, owner and token: one that lost its lease to somebody
else writes nothing. SQLite: BEGIN IMMEDIATE and UPDATE ... RETURNING; PostgreSQL: FOR UPDATE SKIP LOCKED. However an
operation ends, the items of batches that wait for it end with it; one that is given up is noted as a failed search.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, delete, func, or_, select, update

from tuning_db import failures
from tuning_db.batch_endings import Ending, settle
from tuning_db.checks import storable
from tuning_db.engine import Database
from tuning_db.errors import QueueFull
from tuning_db.failures import Failure, FailureKey
from tuning_db.graphs import NewGraph, put_graphs
from tuning_db.models import OperationRow
from tuning_db.operation import (
    COLUMNS,
    Operation,
    columns_of,
    new_operation,
    read_operations,
)
from tuning_db.states import OPERATION_STATES, OperationState

MAX_ATTEMPTS = 3
BACK_OFF_SECONDS = (1.0, 10.0)  # from the first loss of a worker, or the end of its lease, and from the second
DAMAGED = "its row in the database was damaged: ask again"
SUBMIT = "fuseplan submit"  # the lock under which operations are added, joined and, by batches, withdrawn

_OPEN = OperationRow.state.in_(("queued", "running"))
_IN_TURN = (OperationRow.priority.desc(), OperationRow.created, OperationRow.id)  # as workers take them


class Operations:
    """The queue. `clock` gives seconds since 1970; hosts that share a database must agree on it within a lease.

    Where they do not, a job may be done twice, but only the last lease's result is written.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def submit(
        self,
        kind: str,
        payload: str,
        dedupe_key: str | None = None,
        *,
        device_key: str | None = None,
        priority: int = 0,
        limit: int | None = None,
        graphs: Sequence[NewGraph] = (),
        failing: FailureKey | None = None,
    ) -> Operation:
        """Adds an operation, or joins the queued or running one that has its `dedupe_key`; stores the graphs that it is
        about in that transaction.

        device_key: the class of devices that it is for, None for any. priority: larger ones come first; joining raises
        that of the operation joined. failing: the key under which it is a failed search once it is given up.
        Raises QueueFull where a new operation would make more than `limit` of its priority or a larger one wait, and
        ValueError for text that not every database can hold. Then nothing is stored.
        """
        new = new_operation(kind, payload, dedupe_key, device_key, priority, self._clock(), failing)
        with self._database.write() as connection:
            self._database.serialize(connection, SUBMIT)
            put_graphs(self._database, connection, graphs)
            if dedupe_key is not None:
                same = and_(OperationRow.dedupe_key == dedupe_key, _OPEN)
                raised = {"priority": case((OperationRow.priority < priority, priority), else_=OperationRow.priority)}
                join = update(OperationRow).where(same).values(raised)
                found = connection.execute(join.returning(*COLUMNS)).all()
                joined = self._whole(connection, found, self._clock())
                if joined:
                    return joined[0]
            if limit is not None:
                waiting = connection.execute(_count("queued").where(OperationRow.priority >= priority)).scalar_one()
                if waiting >= limit:
                    raise QueueFull(waiting)
            connection.execute(self._database.insert(OperationRow).values(columns_of(new)))
            return new

    def lease(
        self,
        owner: str,
        seconds: float,
        kinds: Sequence[str] | None = None,
        devices: Sequence[str] | None = None,
    ) -> Operation | None:
        """Takes the next operation for `seconds`: the largest priority, then the oldest. None where nothing waits.

        kinds, devices: takes only these, and what is for any device; None: all. Operations whose lease ran out come
        back first: to the queue, or to `failed` after MAX_ATTEMPTS leases, or to `cancelled` where that was asked for.
        """
        now = self._clock()
        # Idle workers ask often; this read keeps them from taking SQLite's write lock each time.
        if not self._database.rows(
            select(OperationRow.id).where(or_(_waiting(now, kinds, devices), _expired(now))).limit(1)
        ):
            return None
        with self._database.write() as connection:
            self._take_back(connection, _expired(now), now)
            following = select(OperationRow.id).where(_waiting(now, kinds, devices)).order_by(*_IN_TURN).limit(1)
            leased: dict[str, Any] = {
                "state": "running",
                "owner": owner,
                "token": OperationRow.token + 1,
                "attempt": OperationRow.attempt + 1,
                "lease_until": now + seconds,
                "started": now,
                "progress": "",
            }
            picked = following.with_for_update(skip_locked=True).scalar_subquery()
            taken = update(OperationRow).where(OperationRow.id == picked).values(leased)
            return next(iter(self._whole(connection, connection.execute(taken.returning(*COLUMNS)).all(), now)), None)

    def renew(self, id: str, owner: str, token: int, seconds: float) -> Operation | None:
        """Holds the lease for `seconds` from now. None: the lease is lost, drop the work. See `cancel_requested`."""
        return self._write(id, owner, token, {"lease_until": self._clock() + seconds})

    def progress(self, id: str, owner: str, token: int, progress: str) -> Operation | None:
        """Replaces the progress text. None: the lease is lost, drop the work. See `cancel_requested`."""
        return self._write(id, owner, token, {"progress": storable(progress)})

    def waiting_devices(self, kinds: Sequence[str], known: Sequence[str], limit: int = 16) -> dict[str, str]:
        """Classes of devices other than the known ones that something waits for, with the payload of one operation
        each."""
        device = OperationRow.device_key
        others = and_(_waiting(self._clock(), kinds, None), device.is_not(None), device.not_in(known))
        chosen = select(OperationRow.device_key, func.min(OperationRow.payload)).where(others)
        rows = self._database.rows(chosen.group_by(OperationRow.device_key).limit(limit))
        return {str(device_key): payload for device_key, payload in rows}

    def abandon(self, owner: str) -> list[Operation]:
        """Takes back what a worker held that is known to be dead, as if its leases had run out. Returns it as it was.

        Nobody else may be known by that name.
        """
        now = self._clock()
        held = and_(OperationRow.state == "running", OperationRow.owner == owner)
        with self._database.write() as connection:
            return self._take_back(connection, held, now)

    def finish(
        self,
        id: str,
        owner: str,
        token: int,
        *,
        result: str | None = None,
        error: str | None = None,
        cancelled: bool = False,
    ) -> bool:
        """Ends the operation as done (`result`), failed (`error`) or cancelled: exactly one of them.

        False: the lease is lost, nothing was written.
        """
        if (result is not None) + (error is not None) + cancelled != 1:
            raise ValueError("finish takes exactly one of result, error and cancelled")
        if result is not None:
            ending = Ending("done", result=storable(result))
        elif error is not None:
            ending = Ending("failed", error=storable(error))
        else:
            ending = Ending("cancelled")
        now = self._clock()
        with self._database.write() as connection:
            held = self._held(connection, id, owner, token, {"lease_until": 0.0, **_ended(ending, now)})
            if held is not None:
                settle(connection, {id: ending}, now)
        return held is not None

    def release(self, id: str, owner: str, token: int) -> bool:
        """Gives a leased operation back at once, as a worker does that shuts down; not counted as an attempt."""
        values = {"state": "queued", "owner": "", "lease_until": 0.0, "attempt": OperationRow.attempt - 1}
        return self._write(id, owner, token, values) is not None

    def cancel(self, id: str) -> Operation | None:
        """Cancels a queued operation; asks the worker of a running one to stop. Ended ones stay as they are.

        Later equal requests start anew instead of joining. None for an unknown id.
        """
        now = self._clock()
        with self._database.write() as connection:
            ended = withdraw(connection, OperationRow.id == id, now)
            settle(connection, dict.fromkeys(ended, Ending("cancelled")), now)
            return next(
                iter(read_operations(connection.execute(select(*COLUMNS).where(OperationRow.id == id)).all())), None
            )

    def operation(self, id: str) -> Operation | None:
        """The operation as it stands now."""
        return next(iter(read_operations(self._database.rows(select(*COLUMNS).where(OperationRow.id == id)))), None)

    def states(self, ids: Collection[str]) -> dict[str, str]:
        """The states of the operations among `ids` that exist."""
        statement = select(OperationRow.id, OperationRow.state).where(OperationRow.id.in_(ids))
        return {row.id: row.state for row in self._database.rows(statement)}

    def operations(self, states: Sequence[OperationState] = OPERATION_STATES, limit: int = 100) -> list[Operation]:
        """The newest operations in these states."""
        newest = (OperationRow.created.desc(), OperationRow.id)
        statement = select(*COLUMNS).where(OperationRow.state.in_(states)).order_by(*newest).limit(limit)
        return read_operations(self._database.rows(statement))

    def waiting(self, limit: int = 100) -> list[Operation]:
        """At most `limit` queued operations, in the order in which workers take them."""
        queued = select(*COLUMNS).where(OperationRow.state == "queued").order_by(*_IN_TURN)
        return read_operations(self._database.rows(queued.limit(limit)))

    def counts(self) -> dict[OperationState, int]:
        """How many operations are in each state."""
        counts: dict[OperationState, int] = dict.fromkeys(OPERATION_STATES, 0)
        for state in OPERATION_STATES:
            counts[state] = self._database.rows(_count(state))[0][0]
        return counts

    def newly_failed(self) -> list[str]:
        """Errors of operations that failed, whoever ended them: each error is returned once, to one of the processes
        that share the database."""
        failed = and_(OperationRow.state == "failed", OperationRow.counted.is_(False))
        if not self._database.rows(select(OperationRow.id).where(failed).limit(1)):
            return []
        with self._database.write() as connection:
            chosen = select(OperationRow.id).where(failed).order_by(OperationRow.id).with_for_update(skip_locked=True)
            taken = update(OperationRow).where(OperationRow.id.in_(chosen)).values(counted=True)
            return [error or "" for (error,) in connection.execute(taken.returning(OperationRow.error))]

    def forget(self, seconds: float) -> int:
        """Deletes operations that ended more than `seconds` ago; returns how many."""
        ended = and_(~_OPEN, OperationRow.finished < self._clock() - seconds)
        with self._database.write() as connection:
            return connection.execute(delete(OperationRow).where(ended)).rowcount

    def _write(self, id: str, owner: str, token: int, values: dict[str, Any]) -> Operation | None:
        with self._database.write() as connection:
            return self._held(connection, id, owner, token, values)

    @staticmethod
    def _held(connection: Connection, id: str, owner: str, token: int, values: dict[str, Any]) -> Operation | None:
        """Changes the operation if this lease holds it."""
        held = (OperationRow.owner == owner, OperationRow.token == token, OperationRow.state == "running")
        statement = update(OperationRow).where(OperationRow.id == id, *held).values(values).returning(*COLUMNS)
        return next(iter(read_operations(connection.execute(statement).all())), None)

    @staticmethod
    def _whole(connection: Connection, rows: Sequence[Row[Any]], now: float) -> list[Operation]:
        """The operations of rows. Damaged rows are deleted, so that they hold up nobody, and whoever waits for them
        gets a failure."""
        found = read_operations(rows)
        ids = {operation.id for operation in found}
        damaged = [row.id for row in rows if row.id not in ids]
        if damaged:
            known = [id for id in damaged if id is not None]
            settle(connection, dict.fromkeys(known, Ending("failed", error=DAMAGED)), now)
            nameless = OperationRow.id.is_(None)  # whatever a damaged file holds
            connection.execute(delete(OperationRow).where(or_(OperationRow.id.in_(known), nameless)))
        return found

    def _take_back(self, connection: Connection, which: ColumnElement[bool], now: float) -> list[Operation]:
        """Takes back operations whose worker is lost: each is queued again after a while, or ends. Returns them as they
        were before."""
        chosen = select(*COLUMNS).where(which).order_by(OperationRow.id).with_for_update(skip_locked=True)
        lost = self._whole(connection, connection.execute(chosen).all(), now)
        endings: dict[str, Ending] = {}
        for operation in lost:
            ending = _after_loss(operation)
            if ending is None:
                back_off = BACK_OFF_SECONDS[min(operation.attempt, len(BACK_OFF_SECONDS)) - 1]
                values = {
                    "state": "queued",
                    "owner": "",
                    "lease_until": 0.0,
                    "not_before": min(now, operation.lease_until) + back_off,
                }
            else:
                values, endings[operation.id] = _ended(ending, now), ending
                self._note(connection, operation, ending, now)
            connection.execute(update(OperationRow).where(OperationRow.id == operation.id).values(values))
        settle(connection, endings, now)
        return lost

    def _note(self, connection: Connection, operation: Operation, ending: Ending, now: float) -> None:
        """Notes an operation that was given up as a failed search: another one would cost as many workers."""
        request, conditions, had_s = operation.request_key, operation.conditions, operation.had_s
        if ending.error is not None and request is not None and conditions is not None and had_s is not None:
            failures.note(self._database, connection, request, conditions, had_s, Failure(ending.error, now))


def withdraw(connection: Connection, which: ColumnElement[bool], now: float) -> list[str]:
    """Cancels operations: queued ones end, running ones are asked to stop. Ids of those that ended.

    Their dedupe keys are taken away, so that later equal requests start anew.
    """
    some = update(OperationRow).where(which)
    queued = {"cancel_requested": True, "dedupe_key": None, **_ended(Ending("cancelled"), now)}
    ended = connection.execute(some.where(OperationRow.state == "queued").values(queued).returning(OperationRow.id))
    ids = [id for (id,) in ended]
    running = {"cancel_requested": True, "dedupe_key": None}
    connection.execute(some.where(OperationRow.state == "running").values(running))
    return ids


def _ended(ending: Ending, now: float) -> dict[str, Any]:
    return {"state": ending.state, "result": ending.result, "error": ending.error, "finished": now}


def _after_loss(lost: Operation) -> Ending | None:
    """How an operation ends whose worker fell silent; None: it is taken up again."""
    if lost.cancel_requested:
        return Ending("cancelled")
    if lost.attempt >= MAX_ATTEMPTS:
        error = f"given up: {lost.attempt} workers took it and were lost before they ended it, {lost.owner} last"
        return Ending("failed", error=error)
    return None


def _waiting(now: float, kinds: Sequence[str] | None, devices: Sequence[str] | None) -> Any:
    waiting = and_(OperationRow.state == "queued", OperationRow.not_before <= now)
    if kinds is not None:
        waiting = and_(waiting, OperationRow.kind.in_(kinds))
    if devices is not None:
        waiting = and_(waiting, or_(OperationRow.device_key.is_(None), OperationRow.device_key.in_(devices)))
    return waiting


def _expired(now: float) -> Any:
    return and_(OperationRow.state == "running", OperationRow.lease_until < now)


def _count(state: OperationState) -> Any:
    return select(func.count()).select_from(OperationRow).where(OperationRow.state == state)
