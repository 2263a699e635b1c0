"""The pages, as endpoints outside the API's schema."""

import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import ValidationError
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fusion_ir.errors import FormatError
from fusion_ir.graph import Graph
from fusion_ir.records import Plan
from fusion_ir.text import parse_graph
from service import formatting
from service.api.context import context
from service.api.immutable import check_key
from service.api.operations import model
from service.api.threads import in_threads
from service.dashboard import views
from service.dashboard.graph_svg import graph_svg
from service.dashboard.layout import LayoutError
from service.errors import PROBLEM_TYPES, ApiError
from service.jobs import PLAN, PlanJob
from service.version import VERSION
from tuning_db import Operation, Store, StoredGraph

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

PAGE_ROWS = 50
QUEUE_ROWS = 8
PICTURES = 128  # kept in memory, some tens of kB each

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_pictures: "OrderedDict[str, str]" = OrderedDict()
_drawing = threading.Lock()  # one layout at a time: they are expensive, and the machine is measuring


@router.get("/")
@in_threads("pages")
def plans(request: Request, page_token: Annotated[str | None, Query(max_length=1000)] = None) -> Response:
    """The list of cached plans, and what is in the queue."""
    store, now = context(request).store, time.time()
    try:
        page = store.plans(page_token=page_token, limit=PAGE_ROWS)
    except ValueError:
        return RedirectResponse("/", 303)
    graphs = {key: store.graph(key) for key in {p.graph_key for p in page.items}}
    rows = [
        views.list_row(
            plan_key=p.plan_key,
            graph_key=p.graph_key,
            inputs=_inputs(graphs[p.graph_key]),
            outputs=_outputs(graphs[p.graph_key]),
            state=p.state or "superseded",
            cut_short=p.cut_short,
            device=p.device,
            numerics=p.numerics,
            steps=p.steps,
            time_us=p.time_us,
            unfused_us=p.unfused_us,
            lower_bound_us=p.lower_bound_us,
            hits=p.hits,
            created=p.created,
            now=now,
        )
        for p in page.items
    ]
    open_ = store.operations(("running", "queued"), QUEUE_ROWS)
    return _page(
        "list.html",
        "plans",
        rows=rows,
        operations=[views.queue_row(_graph_of(o), model(o), o.created, now) for o in open_],
        first=page_token is None,
        next_page_token=page.next_page_token,
        origin=str(request.base_url).rstrip("/"),
    )


@router.get("/plans/{plan_key}")
@in_threads("pages")
def plan(request: Request, plan_key: str) -> Response:
    """The page of one plan."""
    ctx = context(request)
    store = ctx.store
    try:
        body = store.plan(check_key(plan_key, "plan"))
    except ApiError:
        body = None
    if body is None:
        return _page(
            "missing.html",
            "plans",
            status=404,
            detail="No plan with this key is stored. It may have been evicted: resolve its graph again.",
        )
    record = Plan.model_validate_json(body)
    stored = store.graph(record.graph_key)
    graph = _parse(stored)
    summary = store.summary(plan_key)
    view = views.plan_view(
        record,
        graph,
        (summary.state if summary else None) or "superseded",
        summary.hits if summary else 0,
        _inputs(stored),
        _outputs(stored),
        _sources(store, record),
        summary.cut_short if summary else None,
    )
    picture, missing = _picture(record, graph, stored, ctx.settings.layout_seconds)
    return _page(
        "plan.html",
        "plans",
        view=view,
        signature=views.signature(_inputs(stored), _outputs(stored), 90) if stored else record.graph_key[:10],
        created=formatting.moment(summary.created) if summary else "",
        age=formatting.age(summary.created, time.time()) if summary else "",
        unfused=formatting.duration(record.unfused_us),
        bound=formatting.duration(record.lower_bound_us),
        picture=picture,
        picture_missing=missing,
        graph_text=stored.text.splitlines()[: views.MAX_TEXT_LINES] if stored else [],
        seconds=formatting.duration(1e6 * record.search.seconds),
    )


@router.get("/errors")
def errors() -> Response:
    """The table of problem types."""
    return _page("errors.html", "errors", table=list(PROBLEM_TYPES.values()), one=None)


@router.get("/errors/{slug}")
def error(slug: str) -> Response:
    """What a problem's `type` resolves to."""
    row = PROBLEM_TYPES.get(slug)
    if row is None:
        return _page("missing.html", "errors", status=404, detail="There is no such type of problem.")
    return _page("errors.html", "errors", table=[], one=row)


def _page(template: str, section: str, status: int = 200, **values: Any) -> Response:
    text = _templates.get_template(template).render(version=VERSION, section=section, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status, {"Cache-Control": "no-store"})


def _inputs(stored: StoredGraph | None) -> tuple[str, ...]:
    return stored.names.inputs if stored else ()


def _outputs(stored: StoredGraph | None) -> tuple[str, ...]:
    return stored.names.outputs if stored else ()


def _parse(stored: StoredGraph | None) -> Graph | None:
    """The stored graph; None where it is gone, or was written by a version that this one does not understand."""
    try:
        return parse_graph(stored.text).graph if stored else None
    except FormatError:
        return None


def _sources(store: Store, record: Plan) -> dict[str, str]:
    texts = {sha: store.source(sha) for sha in {s.source for s in record.steps if s.source}}
    return {sha: text for sha, text in texts.items() if text is not None}


def _picture(record: Plan, graph: Graph | None, stored: StoredGraph | None, seconds: float) -> tuple[str | None, str]:
    """The graph drawn, or why it is not. Names are part of the picture, so they are part of its key."""
    if graph is None:
        return None, "The graph itself is no longer stored."
    key = f"{record.plan_key} {_inputs(stored)} {_outputs(stored)}"
    with _drawing:
        found = _pictures.get(key)
        if found is None:
            try:
                found = graph_svg(graph, record, _inputs(stored), _outputs(stored), seconds)
            except LayoutError as error:
                return None, str(error)
            _pictures[key] = found
            while len(_pictures) > PICTURES:
                _pictures.popitem(last=False)
        _pictures.move_to_end(key)
        return found, ""


def _graph_of(operation: Operation) -> str:
    """The key of the graph that an operation plans, "" for another kind."""
    try:
        return PlanJob.model_validate_json(operation.payload).graph_key if operation.kind == PLAN else ""
    except ValidationError:  # damaged: its worker will say so
        return ""


def forget_pictures() -> None:
    """Empties the memory of drawn graphs."""
    with _drawing:
        _pictures.clear()
