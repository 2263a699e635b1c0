"""Bodies of plans, immutable and named by their sha256: stored as the answer to a request, read, evicted."""

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, select

from fusion_ir.records import NUMERICS, Plan
from tuning_db import answers, content
from tuning_db.checks import digest, miss
from tuning_db.devices import put_device
from tuning_db.engine import Database
from tuning_db.models import BinaryRow, FailureRow, GraphRow, PlanRow, RefusalRow, RequestRow, SourceRow
from tuning_db.plan_lists import listed_columns
from tuning_db.requests import Conditions, RequestKey, Searched
from tuning_db.states import PLAN_STATES, PlanState

_BODY = select(PlanRow.body).where(PlanRow.plan_key == bindparam("key"))


def store_plan(
    database: Database,
    request: RequestKey,
    plan: Plan,
    state: PlanState,
    binaries: Mapping[str, bytes],
    sources: Mapping[str, str],
    searched: Searched,
    *,
    only_better: bool,
) -> str:
    """Stores a plan with what it needs, makes it the answer to `request`, and returns the answer's key.

    only_better: where the best stored plan for the request stays (`answers.stays`), that is the answer, the new one is
    not kept, and the search is noted. Raises ValueError where the plan answers another request, its graph is not
    stored, content does not hash to its key, or a step's binary is neither given nor stored.
    """
    _check_answers(request, plan, state)
    content.check_digests(binaries, sources)
    body = plan.model_dump_json().encode()
    plan_key = digest(body)
    with database.write() as connection:
        # An eviction at the same time could take a binary between the check and the link.
        database.serialize(connection, "fuseplan plans")
        if not connection.execute(select(exists().where(GraphRow.key == plan.graph_key))).scalar():
            raise ValueError(f"graph {plan.graph_key} is not stored: put_graph comes first")
        put_device(database, connection, plan.device)
        now = Conditions.of_plan(plan).json()
        stored = answers.best_stored(connection, request, now) if only_better else None
        if stored is not None and stored.plan_key != plan_key and _verifies(connection, stored.plan_key):
            spread = connection.execute(select(PlanRow.spread).where(PlanRow.plan_key == stored.plan_key)).scalar()
            if answers.stays(stored, spread, request, plan, state, searched, now):
                _point(database, connection, answers.columns(request, stored, plan, state, searched))
                return stored.plan_key
        content.put_content(database, connection, binaries, sources)
        row = {"plan_key": plan_key, "body": body} | listed_columns(plan_key, plan)
        insert = database.insert(PlanRow).values(**row, created=time.time())
        connection.execute(insert.on_conflict_do_update(index_elements=["plan_key"], set_=row))
        _link(database, connection, plan_key, plan)
        _point(database, connection, answers.columns(request, None, plan, state, searched))
    return plan_key


def body(database: Database, plan_key: str) -> bytes | None:
    """The body of a plan, or None where there is none that verifies."""
    for (body,) in database.cached("plans", plan_key, _BODY, {"key": plan_key}):
        if digest(body) == plan_key:
            return body
        miss("plans", plan_key, "body does not hash to its key")
    return None


def evict(database: Database, plan_key: str) -> bool:
    """Removes a plan, the requests it answers, and the binaries and sources that no other plan needs."""
    with database.write() as connection:
        database.serialize(connection, "fuseplan plans")
        connection.execute(delete(RequestRow).where(RequestRow.plan_key == plan_key))
        connection.execute(delete(RefusalRow).where(RefusalRow.plan_key == plan_key))
        content.unlink(connection, plan_key)
        return connection.execute(delete(PlanRow).where(PlanRow.plan_key == plan_key)).rowcount > 0


def _check_answers(request: RequestKey, plan: Plan, state: PlanState) -> None:
    for what, asked, made in (
        ("graph", request.graph_key, plan.graph_key),
        ("device", request.device_key, plan.device.class_key),
        ("wire version", request.wire_version, plan.wire_version),
    ):
        if asked != made:
            raise ValueError(f"the plan answers another request: {what} {asked} was asked for, it is for {made}")
    if request.numerics not in NUMERICS[NUMERICS.index(plan.numerics) :]:
        raise ValueError(f"the plan's numerics {plan.numerics} are looser than {request.numerics}, which was asked for")
    if request.memory_bytes is not None and plan.temporary_bytes > request.memory_bytes:
        needed = f"{plan.temporary_bytes} bytes of temporaries"
        raise ValueError(f"the plan needs {needed}, and at most {request.memory_bytes} were asked for")
    if state not in PLAN_STATES:
        raise ValueError(f"state must be one of {', '.join(PLAN_STATES)}, not {state!r}")


def _verifies(connection: Connection, plan_key: str) -> bool:
    return digest(connection.execute(_BODY, {"key": plan_key}).scalar()) == plan_key


def _point(database: Database, connection: Connection, row: dict[str, Any]) -> None:
    """Writes what answers a request; its hits stay."""
    insert = database.insert(RequestRow).values(**row, hits=0, created=time.time())
    connection.execute(insert.on_conflict_do_update(index_elements=["key"], set_=row))
    connection.execute(delete(FailureRow).where(FailureRow.key == row["key"]))


def _link(database: Database, connection: Connection, plan_key: str, plan: Plan) -> None:
    binaries = {step.binary for step in plan.steps if step.binary}
    missing = binaries - content.stored(connection, BinaryRow, binaries)
    if missing:
        raise ValueError(f"the plan needs binary {min(missing)}, which is neither given nor stored")
    sources = content.stored(connection, SourceRow, {step.source for step in plan.steps if step.source})
    content.link(database, connection, plan_key, binaries, sources)
