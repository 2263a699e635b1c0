"""The pages, as endpoints outside the API's schema."""

import hashlib
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fusion_ir.core.graph import Graph
from fusion_ir.errors import FormatError
from fusion_ir.records import Plan
from fusion_ir.text.printing import parse_graph, print_graph
from service.api.context import context
from service.api.immutable import check_key
from service.api.threads import in_threads
from service.dashboard import batch_view, list_view, plan_view, queue_view, source_view, trials_view
from service.dashboard.first_steps import first_steps
from service.dashboard.graph_svg import Picture, draw, picture
from service.dashboard.layout import Layout, LayoutError, layout
from service.dashboard.layouts import Layouts
from service.errors import PROBLEM_TYPES, ApiError
from service.planning.predictions import predicted_us
from service.version import VERSION
from service.wording import formatting
from service.wording.key_prefixes import CANDIDATES, several
from service.wording.naming import Naming
from service.wording.nodes import NodeWords
from tuning_db import PlanSummary, Store, StoredGraph, is_prefix

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

PAGE_ROWS = 50
BATCHES = 50  # the newest ones
QUEUE_ROWS = 8  # of those that wait
RUNNING_ROWS = 64
FAILED_ROWS = 5
TRIED_SEGMENTS = 50  # on a page of trials
OPEN_LINES = 150  # lines of a graph's text up to which its picture is fetched unasked
DIGITS = 64  # of a whole key
_MARK = Path(__file__).with_name("static") / "mark.svg"


def _held_together(value: object) -> object:
    """A value that a template places, with numbers kept on the line of their units. HTML, and what is no text, stays as
    it is."""
    return formatting.unbroken(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


_templates = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_held_together,
    trim_blocks=True,
    lstrip_blocks=True,
)


@router.get("/")
@in_threads("pages")
def plans(request: Request, page_token: Annotated[str | None, Query(max_length=1000)] = None) -> Response:
    """The list of cached plans, and what is in the queue."""
    ctx, now, origin = context(request), time.time(), _origin(request)
    store = ctx.store
    try:
        page = store.plans(page_token=page_token, limit=PAGE_ROWS)
    except ValueError:
        return RedirectResponse("/", 303)
    graphs = {key: store.graph(key) for key in {p.graph_key for p in page.items}}
    rows = [
        list_view.list_row(
            plan_key=p.plan_key,
            graph_key=p.graph_key,
            inputs=_inputs(graphs[p.graph_key]),
            outputs=_outputs(graphs[p.graph_key]),
            types=_types(graphs[p.graph_key]),
            state=p.state or "superseded",
            cut_short=p.cut_short,
            target=p.target,
            device=p.device,
            numerics=p.numerics,
            steps=p.steps,
            time_us=p.time_us,
            predicted_us=predicted_us(store, p),
            spread=p.spread,
            unfused_us=p.unfused_us,
            lower_bound_us=p.lower_bound_us,
            hits=p.hits,
            created=p.created,
            now=now,
        )
        for p in page.items
    ]
    queue = queue_view.queue(
        store.operations(("running",), RUNNING_ROWS),
        store.waiting(QUEUE_ROWS),
        store.operation_counts()["queued"],
        now,
        partial(_names, store),
    )
    open_batches = [b for b in store.batches.batches(limit=BATCHES).items if b.finished is None]
    failed = queue_view.failed(store.operations(("failed",), FAILED_ROWS), now, partial(_names, store))
    return _page(
        "list.html",
        "plans",
        rows=rows,
        queue=queue,
        failed=failed,
        batches=batch_view.batch_rows(open_batches, now, origin),
        steps=first_steps(ctx, origin) if not rows else None,
        first=page_token is None,
        next_page_token=page.next_page_token,
    )


@router.get("/batches")
@in_threads("pages")
def batches(request: Request) -> Response:
    """The newest batches."""
    origin = _origin(request)
    newest = context(request).store.batches.batches(limit=BATCHES).items
    return _page("batches.html", "batches", batches=batch_view.batch_rows(newest, time.time(), origin), origin=origin)


@router.get("/operations")
def operations() -> Response:
    """Redirects to the list of plans, which shows the operations that run and wait."""
    return RedirectResponse("/", 307, {"Cache-Control": "no-store"})


@router.get("/plans/{plan_key}")
@in_threads("pages")
def plan(request: Request, plan_key: str) -> Response:
    """The page of one plan. Draws nothing: the picture has a page of its own, from which this one fetches it."""
    if (elsewhere := _whole(request, plan_key)) is not None:
        return elsewhere
    ctx = context(request)
    record = _stored(ctx.store, plan_key)
    if record is None:
        return missing()
    stored = ctx.store.graph(record.graph_key)
    parsed = _parse(stored)
    summary = ctx.store.summary(plan_key)
    view = _view(ctx.store, record, stored, parsed, summary)
    lines = _lines(stored, parsed) if stored else []
    return _page(
        "plan.html",
        "plans",
        view=view,
        most_steps=plan_view.MOST_STEPS,
        most_rows=plan_view.MOST_ROWS,
        signature=_signature(record, stored),
        created=formatting.moment(summary.created) if summary else "",
        age=formatting.age(summary.created, time.time()) if summary else "",
        date=formatting.date(summary.created) if summary else "",
        nodes=stored.nodes if stored else 0,
        opened=len(lines) <= OPEN_LINES,
        picture_missing=_layouts(request).failure(_layout_key(stored, ctx.settings.layout_seconds))
        if stored and parsed
        else "The graph itself is no longer stored.",
        text_lines=len(lines),
        graph_text=lines if len(lines) <= plan_view.TEXT_LINES else [],
    )


@dataclass(frozen=True)
class _Drawing:
    """A plan with its stored graph and the picture to draw. key: that of the picture's layout."""

    record: Plan
    stored: StoredGraph
    picture: Picture
    key: str


@router.get("/plans/{plan_key}/graph")
async def graph(request: Request, plan_key: str) -> Response:
    """The graph of a plan, drawn."""
    ctx = context(request)
    if (elsewhere := await ctx.pages.run(_whole, request, plan_key)) is not None:
        return elsewhere
    seconds = ctx.settings.layout_seconds
    drawing = await ctx.pages.run(_drawing, ctx.store, plan_key, seconds)
    if isinstance(drawing, Response):
        return drawing
    make = partial(layout, drawing.picture.sizes, drawing.picture.edges, seconds)
    try:
        placed = await _layouts(request).get(drawing.key, make)
    except LayoutError as error:
        return await ctx.pages.run(_graph_page, drawing, None, str(error))
    return await ctx.pages.run(_graph_page, drawing, placed, "")


def _drawing(store: Store, plan_key: str, seconds: float) -> _Drawing | Response:
    record = _stored(store, plan_key)
    if record is None:
        return missing()
    stored = store.graph(record.graph_key)
    parsed = _parse(stored)
    if stored is None or parsed is None:
        return missing("The graph of this plan is no longer stored.")
    drawn = picture(parsed, record, _words(stored, parsed).naming)
    return _Drawing(record, stored, drawn, _layout_key(stored, seconds))


def _graph_page(drawing: _Drawing, placed: Layout | None, missing: str) -> Response:
    return _page(
        "graph.html",
        "plans",
        plan_key=drawing.record.plan_key,
        signature=_signature(drawing.record, drawing.stored),
        picture=drawing.picture,
        drawn=draw(drawing.picture, placed) if placed else "",
        missing=missing,
    )


@router.get("/plans/{plan_key}/text")
@in_threads("pages")
def text(request: Request, plan_key: str) -> Response:
    """The text of a plan's graph, with names."""
    if (elsewhere := _whole(request, plan_key)) is not None:
        return elsewhere
    store = context(request).store
    record = _stored(store, plan_key)
    stored = store.graph(record.graph_key) if record else None
    if record is None or stored is None:
        return missing() if record is None else missing("The graph of this plan is no longer stored.")
    lines = _lines(stored, _parse(stored))
    return _page(
        "text.html",
        "plans",
        plan_key=plan_key,
        graph_key=record.graph_key,
        signature=_signature(record, stored),
        lines=lines[: plan_view.MAX_TEXT_LINES],
        cut=max(0, len(lines) - plan_view.MAX_TEXT_LINES),
    )


@router.get("/plans/{plan_key}/steps")
@in_threads("pages")
def steps(request: Request, plan_key: str) -> Response:
    """The steps of a plan, all of them."""
    if (elsewhere := _whole(request, plan_key)) is not None:
        return elsewhere
    store = context(request).store
    record = _stored(store, plan_key)
    if record is None:
        return missing()
    stored = store.graph(record.graph_key)
    view = _view(store, record, stored, _parse(stored), store.summary(plan_key))
    return _page("steps.html", "plans", view=view, signature=_signature(record, stored))


@router.get("/plans/{plan_key}/trials")
@in_threads("pages")
def trials(request: Request, plan_key: str) -> Response:
    """The page of trials for the kernels of a plan, on its device."""
    if (elsewhere := _whole(request, plan_key)) is not None:
        return elsewhere
    store = context(request).store
    record = _stored(store, plan_key)
    if record is None:
        return missing()
    tried = trials_view.trials_view(record, lambda key: store.trials(key, record.device.class_key), time.time())
    return _page(
        "trials.html",
        "plans",
        plan_key=plan_key,
        signature=_signature(record, store.graph(record.graph_key)),
        tried=tried[:TRIED_SEGMENTS],
        cut=max(0, len(tried) - TRIED_SEGMENTS),
    )


@router.get("/plans/{plan_key}/sources/{step}")
@in_threads("pages")
def source(request: Request, plan_key: str, step: str) -> Response:
    """The source of one step."""
    if (elsewhere := _whole(request, plan_key)) is not None:
        return elsewhere
    store = context(request).store
    record = _stored(store, plan_key)
    number = int(step) if step.isascii() and step.isdigit() and len(step) < 8 else -1
    if record is None or not 0 <= number < len(record.steps):
        kernels = formatting.count(len(record.steps), "kernel") if record else ""
        return missing(f"The plan has {kernels}, numbered from 0.") if record else missing()
    sha = record.steps[number].source
    return _page(
        "source.html",
        "plans",
        plan_key=plan_key,
        signature=_signature(record, store.graph(record.graph_key)),
        source=source_view.source_view(record, number, store.source(sha) if sha else None),
    )


@router.get("/favicon.ico")
def favicon() -> Response:
    """The mark, for browsers that ask without having read a page."""
    return Response(_MARK.read_bytes(), media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})


@router.get("/errors")
def errors() -> Response:
    """The table of problem types."""
    return _page("errors.html", "errors", table=list(PROBLEM_TYPES.values()), one=None)


@router.get("/errors/{slug}")
def error(slug: str) -> Response:
    """The page of one problem type, the address in a problem's `type`."""
    row = PROBLEM_TYPES.get(slug)
    if row is None:
        return _page("missing.html", "errors", status=404, detail="There is no such type of problem.")
    return _page("errors.html", "errors", table=[], one=row)


def _page(template: str, section: str, status: int = 200, **values: Any) -> Response:
    text = _templates.get_template(template).render(version=VERSION, section=section, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status, {"Cache-Control": "no-store"})


def missing(
    detail: str = "No plan with this key is stored. It may have been evicted: resolve its graph again.",
    section: str = "plans",
) -> Response:
    """The page, with status 404, that says in `detail` what is not there."""
    return _page("missing.html", section, status=404, detail=detail)


def _whole(request: Request, plan_key: str) -> Response | None:
    """A redirect to this page under the whole key where `plan_key` is the beginning of one key; a page that names the
    keys where it is the beginning of several; None where it is a whole key or the beginning of none."""
    if not is_prefix(plan_key) or len(plan_key) == DIGITS:
        return None
    found = context(request).store.plan_keys(plan_key, CANDIDATES + 1)
    if len(found) > 1:
        return missing(f"{several(plan_key, found, 'plans')}.")
    rest = request.url.path.removeprefix(f"/plans/{plan_key}")
    query = f"?{request.url.query}" * bool(request.url.query)
    return RedirectResponse(f"/plans/{found[0]}{rest}{query}", 307, {"Cache-Control": "no-store"}) if found else None


def _stored(store: Store, plan_key: str) -> Plan | None:
    """The plan with this key; None where none is stored, or `plan_key` cannot be a key."""
    try:
        body = store.plan(check_key(plan_key, "plan"))
    except ApiError:
        return None
    return None if body is None else Plan.model_validate_json(body)


def _view(
    store: Store,
    record: Plan,
    stored: StoredGraph | None,
    parsed: Graph | None,
    summary: PlanSummary | None,
) -> plan_view.PlanView:
    return plan_view.plan_view(
        record,
        _words(stored, parsed),
        (summary.state if summary else None) or "superseded",
        summary.hits if summary else 0,
        store.source,
        summary.cut_short if summary else None,
    )


def _words(stored: StoredGraph | None, parsed: Graph | None) -> NodeWords:
    """Names of nodes and tensors by whoever sent the graph last. parsed: the graph in `stored`, None where it cannot be
    read."""
    if stored is None or parsed is None:
        return NodeWords(None, Naming(_inputs(stored), _outputs(stored)))
    return NodeWords(parsed, Naming.of_graph(stored.names.named(parsed)))


def _lines(stored: StoredGraph, parsed: Graph | None) -> list[str]:
    """The graph's text with the names of its sender; the canonical one where this version does not read it."""
    text = stored.text if parsed is None else print_graph(stored.names.named(parsed))
    return text.splitlines()


def _inputs(stored: StoredGraph | None) -> tuple[str, ...]:
    return stored.names.inputs if stored else ()


def _types(stored: StoredGraph | None) -> list[str]:
    """Types of a graph's inputs."""
    return list_view.input_types(stored.text) if stored else []


def _origin(request: Request) -> str:
    """The server's address, as its reader has it."""
    return str(request.base_url).rstrip("/")


def _outputs(stored: StoredGraph | None) -> tuple[str, ...]:
    return stored.names.outputs if stored else ()


def _names(store: Store, graph_key: str) -> str:
    """Names of a graph's inputs with their types, and of its outputs: "x f32[128, 512] → y"; "" where the graph is not
    stored."""
    stored = store.graph(graph_key)
    return list_view.typed_signature(_inputs(stored), _types(stored), _outputs(stored)) if stored else ""


def _signature(record: Plan, stored: StoredGraph | None) -> str:
    return list_view.signature(_inputs(stored), _outputs(stored), 90) if stored else record.graph_key[:10]


def _parse(stored: StoredGraph | None) -> Graph | None:
    """The stored graph; None where it is gone, or was written by a version that this one does not understand."""
    try:
        return parse_graph(stored.text).graph if stored else None
    except FormatError:
        return None


def _layouts(request: Request) -> Layouts:
    found = request.app.state.layouts
    assert isinstance(found, Layouts)
    return found


def _layout_key(stored: StoredGraph, seconds: float) -> str:
    """The sha256 of all that a layout depends on: the graph, its time limit, and names, as boxes are as wide as their
    text."""
    return hashlib.sha256(repr((stored.graph_key, stored.names.json(), seconds)).encode()).hexdigest()
