"""`fuseplan plans show`: one stored plan, of a graph or by its key."""

import json as json_module
import sys
from dataclasses import asdict

from service.cli.options import Db, Format, Json, NumericsClass, Shapes, Target
from service.cli.plan_view import plan_view
from service.cli.stored_plan import Asked, Subject, stored_subject
from service.cli.terminal import print_json
from service.cli.terminal import show as display
from service.settings import load
from service.wording import refusals
from service.wording.naming import UNNAMED, Naming
from tuning_db.store import Store

MOST_REFUSALS = 10  # that are shown, the newest


def show(
    subject: Subject,
    target: Target = None,
    numerics: NumericsClass = "reassociate",
    db: Db = None,
    format_: Format = None,
    shapes: Shapes = None,
    json: Json = False,
) -> None:
    """One plan: its kernels, times and bounds, and why clients refused it; --json prints the stored record and its key.

    Of a graph, the plan that is stored for --target; nothing is searched.
    """
    settings = load({"target": target, "db": db})
    with Store(settings.db) as store:
        found = stored_subject(store, subject, Asked(settings.target, numerics, format_, shapes))
        summary = store.plans.summary(found.key)
        refused = store.refusals.of(found.key)
    if json:
        record = {"plan_key": found.key, **json_module.loads(found.plan.model_dump_json())}
        print_json(record | ({"refusals": [asdict(refusal) for refusal in refused]} if refused else {}))
        return
    state = summary.state if summary is not None and summary.state is not None else "superseded"
    display(plan_view(found.plan, state, UNNAMED if found.named is None else Naming.of_graph(found.named)))
    sys.stdout.write(f" key    {found.key}\n graph  {found.plan.graph_key}\n")
    if refused:
        sys.stdout.write(f" {refusals.summary(refused)}\n")
        for row in refusals.rows(refused)[:MOST_REFUSALS]:
            said = f": {row.text}" if row.text else ""
            sys.stdout.write(f"   {row.when}  {row.why}, {row.meaning}{said}\n")
