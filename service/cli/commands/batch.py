"""`fuseplan batch`: many graphs for a running server, which works through them on all of its workers."""

import json as json_module
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fusion_ir.formats.json.wire import to_wire
from fusion_ir.records import Numerics
from service.api.batch_models import BatchModel, BatchProgress, BatchResult, BatchSummary, ItemEvent
from service.cli.batch_client import BatchRemote
from service.cli.errors import BAD_INPUT, CommandError, failed
from service.cli.fitted_tables import Column, Fitted, TableLayout
from service.cli.graph_argument import read_graph
from service.cli.graph_folders import graph_files
from service.cli.options import Format, Graphs, Json, Memory, Seconds, Target
from service.cli.plan_view import KEY_DIGITS
from service.cli.sampler_option import Sampler
from service.cli.terminal import err, phase, print_json, print_line, say
from service.cli.terminal import show as display
from service.settings import load
from service.wording.formatting import count
from service.wording.key_prefixes import told_apart

_MINUTE = len("2026-11-20T06:00")
BatchServer = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="The server; by default the one that the settings name.")
]
Id = Annotated[str, typer.Argument(metavar="BATCH", help="The batch's id, or the beginning of one.")]
Limit = Annotated[int, typer.Option(min=1, max=200, help="At most so many, the newest first.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="TEXT", help="The same key and graphs make one batch, however often.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Follow the batch to its end.")]
Errors = Annotated[bool, typer.Option("--errors", help="What failed or was cancelled, and why, instead.")]
BatchNumerics = Annotated[
    Numerics | None,
    typer.Option("--numerics", metavar="CLASS", help="Loosest rewrites to use: exact, reassociate or approximate."),
]


def submit(
    graphs: Graphs,
    server: BatchServer = None,
    target: Target = None,
    seconds: Seconds = None,
    numerics: BatchNumerics = None,
    memory: Memory = None,
    sampler: Sampler = None,
    format_: Format = None,
    key: Key = None,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """Submit graphs as a batch and print its id; each is known by the name of its file."""
    lines, unreadable = _lines(graph_files(graphs), format_)
    if not lines:
        raise CommandError("no graph could be read: nothing was submitted", BAD_INPUT)
    given = {"target": target, "seconds": seconds, "numerics": numerics, "memory_bytes": memory, "sampler": sampler}
    defaults = {name: value for name, value in given.items() if value is not None}
    with _remote(server) as remote:
        batch = remote.submit(lines, defaults, key)
        if json and not watch:
            print_json(batch.model_dump(mode="json"))
        elif not watch:
            print_line(batch.id)
            say(f"{_counts(batch)}; follow it with: fuseplan batch watch {batch.id}")
        else:
            say(f"batch {batch.id}")
            _follow(remote, batch.id, json)
    if unreadable:
        raise failed(f"left out, since they could not be read: {count(unreadable, 'graph')}")


def list_(server: BatchServer = None, limit: Limit = 20, json: Json = False) -> None:
    """The newest batches, one line each."""
    with _remote(server) as remote:
        page = remote.batches(limit)
    if json:
        print_json(page.model_dump(mode="json"))
    elif not page.batches:
        say(f"There are no batches at {remote.url}.")
    else:
        display(_table(page.batches))


def show(batch: Id, server: BatchServer = None, json: Json = False) -> None:
    """One batch: how far it is, what is being done, what its graphs have in common."""
    with _remote(server) as remote:
        found = remote.batch(batch)
    if json:
        print_json(found.model_dump(mode="json"))
        return
    print_line(_described(found))
    for item in found.running:
        print_line(f"  {item.custom_id}: {phase(item.progress)}")


def watch(batch: Id, server: BatchServer = None, json: Json = False) -> None:
    """Follow a batch to its end: a line for each item that ends. Exit code 1 where one failed or was cancelled."""
    with _remote(server) as remote:
        _follow(remote, batch, json)


def cancel(batch: Id, server: BatchServer = None, json: Json = False) -> None:
    """End what has not ended; plans that are there stay."""
    with _remote(server) as remote:
        found = remote.cancel(batch)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        print_line(_described(found))


def results(batch: Id, server: BatchServer = None, errors: Errors = False, json: Json = False) -> None:
    """The plans of a batch, or with --errors what has none; with --json as JSON lines."""
    with _remote(server) as remote:
        rows: Sequence[BaseModel] = remote.errors(batch) if errors else remote.results(batch)
        counts = remote.batch(batch).counts
    if json:
        for row in rows:
            print_line(row.model_dump_json(exclude_none=True))
    elif rows:
        display(_rows(rows, errors))
    wrong = counts.failed + counts.cancelled
    if wrong and not errors:
        say(f"{count(wrong, 'item')} without a plan: fuseplan batch results {batch} --errors")


def _remote(server: str | None) -> BatchRemote:
    settings = load()
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return BatchRemote(server or f"http://{host}:{settings.port}")


def _lines(names: Sequence[str], format_: str | None) -> tuple[list[Mapping[str, Any]], int]:
    """The lines to send, and how many files could not be read, which is said on stderr."""
    lines: list[Mapping[str, Any]] = []
    unreadable = 0
    for name in names:
        try:
            lines.append({"custom_id": name, "graph": to_wire(read_graph(name, format_))})
        except CommandError as error:
            unreadable += 1
            say(f"failed: {error}")
    return lines, unreadable


def _follow(remote: BatchRemote, id: str, json: bool) -> None:
    """Prints events until the batch ends. Raises CommandError unless every item has its plan."""
    with _bar() as bar:
        task = None if bar is None else bar.add_task("waiting", total=None)
        for event in remote.events(id):
            if json:
                print_line(event.model_dump_json())
            elif isinstance(event, ItemEvent):
                print_line(_ended(event))
            if isinstance(event, BatchProgress) and bar is not None and task is not None:
                ended = event.items - event.counts.queued - event.counts.running
                bar.update(task, description=_doing(event), total=event.items, completed=ended)
            if isinstance(event, BatchModel):
                end = event
                break
        else:
            end = remote.batch(id)
    if not json:
        say(_described(end))
    wrong = end.counts.failed + end.counts.cancelled
    if wrong:
        raise failed(f"{count(wrong, 'item')} of {end.items} without a plan: fuseplan batch results {id} --errors")


@contextmanager
def _bar() -> Iterator[Progress | None]:
    """A line of progress below what is printed, where a person watches."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    # Lines on stdout stand above the bar where both are on one terminal, and go their own way otherwise.
    with Progress(*columns, console=err(), transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        yield bar


def _ended(event: ItemEvent) -> str:
    if event.result is not None:
        key = event.result.plan_key[:KEY_DIGITS]
        return f"{event.custom_id}  {event.result.state}  {event.result.cache}  {key}"
    return f"{event.custom_id}  {event.state}  {event.error.detail if event.error else ''}"


def _doing(batch: BatchProgress) -> str:
    words = _counts(batch)
    if batch.running:
        first, more = batch.running[0], len(batch.running) - 1
        words += f"; {first.custom_id}: {phase(first.progress)}" + (f", and {more} more" if more else "")
    return words


def _described(batch: BatchModel) -> str:
    lines = [f"batch {batch.id}: {batch.state}, {_counts(batch)}", f"submitted {batch.created_at}"]
    if batch.finished_at is not None:
        lines[1] += f", ended {batch.finished_at}"
    shared = batch.segments
    lines.append(f"{count(shared.used, 'segment')} tried, {shared.distinct} of them distinct: {shared.shared} shared")
    return "\n".join(lines)


def _counts(batch: BatchSummary) -> str:
    """ "12 of 40 done, 1 failed, 2 running"."""
    counts = batch.counts
    others = {"failed": counts.failed, "cancelled": counts.cancelled, "running": counts.running}
    return f"{counts.done} of {batch.items} done" + "".join(f", {n} {what}" for what, n in others.items() if n)


def _table(batches: Sequence[BatchSummary]) -> Fitted:
    """A line for each batch; where it is narrow, how far it is in words, and when it was submitted to the minute."""
    numbers = [Column(name, right=True) for name in ("items", "done", "failed", "cancelled")]
    batch, state = Column("batch"), Column("state")
    wide = [
        (b.id, b.state, str(b.items), str(b.counts.done), str(b.counts.failed), str(b.counts.cancelled), b.created_at)
        for b in batches
    ]
    narrow = [(b.id, b.state, _counts(b), b.created_at[:_MINUTE].replace("T", " ")) for b in batches]
    return Fitted(
        TableLayout((batch, state, *numbers, Column("submitted")), wide),
        TableLayout((batch, state, Column("items", least=12), Column("submitted", rank=1)), narrow),
    )


def _rows(rows: Sequence[BaseModel], errors: bool) -> Fitted:
    item = Column("item", least=14)
    digits = 0 if errors else told_apart([row.plan_key for row in rows if isinstance(row, BatchResult)])
    others = (
        (Column("problem"), Column("detail", least=20))
        if errors
        else (
            Column("state", rank=1),
            Column("cache", rank=2),
            Column("plan"),
        )
    )
    found: list[Sequence[str]] = []
    for row in rows:
        fields = json_module.loads(row.model_dump_json())
        if errors:
            problem = fields["problem"]
            cells = (problem["type"].rpartition("/")[2], f"{problem.get('place') or ''} {problem['detail']}".strip())
        else:
            cells = (fields["state"], fields["cache"], fields["plan_key"][:digits])
        found.append((fields["custom_id"], *cells))
    return Fitted(TableLayout((item, *others), found))
