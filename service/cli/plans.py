"""`fuseplan plans`: the plans in the database."""

import json as json_module
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from service.beginnings import told_apart
from service.cli.errors import bad_input
from service.cli.options import Db, Json, PlanKey
from service.cli.plan_view import plan_view
from service.cli.stored import find_key, load_plan
from service.cli.terminal import print_json, say
from service.cli.terminal import show as display
from service.formatting import age, duration, percent, ratio, times
from service.naming import UNNAMED, Naming
from service.settings import load
from tuning_db import PlanFilter, PlanSummary, Store

Device = Annotated[str | None, typer.Option(help="Only of this device: its key, its name or its target.")]
Op = Annotated[str | None, typer.Option(help="Only of graphs with this op.")]
Family = Annotated[str | None, typer.Option(help="Only with a kernel of this family.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many, the newest first.")]


def list_plans(
    device: Device = None, op: Op = None, family: Family = None, limit: Limit = 50, db: Db = None, json: Json = False
) -> None:
    """The newest plans, one line each."""
    with Store(load({"db": db}).db) as store:
        page = store.plans(PlanFilter(device=device, op=op, family=family), None, limit)
        place = store.place
    if json:
        print_json({"plans": [asdict(row) for row in page.items]})
        return
    if not page.items:
        say(f"There are no such plans in {place}.")
        return
    display(_table(page.items))
    if page.next_page_token is not None:
        say(f"There are more; these are the newest {limit} (--limit).")


def show(plan: PlanKey, db: Db = None, json: Json = False) -> None:
    """One plan: its kernels, times and bounds; --json prints the stored record and its key."""
    with Store(load({"db": db}).db) as store:
        key, found = load_plan(store, plan)
        summary, stored = store.summary(key), store.graph(found.graph_key)
    if json:
        print_json({"plan_key": key, **json_module.loads(found.model_dump_json())})
        return
    state = summary.state if summary is not None and summary.state is not None else "superseded"
    naming = Naming(stored.names.inputs, stored.names.outputs) if stored is not None else UNNAMED
    display(plan_view(found, state, naming))
    sys.stdout.write(f" key    {key}\n graph  {found.graph_key}\n")


def evict(plan: PlanKey, db: Db = None, json: Json = False) -> None:
    """Remove a plan, so that its graph is searched again when someone asks."""
    with Store(load({"db": db}).db) as store:
        key = find_key(store, plan)
        if not store.evict(key):
            raise bad_input(f"{plan}: there is no such plan in {store.place}")
    if json:
        print_json({"evicted": key})
    else:
        say(f"evicted {key}")


def _table(rows: Sequence[PlanSummary]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold")
    digits = told_apart([row.plan_key for row in rows])
    table.add_column("plan", no_wrap=True, min_width=digits)  # a key that is cut is no argument of other commands
    for column in ("device", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("kernels", "time", "unfused", "speed-up", "of bound", "hits", "age"):
        table.add_column(column, justify="right", no_wrap=True)
    now = time.time()
    for row in rows:
        table.add_row(
            row.plan_key[:digits],
            f"{row.target}: {row.device}",
            "cut short" if row.state == "measured" and row.cut_short else row.state or "superseded",
            str(row.steps),
            duration(row.time_us),
            duration(row.unfused_us),
            times(row.speed_up),
            percent(ratio(row.lower_bound_us, row.time_us)),
            str(row.hits),
            age(row.created, now),
        )
    return table
