"""`fuseplan plans`: the plans in the database."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from service.cli.errors import bad_input
from service.cli.fitted_tables import Column, Fitted, TableLayout
from service.cli.graph_or_plan import find_key
from service.cli.options import Db, Json, PlanKey
from service.cli.terminal import print_json, say, show
from service.planning.predictions import predicted_us
from service.settings import load
from service.wording.formatting import age, duration, expected, times
from service.wording.key_prefixes import told_apart
from service.wording.shares import share_of
from service.wording.states import shown_state
from tuning_db.plan_lists import PlanFilter, PlanSummary
from tuning_db.store import Store

Device = Annotated[str | None, typer.Option(help="Only of this device: its key, its name or its target.")]
Op = Annotated[str | None, typer.Option(help="Only of graphs with this op.")]
Family = Annotated[str | None, typer.Option(help="Only with a kernel of this family.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many, the newest first.")]


def list_plans(
    device: Device = None, op: Op = None, family: Family = None, limit: Limit = 50, db: Db = None, json: Json = False
) -> None:
    """The newest plans, one line each."""
    with Store(load({"db": db}).db) as store:
        page = store.plans.plans(PlanFilter(device=device, op=op, family=family), None, limit)
        place = store.place
        predicted = [] if json else [predicted_us(store, row) for row in page.items]
    if json:
        print_json({"plans": [asdict(row) for row in page.items]})
        return
    if not page.items:
        say(f"There are no such plans in {place}.")
        return
    show(_table(page.items, predicted))
    if page.next_page_token is not None:
        say(f"There are more; these are the newest {limit} (--limit).")


def evict(plan: PlanKey, db: Db = None, json: Json = False) -> None:
    """Remove a plan, so that its graph is searched again when someone asks."""
    with Store(load({"db": db}).db) as store:
        key = find_key(store, plan)
        if not store.plans.evict(key):
            raise bad_input(f"{plan}: there is no such plan in {store.place}")
    if json:
        print_json({"evicted": key})
    else:
        say(f"evicted {key}")


def _table(rows: Sequence[PlanSummary], predicted: Sequence[float | None]) -> Fitted:
    """A line for each plan; where it is narrow, devices by their targets."""
    columns = (
        Column("state"),
        Column("kernels", right=True, rank=5),
        Column("time", right=True),
        Column("unfused", right=True, rank=6),
        Column("speed-up", right=True, rank=3),
        Column("of bound", right=True, rank=1),
        Column("hits", right=True, rank=7),
        Column("age", right=True, rank=4),
    )
    now = time.time()
    cells = [
        (
            _state(row),
            str(row.steps),
            expected(row.time_us, predicted_us_),
            duration(row.unfused_us),
            times(row.speed_up),
            share_of(row.lower_bound_us, row.time_us, predicted_us_).short,
            str(row.hits),
            age(row.created, now),
        )
        for row, predicted_us_ in zip(rows, predicted, strict=True)
    ]
    digits = told_apart([row.plan_key for row in rows])
    keys = [row.plan_key[:digits] for row in rows]
    devices = [f"{row.target}: {row.device}" for row in rows]
    return Fitted(
        TableLayout((Column("plan"), Column("device", least=20), *columns), list(map(_row, keys, devices, cells))),
        TableLayout(
            (Column("plan"), Column("target", rank=2), *columns),
            list(map(_row, keys, (row.target for row in rows), cells)),
        ),
    )


def _row(key: str, device: str, cells: Sequence[str]) -> Sequence[str]:
    return (key, device, *cells)


def _state(row: PlanSummary) -> str:
    state = shown_state(row.state or "superseded", row.target, row.time_us, row.spread)
    return "cut short" if state in ("measured", "noisy") and row.cut_short else state
