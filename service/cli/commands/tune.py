"""`fuseplan tune`: plans of graphs, from the database or by searches."""

import math
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from codegen.devices.ceilings import MEASURING
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.core.named import NamedGraph
from fusion_ir.formats.json.wire import to_wire
from fusion_ir.records import Numerics
from scheduler.budget import Budget
from service.cli.answer import Answer, answer_json
from service.cli.errors import bad_input
from service.cli.graph_argument import read_graph
from service.cli.graph_folders import graph_files
from service.cli.interrupts import Interrupts
from service.cli.options import (
    Again,
    Cache,
    Db,
    Format,
    Graphs,
    Json,
    Memory,
    NumericsClass,
    Seconds,
    Server,
    Shapes,
    Target,
)
from service.cli.plan_view import KEY_DIGITS, plan_view
from service.cli.sampler_option import Sampler
from service.cli.terminal import out, print_json, search_progress, show
from service.planning.planner import NOTHING_TIMED, PlanAnswer, plain_hit, plan_graph
from service.settings import Settings, load
from service.wording.naming import Naming
from tuning_db.reading.sqlite_hits import SqliteHits

if TYPE_CHECKING:
    from service.cli.server_client import Remote
    from tuning_db.store import Store


def tune(
    graphs: Graphs,
    target: Target = None,
    seconds: Seconds = None,
    numerics: NumericsClass = "reassociate",
    memory: Memory = None,
    sampler: Sampler = None,
    db: Db = None,
    cache: Cache = None,
    server: Server = None,
    format_: Format = None,
    shapes: Shapes = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """Find the plans of graphs: from the database where they are there, else by a search for each.

    With several graphs, or a folder, a line for each as it ends, and what they had in common. Ctrl-C ends a search: the
    best plan so far is stored and printed, and with one graph the exit code is 0. A second Ctrl-C, or one before the
    search began, ends the command without a plan: 130. --continue goes on where a search was cut short, or ended: the
    stored plan and what it finds are timed in the same rounds, and the faster one is kept, with its times of now.
    """
    settings = load({"target": target, "db": db, "cache": cache})
    budget = search_budget(settings, seconds, memory, sampler)
    several = len(graphs) > 1 or Path(graphs[0]).is_dir()
    if several and shapes is not None:
        raise bad_input("--shapes: goes with one graph, which it completes")
    if again and server is not None:
        raise bad_input("--continue: goes without --server; a server searches again for a request of more --seconds")
    if again and not budget.seconds:
        raise bad_input("--continue: expected --seconds above 0, got 0")
    named = None if several else read_graph(graphs[0], format_, shapes)
    if named is not None and server is None and not again:
        answer = _found(named, settings, budget, numerics)
        if answer is not None:
            _print(answer, Naming.of_graph(named), json)
            return
    with ExitStack() as stack:
        interrupts = Interrupts()
        if server is not None:
            from service.cli.server_client import Remote  # noqa: PLC0415  an HTTP client, which others need not load

            remote = stack.enter_context(Remote(server))
            segments_of = None
            asked = {"target": target, "budget": budget, "numerics": numerics, "sampler": sampler}
            ask = partial(tune_remotely, remote=remote, **asked)
        else:
            from tuning_db.store import Store  # noqa: PLC0415  all that it stores with, which a hit does without

            store = stack.enter_context(Store(settings.db))
            segments_of = store.segments.of
            here = partial(tune_here, store=store, settings=settings, budget=budget, numerics=numerics, again=again)
            ask = partial(here, interrupts=interrupts, silent=several)
        if several or server is None:
            stack.enter_context(interrupts)
        if named is not None:
            _print(ask(named), Naming.of_graph(named), json)
            return
        from service.cli.tune_many import tune_many  # noqa: PLC0415  the same

        tune_many(graph_files(graphs), format_, ask, segments_of, interrupts, json=json)


def _found(named: NamedGraph, settings: Settings, budget: Budget, numerics: Numerics) -> Answer | None:
    """The stored plan where all that is left to do is to show it; None where `tune_here` has to look."""
    hits = SqliteHits.opened(settings.db)
    if hits is None:
        return None
    with hits, search_progress(budget.seconds) as progress:
        cache = ObjectCache(settings.cache, hits.seal)
        found = plain_hit(named, settings.target, budget, hits, cache, numerics=numerics, tell=progress.tell)
    return None if found is None else _answer(found, settings, hits.place)


def _answer(found: PlanAnswer, settings: Settings, place: str) -> Answer:
    told = {"cut_short": found.cut_short, "continued": found.continued}
    return Answer(found.plan, settings.target, found.state, found.cache, place, **told)


def _print(answer: Answer, naming: Naming, json: bool) -> None:
    if json:
        print_json(answer_json(answer))
        return
    show(plan_view(answer.plan, answer.state, naming), Padding(_whereabouts(answer), (0, 0, 0, 1)))
    if answer.address:  # never broken into lines: it would lead nowhere
        out().print(Text.assemble((" page: ", "dim"), answer.address), soft_wrap=True)


def search_budget(
    settings: Settings, seconds: float | None, memory_bytes: int | None = None, sampler: str | None = None
) -> Budget:
    """The seconds asked for, or the default, the limit of memory, and the sampler asked for, or the first of those in
    the settings. Raises CommandError for what is no time."""
    chosen = settings.default_seconds if seconds is None else seconds
    if not math.isfinite(chosen) or not 0 <= chosen <= settings.max_seconds:
        raise bad_input(
            f"--seconds: expected a number from 0 (nothing is timed) to {settings.max_seconds:g}, got {chosen}"
        )
    return Budget(chosen, memory_bytes=memory_bytes, sampler=sampler or settings.sampler_names[0])


def tune_here(
    named: NamedGraph,
    store: "Store",
    settings: Settings,
    budget: Budget,
    numerics: Numerics = "reassociate",
    interrupts: Interrupts | None = None,
    *,
    again: bool = False,
    silent: bool = False,
) -> Answer:
    """Plans in this process, on this machine. again: see `plan_graph`. silent: where a line for each graph follows,
    none says that a search begins."""
    cache = ObjectCache(settings.cache, store.seal())
    with search_progress(budget.seconds) as progress:
        told = interrupts.watching(progress.on_search) if interrupts else progress.on_search

        def tell(text: str) -> None:
            if text == MEASURING or not silent:
                progress.tell(text)

        asked = {"numerics": numerics, "again": again, "tell": tell}
        found = plan_graph(named, settings.target, budget, store, cache, told, **asked)
    return _answer(found, settings, store.place)


def tune_remotely(
    named: NamedGraph,
    remote: "Remote",
    target: str | None,
    budget: Budget,
    numerics: Numerics,
    sampler: str | None = None,
) -> Answer:
    """Asks a server. The graph was read here, so what is wrong with it is said with its place in the file."""
    body: dict[str, Any] = {"graph": to_wire(named), "seconds": budget.seconds, "numerics": numerics}
    if target:
        body["target"] = target
    if budget.memory_bytes is not None:
        body["memory_bytes"] = budget.memory_bytes
    if sampler is not None:
        body["sampler"] = sampler
    with search_progress(budget.seconds) as progress:
        found = remote.resolve(body, progress.show)
    address = remote.page(found.plan_key)
    told = {"cut_short": found.cut_short, "refining": found.refining}
    return Answer(found.plan, target or found.plan.device.target, found.state, found.cache, remote.url, address, **told)


def _whereabouts(answer: Answer) -> Text:
    key = answer.plan.plan_key[:KEY_DIGITS]
    was = "found in" if answer.cache == "hit" else "stored in"
    text = Text.assemble((f"{was} {_short(answer.kept)}; why it is so: ", "dim"), f"fuseplan explain {key}")
    if answer.continued is not None:
        text = Text.assemble((answer.continued.words, "bold"), "\n", text)
    if answer.cut_short == NOTHING_TIMED:
        on = "search with --seconds above 0" if answer.address is None else "ask with --seconds above 0"
        text.append_text(Text.assemble(("\nnothing was timed", "yellow"), f", as no seconds were given: {on}"))
    elif answer.cut_short:
        on = "go on with --continue" if answer.address is None else "ask with more --seconds for another one"
        more = "another one is being made" if answer.refining else on
        text.append_text(Text.assemble(("\nthe search was cut short", "yellow"), f": {answer.cut_short}; {more}"))
    elif answer.refining:
        text.append("\nanother search is being made")
    return text


def _short(place: str) -> str:
    """A path below the home directory as ~/..."""
    home = f"{Path.home()}/"
    return f"~/{place[len(home) :]}" if place.startswith(home) else place
