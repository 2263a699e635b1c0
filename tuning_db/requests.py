"""What was asked, and the plan that answers it: the hot path."""

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from sqlalchemy import Select, bindparam, select, update

from fusion_ir.records import WIRE_VERSION, Device, Plan
from tuning_db.checks import checksum, digest, miss
from tuning_db.engine import Database
from tuning_db.models import PlanRow, RequestRow

State = Literal["measured", "predicted", "stale", "failed"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class RequestKey:
    """Everything on which the correctness of an answer depends. A change in any part is another request: a miss.

    device_key: `Device.class_key`. numerics: the loosest class allowed. generator: version of the code generator,
    raised by the service when code made before must not run again. memory_bytes: of temporaries that the plan may need,
    None for any number.
    """

    graph_key: str
    device_key: str
    numerics: str = "reassociate"
    tenant: str = ""
    generator: str = "1"
    wire_version: int = WIRE_VERSION
    memory_bytes: int | None = None

    @cached_property
    def digest(self) -> str:
        """sha256 over all parts: the key of the row. Without a limit of memory it is what it was before there were
        any."""
        parts = (self.graph_key, self.device_key, self.numerics, self.tenant, self.generator, self.wire_version)
        return digest(json.dumps(parts if self.memory_bytes is None else (*parts, self.memory_bytes)))


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the truth of a measured time depends on, but no result: a change makes a measured plan `stale`."""

    driver: str
    toolchain: str
    version: str  # of Fuseplan

    def json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def of_device(device: Device, version: str) -> "Conditions":
        """As they are now, on the device at hand."""
        return Conditions(device.driver, device.toolchain, version)

    @staticmethod
    def of_plan(plan: Plan) -> "Conditions":
        """As they were when the plan was made."""
        return Conditions.of_device(plan.device, plan.version)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The answer to a request. `body` is the plan as JSON; its sha256 is `plan_key` (checked). `request`: what it is
    stored for, which may lack a limit of memory that it keeps."""

    request: RequestKey
    plan_key: str
    state: State
    body: bytes

    def plan(self) -> Plan:
        return Plan.model_validate_json(self.body)


_RESOLVE = (
    select(RequestRow.plan_key, RequestRow.state, RequestRow.conditions, RequestRow.checksum, PlanRow.body)
    .join(PlanRow, PlanRow.plan_key == RequestRow.plan_key)
    .where(RequestRow.key == bindparam("key"))
)
_POINTER = select(RequestRow.plan_key, RequestRow.conditions).where(RequestRow.key == bindparam("key"))
_ASKED: Select[Any] = (
    select(*RequestRow.__table__.c).where(RequestRow.plan_key == bindparam("plan")).order_by(RequestRow.key)
)


def resolve(database: Database, request: RequestKey, now: Conditions | None) -> Resolved | None:
    """One SELECT; of a request with a limit of memory a second one: the plan for any memory answers it, too, where it
    fits. None where nothing is stored, the plan failed its verification, or a checksum does not match."""
    found = _answer(database, request, now)
    if found is None and request.memory_bytes is not None:
        unlimited = _answer(database, replace(request, memory_bytes=None), now)
        if unlimited is not None and unlimited.plan().temporary_bytes <= request.memory_bytes:
            return unlimited
    return found


def _answer(database: Database, request: RequestKey, now: Conditions | None) -> Resolved | None:
    """What is stored for this very request."""
    rows = database.cached("requests", request.digest, _RESOLVE, {"key": request.digest})
    if not rows:
        return None
    plan_key, state, conditions, check, body = rows[0]
    if row_checksum(request.digest, plan_key, state, conditions) != check or state not in STATES:
        miss("requests", request.digest, "checksum")
        return None
    if digest(body) != plan_key:
        miss("plans", plan_key, "body does not hash to its key")
        return None
    if state == "failed":
        return None
    if state == "measured" and now is not None and now.json() != conditions:
        state = "stale"
    return Resolved(request, plan_key, state, body)


def asked(database: Database, plan_key: str) -> list[RequestKey]:
    """The requests that a plan answers now, in no particular order but always the same. Rows that do not verify are
    left out."""
    found: list[RequestKey] = []
    for row in database.cached("requests", plan_key, _ASKED, {"plan": plan_key}):
        parts = (row.graph_key, row.device_key, row.numerics, row.tenant, row.generator, row.wire_version)
        request = RequestKey(*parts, row.memory_bytes)
        if request.digest == row.key and row_checksum(row.key, plan_key, row.state, row.conditions) == row.checksum:
            found.append(request)
        else:
            miss("requests", row.key, "checksum")
    return found


def mark(database: Database, request: RequestKey, state: State, now: Conditions | None) -> bool:
    """Changes the state of a stored answer, and with `now` the conditions under which it was last verified.

    Returns False where the request has no answer. Example: a stale plan was timed again on the new driver ->
    `mark(request, "measured", now)`; its result was wrong -> `mark(request, "failed")`.
    """
    if state not in STATES:
        raise ValueError(f"state must be one of {', '.join(STATES)}, not {state!r}")
    with database.write() as connection:
        row = connection.execute(_POINTER.with_for_update(), {"key": request.digest}).first()
        if row is None:
            return False
        plan_key, conditions = row
        connection.execute(_changed(request.digest, plan_key, state, conditions if now is None else now.json()))
        return True


def mark_stale(database: Database, request_key: str, plan_key: str) -> None:
    """A reader found that the conditions changed; only where the same plan still answers, as measured."""
    with database.write() as connection:
        row = connection.execute(_POINTER.with_for_update(), {"key": request_key}).first()
        if row is not None and row.plan_key == plan_key:
            change = _changed(request_key, plan_key, "stale", row.conditions)
            connection.execute(change.where(RequestRow.state == "measured"))


def _changed(key: str, plan_key: str, state: State, conditions: str) -> Any:
    values = {"state": state, "conditions": conditions, "checksum": row_checksum(key, plan_key, state, conditions)}
    return update(RequestRow).where(RequestRow.key == key).values(values)


def row_checksum(key: str, plan_key: str, state: str, conditions: str) -> str:
    """Over the digest of the request and everything that its answer consists of."""
    return checksum(key, plan_key, state, conditions)
