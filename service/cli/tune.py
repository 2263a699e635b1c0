"""`fuseplan tune`: the plan of a graph, from the database or by a search."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.text import Text

from codegen.object_cache import ObjectCache
from fusion_ir.formats.json_wire import to_wire
from fusion_ir.named import NamedGraph
from fusion_ir.records import Numerics, Plan
from scheduler.bench import Budget
from service.cli.errors import bad_input
from service.cli.interrupts import Interrupts
from service.cli.options import Cache, Db, Format, Graph, Json, NumericsClass, Seconds, Server, Shapes, Target
from service.cli.plan_view import KEY_DIGITS, as_json, plan_view
from service.cli.remote import Remote
from service.cli.source import read_graph
from service.cli.terminal import print_json, search_progress, show
from service.planner import plan_graph
from service.settings import Settings, load
from tuning_db import Store


@dataclass(frozen=True)
class Answer:
    """A plan as both ways of asking give it. `kept`: where it is stored; `address`: of its page, from a server."""

    plan: Plan
    target: str
    state: str
    cache: str
    kept: str
    address: str | None = None


def tune(
    graph: Graph,
    target: Target = None,
    seconds: Seconds = None,
    numerics: NumericsClass = "reassociate",
    db: Db = None,
    cache: Cache = None,
    server: Server = None,
    format_: Format = None,
    shapes: Shapes = None,
    json: Json = False,
) -> None:
    """Find the plan of a graph: from the database if it is there, else by a search.

    Ctrl-C ends the search: the best plan so far is stored and printed, and the exit code is 0. A second Ctrl-C, or one
    before the search began, ends the command without a plan: 130.
    """
    settings = load({"target": target, "db": db, "cache": cache})
    budget = search_seconds(settings, seconds)
    named = read_graph(graph, format_, shapes)
    if server is not None:
        answer = tune_remotely(named, server, target, budget, numerics)
        _print(answer, json)
        return
    with Interrupts() as interrupts:
        with Store(settings.db) as store:
            answer = tune_here(named, store, settings, budget, numerics, interrupts)
        _print(answer, json)


def _print(answer: Answer, json: bool) -> None:
    if json:
        print_json(as_json(answer.plan, answer.target, answer.state, answer.cache))
        return
    show(plan_view(answer.plan, answer.state), Padding(_whereabouts(answer), (0, 0, 0, 1)))


def search_seconds(settings: Settings, seconds: float | None) -> float:
    """The seconds asked for, or the default. Raises CommandError for what is no time."""
    chosen = settings.default_seconds if seconds is None else seconds
    if not math.isfinite(chosen) or not 0 <= chosen <= settings.max_seconds:
        raise bad_input(
            f"--seconds: expected a number from 0 (nothing is timed) to {settings.max_seconds:g}, got {chosen}"
        )
    return chosen


def tune_here(
    named: NamedGraph,
    store: Store,
    settings: Settings,
    seconds: float,
    numerics: Numerics = "reassociate",
    interrupts: Interrupts | None = None,
) -> Answer:
    """Plans in this process, on this machine."""
    cache = ObjectCache(settings.cache)
    with search_progress(seconds) as progress:
        told = interrupts.watching(progress.on_search) if interrupts else progress.on_search
        found = plan_graph(named, settings.target, Budget(seconds), store, cache, told, numerics=numerics)
    return Answer(found.plan, settings.target, found.state, found.cache, store.place)


def tune_remotely(named: NamedGraph, server: str, target: str | None, seconds: float, numerics: Numerics) -> Answer:
    """Asks a server. The graph was read here, so what is wrong with it is said with its place in the file."""
    body: Mapping[str, Any] = {"graph": to_wire(named), "seconds": seconds, "numerics": numerics}
    if target:
        body = {**body, "target": target}
    with Remote(server) as remote, search_progress(seconds) as progress:
        found = remote.resolve(body, progress.show)
    address = remote.page(found.plan_key)
    return Answer(found.plan, target or found.plan.device.target, found.state, found.cache, remote.url, address)


def _whereabouts(answer: Answer) -> Text:
    key = answer.plan.plan_key[:KEY_DIGITS]
    was = "found in" if answer.cache == "hit" else "stored in"
    text = Text.assemble((f"{was} {_short(answer.kept)}; why it is so: ", "dim"), f"fuseplan explain {key}")
    if answer.address:
        text.append_text(Text.assemble(("\npage: ", "dim"), answer.address))
    return text


def _short(place: str) -> str:
    """A path below the home directory as ~/..."""
    home = f"{Path.home()}/"
    return f"~/{place[len(home) :]}" if place.startswith(home) else place
