"""The best plan for a request: the hot path, and which of two plans stays.

A request is answered by the fastest plan among the answers to all requests for its graph, device, tenant, generator and
wire version whose numerics and temporaries it allows: one measured under the present conditions, else one measured
under others, else one predicted. Another search is due unless an earlier one makes it needless: one that might have
taken every plan allowed here, ended under the present conditions, and was not cut short, or had as many seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, Select, Text, and_, bindparam, case, func, select, update

from fusion_ir.records import NUMERICS, Plan
from tuning_db.checks import checksum, digest, miss
from tuning_db.engine import Database
from tuning_db.models import PlanRow, RequestRow
from tuning_db.requests import STATES, Conditions, RequestKey, Resolved, Searched, State

LEAST_GAIN = 0.02  # of a plan that replaces one that answers another request, or that was timed far more quietly
NOISE = 0.03  # of a time: by so much may anything seem faster than it can be
NOISY = 0.1  # spread of a time from which on it says little
MOST_NOISE = 0.5  # of a time, as far as it is believed
_UNKNOWN_US = 1e300
_MOST_BYTES = 2**63 - 1

_SCOPE = ("graph_key", "device_key", "tenant", "generator", "wire_version")
_ANSWER = ("plan_key", "state", "conditions", "takes_us", "looseness", "temporary_bytes")
_SEARCH = ("searched", "had_s", "cut_short")
_READ = ("key", "numerics", "memory_bytes", "checksum", *_SCOPE, *_ANSWER, *_SEARCH)
_ROWS = RequestRow.__table__.c
_NOW = bindparam("now", type_=Text)


@dataclass(frozen=True, slots=True)
class Answer:
    """A row that verifies: a request, the plan that answers it, and the last search for it."""

    request: RequestKey
    plan_key: str
    state: State
    conditions: str
    takes_us: float | None
    looseness: int
    temporary_bytes: int
    searched: str
    had_s: float | None
    cut_short: str | None

    def is_current(self, now: str | None) -> bool:
        """Whether the plan's time was measured under the conditions `now`; None: under any."""
        return self.state == "measured" and now in (None, self.conditions)

    def place(self, request: RequestKey, now: str | None) -> tuple[Any, ...]:
        """A sort key: the smaller, the better this answers `request`."""
        kind = 0 if self.is_current(now) else 2 if self.state == "predicted" else 1
        time = _UNKNOWN_US if self.takes_us is None else self.takes_us
        return kind, time, self.request != request, self.request.digest

    def settles(self, request: RequestKey, now: str | None, seconds: float) -> bool:
        """Whether, after the last search for this row, a search for `request` that has `seconds` would find no better
        plan."""
        same = self.request == request or (
            self.request.covers(request) and request.admits(self.looseness, self.temporary_bytes)
        )
        ended = self.searched != "" and now in (None, self.searched)
        return same and ended and (self.had_s is None or seconds <= self.had_s)


def _place() -> Any:
    """`Answer.place` as SQL: an error in it costs speed alone, as the rows are ranked again."""
    allowed = and_(
        _ROWS.state != "failed",
        _ROWS.looseness <= bindparam("loosest", type_=BigInteger),
        _ROWS.temporary_bytes <= bindparam("bytes", type_=BigInteger),
    )
    current = and_(_ROWS.state == "measured", _ROWS.conditions == func.coalesce(_NOW, _ROWS.conditions))
    kind = case((~allowed, 3), (current, 0), (_ROWS.state == "predicted", 2), else_=1)
    return (
        kind,
        func.coalesce(_ROWS.takes_us, _UNKNOWN_US),
        case((_ROWS.key == bindparam("key"), 0), else_=1),
        _ROWS.key,
    )


_SAME = and_(*(_ROWS[name] == bindparam(name) for name in _SCOPE))
_SCOPED: Select[Any] = select(*(_ROWS[name] for name in _READ)).where(_SAME)
_RANKED = _SCOPED.add_columns(func.row_number().over(order_by=_place()).label("place")).subquery()
# All answers in scope, of which one row brings the body of its plan.
_RESOLVE: Select[Any] = select(*(_RANKED.c[name] for name in _READ), PlanRow.body).join(
    PlanRow, and_(PlanRow.plan_key == _RANKED.c.plan_key, _RANKED.c.place == 1), isouter=True
)
_BODY = select(PlanRow.body).where(PlanRow.plan_key == bindparam("plan"))
_POINTER = select(*(_ROWS[name] for name in (*_ANSWER, *_SEARCH))).where(_ROWS.key == bindparam("key"))
_ASKED: Select[Any] = select(*(_ROWS[name] for name in _READ)).where(_ROWS.plan_key == bindparam("plan"))


def resolve(database: Database, request: RequestKey, now: Conditions | None, seconds: float) -> Resolved | None:
    """The best answer to a request, by one SELECT. None where no stored plan may answer it; rows and bodies that do not
    verify are left out."""
    if request.numerics not in NUMERICS:
        return None
    current = None if now is None else now.json()
    most = _MOST_BYTES if request.memory_bytes is None else request.memory_bytes
    values = _scope(request) | {"key": request.digest, "now": current, "bytes": most}
    values["loosest"] = NUMERICS.index(request.numerics)
    rows = database.cached("requests", request.digest, _RESOLVE, values)
    bodies = {str(row.plan_key): row.body for row in rows if row.body is not None}
    answers = verified(rows)
    for best in _admitted(request, answers, current):
        body = bodies.get(best.plan_key)
        if body is None:  # the row that was to bring its body does not verify
            found = database.cached("plans", best.plan_key, _BODY, {"plan": best.plan_key})
            body = found[0].body if found else None
        if body is not None and digest(body) == best.plan_key:
            state: State = "stale" if best.state == "measured" and not best.is_current(current) else best.state
            due = not any(a.settles(request, current, seconds) for a in answers)
            cut_short = _cut_short(request, best, answers)
            return Resolved(best.request, best.plan_key, state, body, cut_short, due)
        miss("plans", best.plan_key, "body does not hash to its key")
    return None


def _admitted(request: RequestKey, answers: Sequence[Answer], now: str | None) -> list[Answer]:
    """The answers that the request admits, the best first."""
    allowed = [a for a in answers if a.state != "failed" and request.admits(a.looseness, a.temporary_bytes)]
    return sorted(allowed, key=lambda a: a.place(request, now))


def _cut_short(request: RequestKey, best: Answer, answers: Sequence[Answer]) -> str | None:
    """Why the last search for the request ended early, None where it did not; where there was none, why the one for the
    request that `best` is stored for did."""
    return next((a.cut_short for a in answers if a.request == request), best.cut_short)


def verified(rows: Sequence[Row[Any]]) -> list[Answer]:
    """The rows whose key and checksum are those of their columns."""
    found: list[Answer] = []
    for row in rows:
        asked = (row.graph_key, row.device_key, row.numerics, row.tenant, row.generator, row.wire_version)
        request = RequestKey(*asked, row.memory_bytes)
        values = {name: getattr(row, name) for name in (*_ANSWER, *_SEARCH)}
        if request.digest == row.key and row_checksum(row.key, values) == row.checksum and row.state in STATES:
            found.append(Answer(request, **values))
        else:
            miss("requests", str(row.key), "checksum")
    return found


def asked(database: Database, plan_key: str) -> list[RequestKey]:
    """The requests that a plan answers now, ordered by key. Rows that do not verify are left out."""
    rows = database.cached("requests", plan_key, _ASKED.order_by(_ROWS.key), {"plan": plan_key})
    return [answer.request for answer in verified(rows)]


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
    rows = select(_ROWS.key, *(_ROWS[name] for name in (*_ANSWER, *_SEARCH)))
    rows = rows.where(_ROWS.plan_key.in_(plan_keys), _ROWS.state != "failed").order_by(_ROWS.key)
    with database.write() as connection:
        found = connection.execute(rows.with_for_update()).all()
        for row in found:
            connection.execute(_changed(row.key, row, {"state": "failed", "searched": ""}))
    return len(found)


def _changed(key: str, row: Row[Any], changed: Mapping[str, Any]) -> Any:
    values: dict[str, Any] = {name: getattr(row, name) for name in (*_ANSWER, *_SEARCH)}
    values |= changed
    return update(RequestRow).where(RequestRow.key == key).values(**values, checksum=row_checksum(key, values))


def best_stored(connection: Connection, request: RequestKey, now: str) -> Answer | None:
    """The answer that `resolve` gives, in a transaction, by its row alone."""
    return next(iter(_admitted(request, verified(connection.execute(_SCOPED, _scope(request)).all()), now)), None)


def stays(
    stored: Answer, spread: float | None, request: RequestKey, plan: Plan, state: State, searched: Searched, now: str
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
    took, before = _UNKNOWN_US if took is None else took, _UNKNOWN_US if stored.takes_us is None else stored.takes_us
    is_current = was_timed and stored.is_current(now)
    if searched.cut_short is None and not is_current:
        return False
    noise, other = min(spread or 0.0, MOST_NOISE) if was_timed else 0.0, min(plan.spread or 0.0, MOST_NOISE)
    if is_current and stored.request == request and not other >= NOISY > noise:
        return took * (1.0 - max(other, NOISE)) > before * (1.0 + max(noise, NOISE))
    return took * (1.0 + other) >= before * (1.0 - max(noise, LEAST_GAIN))


def columns(request: RequestKey, stored: Answer | None, plan: Plan, state: State, searched: Searched) -> dict[str, Any]:
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
        values = {name: getattr(stored, name) for name in _ANSWER}
    had_s = None if searched.had_s is None else float(searched.had_s)
    values |= {"searched": "" if state == "stale" else conditions, "had_s": had_s, "cut_short": searched.cut_short}
    asked = {"key": request.digest, "numerics": request.numerics, "memory_bytes": request.memory_bytes}
    return asked | _scope(request) | values | {"checksum": row_checksum(request.digest, values)}


def _scope(request: RequestKey) -> dict[str, Any]:
    return {name: getattr(request, name) for name in _SCOPE}


def row_checksum(key: str, values: Mapping[str, Any]) -> str:
    """The checksum over the digest of a request, all columns of its answer, and those of the search for it."""
    return checksum(key, *(values[name] for name in (*_ANSWER, *_SEARCH)))
