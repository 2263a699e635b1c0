"""Changes to the answers of requests, and which of two plans stays."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, text, update

from fusion_ir.records import NUMERICS, Plan
from tuning_db.checks import miss
from tuning_db.engine import Database
from tuning_db.models import RequestRow
from tuning_db.noise import NOISE, NOISY
from tuning_db.reading.answers import (
    ANSWER,
    SCOPED,
    SEARCH,
    UNKNOWN_US,
    Answer,
    admitted,
    row_checksum,
    scope,
    verified,
)
from tuning_db.requests import Conditions, RequestKey, Searched
from tuning_db.states import PLAN_STATES, PlanState

LEAST_GAIN = 0.02  # of a plan that replaces one that answers another request, or that was timed far more quietly
MOST_NOISE = 0.5  # of a time, as far as it is believed

_ROWS = RequestRow.__table__.c
_POINTER = select(*(_ROWS[name] for name in (*ANSWER, *SEARCH))).where(_ROWS.key == bindparam("key"))
_SCOPED = text(SCOPED)


def mark(database: Database, request: RequestKey, state: PlanState, now: Conditions | None) -> bool:
    """Changes the state of a stored answer, and with `now` the conditions under which it was last verified.

    Returns False where the request has no answer. Example: a stale plan was timed again on the new driver ->
    `mark(request, "measured", now)`; its result was wrong -> `mark(request, "failed")`.
    """
    if state not in PLAN_STATES:
        raise ValueError(f"state must be one of {', '.join(PLAN_STATES)}, not {state!r}")
    with database.write() as connection:
        row = connection.execute(_POINTER.with_for_update(), {"key": request.digest}).first()
        if row is None:
            return False
        changed: dict[str, Any] = {"state": state}
        if now is not None:
            changed |= {"conditions": now.json(), "searched": now.json()}
        if state in ("stale", "failed"):
            changed["searched"] = ""
        connection.execute(_changed(request.digest, row, changed))
        return True


def mark_stale(database: Database, request_key: str, plan_key: str) -> None:
    """Marks an answer as stale, where a reader found that the conditions changed; only if the plan `plan_key` still
    answers the request, as measured."""
    with database.write() as connection:
        row = connection.execute(_POINTER.with_for_update(), {"key": request_key}).first()
        if row is not None and row.plan_key == plan_key and row.state == "measured":
            connection.execute(_changed(request_key, row, {"state": "stale", "searched": ""}))


def distrust(database: Database, plan_keys: Sequence[str]) -> int:
    """Marks the answers by plans of which a part is damaged as failed: these plans answer nothing until they are stored
    again. Returns how many answers that were."""
    with database.write() as connection:
        return fail(connection, plan_keys)


def fail(connection: Connection, plan_keys: Sequence[str]) -> int:
    """`distrust` in a transaction."""
    rows = select(_ROWS.key, *(_ROWS[name] for name in (*ANSWER, *SEARCH)))
    rows = rows.where(_ROWS.plan_key.in_(plan_keys), _ROWS.state != "failed").order_by(_ROWS.key)
    found = connection.execute(rows.with_for_update()).all()
    for row in found:
        connection.execute(_changed(row.key, row, {"state": "failed", "searched": ""}))
    return len(found)


def _changed(key: str, row: Row[Any], changed: Mapping[str, Any]) -> Any:
    values: dict[str, Any] = {name: getattr(row, name) for name in (*ANSWER, *SEARCH)}
    values |= changed
    return update(RequestRow).where(RequestRow.key == key).values(**values, checksum=row_checksum(key, values))


def best_stored(connection: Connection, request: RequestKey, now: str) -> Answer | None:
    """The answer that `resolve` gives, in a transaction, by its row alone."""
    return next(iter(admitted(request, verified(connection.execute(_SCOPED, scope(request)), miss), now)), None)


def stays(
    stored: Answer,
    spread: float | None,
    request: RequestKey,
    plan: Plan,
    state: PlanState,
    searched: Searched,
    now: str,
) -> bool:
    """Whether a stored plan stays the answer to `request`, although a search made the new one `plan`. spread: of the
    stored plan.

    A predicted plan replaces no measured one. A stored plan that answers this very request, measured under the present
    conditions, stays only where the new one is slower beyond the noise of both: otherwise a time taken in a lucky
    moment would stay for ever. Where the new one is noisy and the stored one is not, or where the stored one answers
    another request (whose answer it stays in any case), it stays unless the new one is faster beyond the noise of both.
    A stored plan that is predicted, or measured under other conditions, stays only where the search was cut short.
    """
    is_timed, was_timed = plan.time_us is not None and state == "measured", stored.state != "predicted"
    if is_timed != was_timed:
        return was_timed
    took = plan.time_us if is_timed else plan.predicted_us
    took, before = UNKNOWN_US if took is None else took, UNKNOWN_US if stored.takes_us is None else stored.takes_us
    is_current = was_timed and stored.is_current(now)
    if searched.cut_short is None and not is_current:
        return False
    noise, other = min(spread or 0.0, MOST_NOISE) if was_timed else 0.0, min(plan.spread or 0.0, MOST_NOISE)
    if is_current and stored.request == request and not other >= NOISY > noise:
        return took * (1.0 - max(other, NOISE)) > before * (1.0 + max(noise, NOISE))
    return took * (1.0 + other) >= before * (1.0 - max(noise, LEAST_GAIN))


def columns(
    request: RequestKey, stored: Answer | None, plan: Plan, state: PlanState, searched: Searched
) -> dict[str, Any]:
    """The row of a request for which a search made `plan`: it points to that plan, or to the answer `stored`, which
    stays."""
    conditions = Conditions.of_plan(plan).json()
    took = plan.predicted_us if plan.time_us is None else plan.time_us
    values: dict[str, Any] = {
        "plan_key": plan.plan_key,
        "state": state,
        "conditions": conditions,
        "takes_us": None if took is None else float(took),
        "looseness": NUMERICS.index(plan.numerics),
        "temporary_bytes": plan.temporary_bytes,
    }
    if stored is not None:
        values = {name: getattr(stored, name) for name in ANSWER}
    had_s = None if searched.had_s is None else float(searched.had_s)
    values |= {"searched": "" if state == "stale" else conditions, "had_s": had_s, "cut_short": searched.cut_short}
    asked = {"key": request.digest, "numerics": request.numerics, "memory_bytes": request.memory_bytes}
    return asked | scope(request) | values | {"checksum": row_checksum(request.digest, values)}
