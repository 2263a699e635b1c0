"""Lists of plans that people browse: pages of them, filtered, and the entry of one plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, exists, or_, select, tuple_

from fusion_ir.records import Plan
from tuning_db.checks import checksum, fitting, miss
from tuning_db.engine import Database
from tuning_db.graphs import blanks
from tuning_db.models import DeviceRow, GraphRow, PlanRow, RequestRow
from tuning_db.page_tokens import Page, Position, check_limit
from tuning_db.states import PLAN_STATES, PlanState


@dataclass(frozen=True, slots=True)
class PlanFilter:
    """The filter of a list of plans; a field of None lets all plans through.

    device: class key, name, or target ("cpu"). op: one that the graph has. family: one that a step has. tenant: one
    whose requests the plan answers. graph: its key. superseded: also plans that answer no request any more.
    """

    device: str | None = None
    op: str | None = None
    family: str | None = None
    tenant: str | None = None
    graph: str | None = None
    superseded: bool = False


ALL_PLANS = PlanFilter()


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A line of a list. Times in us as in `Plan`; `created` and `last_hit` in seconds since 1970.

    `state`, `hits` and `last_hit` come from the requests that the plan answers (the best state, the sum, the latest);
    state is None where it answers none. cut_short: why the searches for all of them ended early. Hits are counts as
    last written, up to a second old.
    """

    plan_key: str
    graph_key: str
    device_key: str
    target: str
    device: str
    numerics: str
    time_us: float | None
    spread: float | None
    unfused_us: float | None
    lower_bound_us: float
    copy_us: float | None
    search_gap: float | None
    steps: int
    families: tuple[str, ...]
    dtypes: tuple[str, ...]
    created: float
    state: PlanState | None
    cut_short: str | None
    hits: int
    last_hit: float | None

    @property
    def speed_up(self) -> float | None:
        """Unfused time over the plan's time."""
        return self.unfused_us / self.time_us if self.unfused_us and self.time_us else None


_LISTED = (
    "graph_key", "device_key", "numerics", "time_us", "spread", "unfused_us", "lower_bound_us", "copy_us", "search_gap",
    "steps", "families", "dtypes",
)  # fmt: skip
_COPIED = (
    *(PlanRow.__table__.c[name] for name in ("plan_key", "created", "checksum")),
    *(DeviceRow.__table__.c[name] for name in ("target", "name")),
)
_ANSWERED = tuple(RequestRow.__table__.c[name] for name in ("plan_key", "state", "cut_short", "hits", "last_hit"))
_SUMMARY: Select[Any] = select(
    *_COPIED,
    *(PlanRow.__table__.c[name] for name in _LISTED),
).join(DeviceRow, DeviceRow.class_key == PlanRow.device_key)


def summary(database: Database, plan_key: str) -> PlanSummary | None:
    """The line that lists show of one plan, superseded ones included."""
    rows = database.cached("plans", plan_key, _SUMMARY.where(PlanRow.plan_key == plan_key))
    return next(iter(_summaries(database, rows, None)), None)


def page(database: Database, selected: PlanFilter, page_token: str | None, limit: int) -> Page[PlanSummary]:
    """A page of plans, the newest first. Raises ValueError for a damaged page token or one of another filter."""
    statement = _SUMMARY.where(*_conditions(selected)).order_by(PlanRow.created.desc(), PlanRow.plan_key.desc())
    if page_token is not None:
        position = Position.of_token(page_token, selected)
        after = tuple_(bindparam(None, position.created), bindparam(None, position.key))
        statement = statement.where(tuple_(PlanRow.created, PlanRow.plan_key) < after)
    rows = database.cached("plans", "list", statement.limit(check_limit(limit) + 1))
    more = len(rows) > limit
    shown = rows[:limit]
    token = Position(shown[-1].created, shown[-1].plan_key).token(selected) if more else None
    return Page(_summaries(database, shown, selected.tenant), token)


def listed_columns(plan_key: str, plan: Plan) -> dict[str, Any]:
    """The columns that lists show, with their checksum."""
    row: dict[str, Any] = {
        "graph_key": plan.graph_key,
        "device_key": plan.device.class_key,
        "numerics": plan.numerics,
        "time_us": plan.time_us,
        "spread": plan.spread,
        "unfused_us": plan.unfused_us,
        "lower_bound_us": plan.lower_bound_us,
        "copy_us": plan.copy_us,
        "search_gap": plan.search_gap,
        "steps": len(plan.steps),
        "families": blanks({step.family for step in plan.steps}),
        "dtypes": blanks({output.dtype for output in plan.outputs}),
    }
    return row | {"checksum": checksum(plan_key, *(row[name] for name in _LISTED))}


def _conditions(selected: PlanFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if selected.device is not None:
        columns = (DeviceRow.class_key, DeviceRow.name, DeviceRow.target)
        conditions.append(or_(*(column == selected.device for column in columns)))
    if selected.op is not None:
        uses = GraphRow.ops.contains(f" {selected.op} ", autoescape=True)
        conditions.append(exists().where(GraphRow.key == PlanRow.graph_key, uses))
    if selected.family is not None:
        conditions.append(PlanRow.families.contains(f" {selected.family} ", autoescape=True))
    if selected.graph is not None:
        conditions.append(PlanRow.graph_key == selected.graph)
    answers = exists().where(RequestRow.plan_key == PlanRow.plan_key)
    if selected.tenant is not None:
        conditions.append(answers.where(RequestRow.tenant == selected.tenant))
    elif not selected.superseded:
        conditions.append(answers)
    return conditions


def _summaries(database: Database, rows: Sequence[Row[Any]], tenant: str | None) -> list[PlanSummary]:
    requests: Select[Any] = select(*_ANSWERED).where(RequestRow.plan_key.in_([row.plan_key for row in rows]))
    if tenant is not None:
        requests = requests.where(RequestRow.tenant == tenant)
    answered: dict[str, list[tuple[str, str | None, int, float | None]]] = {}
    pointers: list[Row[Any]] = fitting(_ANSWERED, database.cached("requests", "list", requests))
    for row in pointers:
        answered.setdefault(row.plan_key, []).append((row.state, row.cut_short, row.hits, row.last_hit))
    shown: list[PlanSummary] = []
    for row in fitting(_COPIED, rows):
        listed: dict[str, Any] = dict(zip(_LISTED, row[-len(_LISTED) :], strict=True))
        if checksum(row.plan_key, *listed.values()) != row.checksum:
            miss("plans", row.plan_key, "checksum of the listed columns")
            continue
        of_plan = answered.get(row.plan_key, [])
        states = {state for state, _, _, _ in of_plan}
        ends = [cut_short for _, cut_short, _, _ in of_plan]
        listed |= {"families": tuple(row.families.split()), "dtypes": tuple(row.dtypes.split())}
        shown.append(
            PlanSummary(
                **listed,
                plan_key=row.plan_key,
                target=row.target,
                device=row.name,
                created=row.created,
                state=next((state for state in PLAN_STATES if state in states), None),
                cut_short=None if None in ends else next(iter(ends), None),
                hits=sum(hits for _, _, hits, _ in of_plan),
                last_hit=max((at for _, _, _, at in of_plan if at is not None), default=None),
            )
        )
    return shown
