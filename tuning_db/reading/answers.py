"""The best plan for a request: the hot path, and which of two plans stays.

A request is answered by the fastest plan among the answers to all requests for its graph, device, tenant, generator and
wire version whose numerics and temporaries it allows: one measured under the present conditions, else one measured
under others, else one predicted. Another search is due unless an earlier one makes it needless: one that might have
taken every plan allowed here, ended under the present conditions, and was not cut short, or had as many seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusion_ir.records import NUMERICS
from tuning_db.checks import checksum, digest
from tuning_db.reading.rows import Reader
from tuning_db.requests import Conditions, RequestKey, Resolved
from tuning_db.states import PLAN_STATES, PlanState

UNKNOWN_US = 1e300
_MOST_BYTES = 2**63 - 1

SCOPE = ("graph_key", "device_key", "tenant", "generator", "wire_version")
ANSWER = ("plan_key", "state", "conditions", "takes_us", "looseness", "temporary_bytes")
SEARCH = ("searched", "had_s", "cut_short")
READ = ("key", "numerics", "memory_bytes", "checksum", *SCOPE, *ANSWER, *SEARCH)  # the columns that `verified` takes

_PLAN_KEY = READ.index("plan_key")
_SELECT = "SELECT " + ", ".join(READ)
_IN_SCOPE = "FROM requests WHERE " + " AND ".join(f"{name} = :{name}" for name in SCOPE)
SCOPED = f"{_SELECT} {_IN_SCOPE}"
_ASKED = f"{_SELECT} FROM requests WHERE plan_key = :plan ORDER BY key"
_BODY = "SELECT body FROM plans WHERE plan_key = :plan"
# All answers in scope, of which the best brings the body of its plan. `place` is `Answer.place` as SQL: an error in it
# costs speed alone, as the rows are ranked again.
_RESOLVE = f"""
WITH ranked AS (
    {_SELECT}, row_number() OVER (
        ORDER BY
            CASE
                WHEN NOT (state <> 'failed' AND looseness <= :loosest AND temporary_bytes <= :bytes) THEN 3
                WHEN state = 'measured' AND conditions = coalesce(:now, conditions) THEN 0
                WHEN state = 'predicted' THEN 2
                ELSE 1
            END,
            coalesce(takes_us, {UNKNOWN_US}),
            CASE WHEN key = :key THEN 0 ELSE 1 END,
            key
    ) AS place
    {_IN_SCOPE}
)
SELECT {", ".join(f"ranked.{name}" for name in READ)}, plans.body
FROM ranked LEFT JOIN plans ON plans.plan_key = ranked.plan_key AND ranked.place = 1
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """A row that verifies: a request, the plan that answers it, and the last search for it."""

    request: RequestKey
    plan_key: str
    state: PlanState
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
        time = UNKNOWN_US if self.takes_us is None else self.takes_us
        return kind, time, self.request != request, self.request.digest

    def settles(self, request: RequestKey, now: str | None, seconds: float) -> bool:
        """Whether, after the last search for this row, a search for `request` that has `seconds` would find no better
        plan."""
        same = self.request == request or (
            self.request.covers(request) and request.admits(self.looseness, self.temporary_bytes)
        )
        ended = self.searched != "" and now in (None, self.searched)
        return same and ended and (self.had_s is None or seconds <= self.had_s)


def resolve(reader: Reader, request: RequestKey, now: Conditions | None, seconds: float) -> Resolved | None:
    """The best answer to a request, by one SELECT. None where no stored plan may answer it; rows and bodies that do not
    verify are left out."""
    if request.numerics not in NUMERICS:
        return None
    current = None if now is None else now.json()
    most = _MOST_BYTES if request.memory_bytes is None else request.memory_bytes
    values = scope(request) | {"key": request.digest, "now": current, "bytes": most}
    values["loosest"] = NUMERICS.index(request.numerics)
    rows = reader.cached("requests", request.digest, _RESOLVE, values)
    bodies = {row[_PLAN_KEY]: row[-1] for row in rows if row[-1] is not None}
    answers = verified((row[:-1] for row in rows), reader.miss)
    for best in admitted(request, answers, current):
        body = bodies.get(best.plan_key)
        if body is None:  # the row that was to bring its body does not verify
            found = reader.cached("plans", best.plan_key, _BODY, {"plan": best.plan_key})
            body = found[0][0] if found else None
        if body is not None and digest(body) == best.plan_key:
            state: PlanState = "stale" if best.state == "measured" and not best.is_current(current) else best.state
            due = not any(a.settles(request, current, seconds) for a in answers)
            last = next((a for a in answers if a.request == request), best)
            return Resolved(best.request, best.plan_key, state, body, last.cut_short, due, last.had_s)
        reader.miss("plans", best.plan_key, "body does not hash to its key")
    return None


def admitted(request: RequestKey, answers: Sequence[Answer], now: str | None) -> list[Answer]:
    """The answers that the request admits, the best first."""
    allowed = [a for a in answers if a.state != "failed" and request.admits(a.looseness, a.temporary_bytes)]
    return sorted(allowed, key=lambda a: a.place(request, now))


def verified(rows: Iterable[Sequence[Any]], miss: Callable[[str, str, str], None]) -> list[Answer]:
    """The rows of READ's columns whose key and checksum are those of the others. miss: is told of each other row."""
    found: list[Answer] = []
    for row in rows:
        read: dict[str, Any] = dict(zip(READ, row, strict=True))
        asked = ("graph_key", "device_key", "numerics", "tenant", "generator", "wire_version", "memory_bytes")
        request = RequestKey(*(read[name] for name in asked))
        values = {name: read[name] for name in (*ANSWER, *SEARCH)}
        whole = request.digest == read["key"] and row_checksum(read["key"], values) == read["checksum"]
        if whole and read["state"] in PLAN_STATES:
            found.append(Answer(request, **values))
        else:
            miss("requests", str(read["key"]), "checksum")
    return found


def asked(reader: Reader, plan_key: str) -> list[RequestKey]:
    """The requests that a plan answers now, ordered by key. Rows that do not verify are left out."""
    rows = reader.cached("requests", plan_key, _ASKED, {"plan": plan_key})
    return [answer.request for answer in verified(rows, reader.miss)]


def scope(request: RequestKey) -> dict[str, Any]:
    """Values for SCOPED: what all requests that may share an answer have in common."""
    return {name: getattr(request, name) for name in SCOPE}


def row_checksum(key: str, values: Mapping[str, Any]) -> str:
    """The checksum over the digest of a request, all columns of its answer, and those of the search for it."""
    return checksum(key, *(values[name] for name in (*ANSWER, *SEARCH)))
