"""Refusals: why clients could not use plans. One that says a plan is wrong ends its time as an answer."""

import time
from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import Connection, bindparam, delete, exists, select

from tuning_db import answers
from tuning_db.checks import checksum, miss, storable
from tuning_db.engine import Database
from tuning_db.models import PlanRow, RefusalRow

# Outputs disagree; it takes longer than what it is to replace; it cannot be loaded.
Why = Literal["wrong", "slower", "unusable"]
WHYS: tuple[Why, ...] = get_args(Why)
MOST_KEPT = 100  # of a plan, the newest


@dataclass(frozen=True, slots=True)
class Refusal:
    """A client's refusal of a plan. id: 32 hexadecimal digits of the client's, by which one that is sent again counts
    once. detail: in the client's words. took_us, instead_us: times of the plan and of what it is to replace, for
    "slower". created: seconds since 1970."""

    id: str
    why: Why
    detail: str = ""
    took_us: float | None = None
    instead_us: float | None = None
    created: float = 0.0


_COLUMNS = (
    RefusalRow.id,
    RefusalRow.why,
    RefusalRow.detail,
    RefusalRow.took_us,
    RefusalRow.instead_us,
    RefusalRow.created,
)
_OF_PLAN = (
    select(*_COLUMNS, RefusalRow.checksum)
    .where(RefusalRow.plan_key == bindparam("key"))
    .order_by(RefusalRow.created.desc(), RefusalRow.id)
)


class Refusals:
    """Refusals of plans, the newest of each."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, plan_key: str, refusal: Refusal) -> bool | None:
        """Stores a refusal at the present time, and where it says "wrong", marks every answer by the plan as failed, so
        that the next request searches again. False: it is stored already; None: there is no such plan."""
        with self._database.write() as connection:
            self._database.serialize(connection, "fuseplan plans")
            if not connection.execute(select(exists().where(PlanRow.plan_key == plan_key))).scalar():
                return None
            same = (RefusalRow.plan_key == plan_key) & (RefusalRow.id == refusal.id)
            if connection.execute(select(exists().where(same))).scalar():
                return False
            connection.execute(self._database.insert(RefusalRow).values(**_row(plan_key, refusal)))
            _prune(connection, plan_key)
            if refusal.why == "wrong":
                answers.fail(connection, [plan_key])
            return True

    def of(self, plan_key: str) -> list[Refusal]:
        """The refusals of a plan, the newest first. Rows that do not verify are left out."""
        found: list[Refusal] = []
        for row in self._database.cached("refusals", plan_key, _OF_PLAN, {"key": plan_key}):
            id_, why, detail, took_us, instead_us, created, check = row
            if checksum(plan_key, *row[:-1]) != check or why not in WHYS:
                miss("refusals", plan_key, "checksum")
            else:
                found.append(Refusal(id_, why, detail, took_us, instead_us, created))
        return found


def _row(plan_key: str, refusal: Refusal) -> dict[str, object]:
    values: dict[str, object] = {
        "id": refusal.id,
        "why": refusal.why,
        "detail": storable(refusal.detail),
        "took_us": None if refusal.took_us is None else float(refusal.took_us),
        "instead_us": None if refusal.instead_us is None else float(refusal.instead_us),
        "created": time.time(),
    }
    return values | {"plan_key": plan_key, "checksum": checksum(plan_key, *values.values())}


def _prune(connection: Connection, plan_key: str) -> None:
    """Deletes the oldest refusals of a plan beyond MOST_KEPT."""
    newest = select(RefusalRow.id).where(RefusalRow.plan_key == plan_key)
    newest = newest.order_by(RefusalRow.created.desc(), RefusalRow.id).offset(MOST_KEPT)
    beyond = [id_ for (id_,) in connection.execute(newest)]
    if beyond:
        connection.execute(delete(RefusalRow).where(RefusalRow.plan_key == plan_key, RefusalRow.id.in_(beyond)))
