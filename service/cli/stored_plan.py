"""GRAPH|PLAN_KEY arguments of commands that never search: a graph means the plan that is stored for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from fusion_ir.core.named import NamedGraph
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Numerics, Plan
from service.cli.device_targets import is_of_target
from service.cli.errors import CommandError, bad_input
from service.cli.graph_argument import read_graph
from service.cli.graph_or_plan import load_subject
from tuning_db.plan_lists import PlanFilter, PlanSummary
from tuning_db.requests import RequestKey
from tuning_db.store import Store

Subject = Annotated[
    str, typer.Argument(metavar="GRAPH|PLAN_KEY", help="A graph's file, or a plan's key or its beginning.")
]


MOST_PLANS = 1000  # of one graph that are looked at, the newest


@dataclass(frozen=True)
class Stored:
    """A plan, its key, and its graph, None where that is not stored any more; with the names of the file that was
    given, else with those under which it was stored last."""

    key: str
    plan: Plan
    named: NamedGraph | None


@dataclass(frozen=True)
class Asked:
    """Options that the plan of a graph is looked up with. target: as `--target` has it."""

    target: str
    numerics: Numerics
    format: str | None
    shapes: str | None


def stored_subject(store: Store, subject: str, asked: Asked) -> Stored:
    """The plan with a key, or the plan that answers a request for a graph; of several devices, that of the newest plan.

    Raises CommandError, also where none is stored.
    """
    found = load_subject(store, subject)
    if found is not None:
        stored = store.graphs.graph(found[1].graph_key)
        return Stored(*found, None if stored is None else stored.named())
    named = read_graph(subject, asked.format, asked.shapes)
    key = graph_key(named.graph)
    rows = store.plans.plans(PlanFilter(graph=key), None, MOST_PLANS).items
    arch = asked.target.partition(":")[2] if asked.target.startswith("emulator") else ""
    for device in dict.fromkeys(r.device_key for r in rows if is_of_target(asked.target, r.target, r.device)):
        answer = store.plans.answer(RequestKey(key, device, asked.numerics))
        if answer is not None and (not arch or answer.plan().device.arch == arch):
            return Stored(answer.plan_key, answer.plan(), named)
    raise _none(store, subject, asked, rows)


def _none(store: Store, subject: str, asked: Asked, rows: Sequence[PlanSummary]) -> CommandError:
    """The error where no plan answers: the command that makes one, and the devices and numerics of other plans."""
    others = sorted(
        {f"{row.device} ({row.target}, {row.numerics})" for row in rows if row.state not in (None, "failed")}
    )
    elsewhere = f"; there are plans for {', '.join(others)}" if others else ""
    more = "" if asked.numerics == "reassociate" else f" --numerics {asked.numerics}"
    return bad_input(
        f"{subject}: no plan of it for {asked.target} is in {store.place}: "
        f"`fuseplan tune {subject} --target {asked.target}{more}` makes one{elsewhere}"
    )
