"""The pages of one plan, as endpoints: its own, its graph, text, steps, trials and sources."""

import hashlib
import time
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fusion_ir.core.graph import Graph
from fusion_ir.errors import FormatError
from fusion_ir.records import Plan, TensorSpec
from fusion_ir.text.printing import parse_graph, print_graph
from service.api.context import context
from service.api.immutable import check_key
from service.api.threads import in_threads
from service.dashboard import list_view, plan_view, source_view, trials_view
from service.dashboard.graph_svg import Picture, draw, picture
from service.dashboard.layout import Layout, LayoutError, layout
from service.dashboard.layouts import Layouts
from service.dashboard.rendering import inputs_of, missing, outputs_of, page
from service.errors import ApiError
from service.wording import formatting, refusals
from service.wording.key_prefixes import CANDIDATES, several
from service.wording.naming import Naming
from service.wording.nodes import NodeWords
from tuning_db.plan_lists import PlanSummary
from tuning_db.prefixes import is_prefix
from tuning_db.reading.graphs import StoredGraph
from tuning_db.store import Store

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

TRIED_SEGMENTS = 50  # on a page of trials
OPEN_LINES = 150  # lines of a graph's text up to which its picture is fetched unasked
DIGITS = 64  # of a whole key


@router.get("/plans/{plan_key}")
@in_threads("pages")
def plan(request: Request, plan_key: str) -> Response:
    """The page of one plan. Draws nothing: the picture has a page of its own, from which this one fetches it."""
    record = _found(request, plan_key)
    if isinstance(record, Response):
        return record
    ctx = context(request)
    stored = ctx.store.graphs.graph(record.graph_key)
    parsed = _parse(stored)
    summary = ctx.store.plans.summary(plan_key)
    view = _view(ctx.store, record, stored, parsed, summary)
    lines = _lines(stored, parsed) if stored else []
    return page(
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
        refused=refusals.rows(ctx.store.refusals.of(plan_key)),
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
    seconds = ctx.settings.layout_seconds
    drawing = await ctx.pages.run(_drawing, request, plan_key, seconds)
    if isinstance(drawing, Response):
        return drawing
    make = partial(layout, drawing.picture.sizes, drawing.picture.edges, seconds)
    try:
        placed = await _layouts(request).get(drawing.key, make)
    except LayoutError as error:
        return await ctx.pages.run(_graph_page, drawing, None, str(error))
    return await ctx.pages.run(_graph_page, drawing, placed, "")


def _drawing(request: Request, plan_key: str, seconds: float) -> _Drawing | Response:
    record = _found(request, plan_key)
    if isinstance(record, Response):
        return record
    store = context(request).store
    stored = store.graphs.graph(record.graph_key)
    parsed = _parse(stored)
    if stored is None or parsed is None:
        return missing("The graph of this plan is no longer stored.")
    drawn = picture(parsed, record, _words(stored, parsed).naming)
    return _Drawing(record, stored, drawn, _layout_key(stored, seconds))


def _graph_page(drawing: _Drawing, placed: Layout | None, missing: str) -> Response:
    return page(
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
    record = _found(request, plan_key)
    if isinstance(record, Response):
        return record
    stored = context(request).store.graphs.graph(record.graph_key)
    if stored is None:
        return missing("The graph of this plan is no longer stored.")
    lines = _lines(stored, _parse(stored))
    return page(
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
    record = _found(request, plan_key)
    if isinstance(record, Response):
        return record
    store = context(request).store
    stored = store.graphs.graph(record.graph_key)
    view = _view(store, record, stored, _parse(stored), store.plans.summary(plan_key))
    return page("steps.html", "plans", view=view, signature=_signature(record, stored))


@router.get("/plans/{plan_key}/trials")
@in_threads("pages")
def trials(request: Request, plan_key: str) -> Response:
    """The page of trials for the kernels of a plan, on its device."""
    record = _found(request, plan_key)
    if isinstance(record, Response):
        return record
    store = context(request).store
    tried = trials_view.trials_view(record, lambda key: store.trials.trials(key, record.device.class_key), time.time())
    return page(
        "trials.html",
        "plans",
        plan_key=plan_key,
        signature=_signature(record, store.graphs.graph(record.graph_key)),
        tried=tried[:TRIED_SEGMENTS],
        cut=max(0, len(tried) - TRIED_SEGMENTS),
    )


@router.get("/plans/{plan_key}/sources/{step}")
@in_threads("pages")
def source(request: Request, plan_key: str, step: str) -> Response:
    """The source of one step."""
    record = _found(request, plan_key)
    if isinstance(record, Response):
        return record
    number = int(step) if step.isascii() and step.isdigit() and len(step) < 8 else -1
    if not 0 <= number < len(record.steps):
        return missing(f"The plan has {formatting.count(len(record.steps), 'kernel')}, numbered from 0.")
    store = context(request).store
    sha = record.steps[number].source
    return page(
        "source.html",
        "plans",
        plan_key=plan_key,
        signature=_signature(record, store.graphs.graph(record.graph_key)),
        source=source_view.source_view(record, number, store.plans.source(sha) if sha else None),
    )


def _found(request: Request, plan_key: str) -> Plan | Response:
    """The plan of a key. The page to answer with instead where none is stored, or the key is a beginning."""
    elsewhere = _whole(request, plan_key)
    if elsewhere is not None:
        return elsewhere
    record = _stored(context(request).store, plan_key)
    return missing() if record is None else record


def _whole(request: Request, plan_key: str) -> Response | None:
    """A redirect to this page under the whole key where `plan_key` is the beginning of one key; a page that names the
    keys where it is the beginning of several; None where it is a whole key or the beginning of none."""
    if not is_prefix(plan_key) or len(plan_key) == DIGITS:
        return None
    found = context(request).store.plans.keys(plan_key, CANDIDATES + 1)
    if len(found) > 1:
        return missing(f"{several(plan_key, found, 'plans')}.")
    rest = request.url.path.removeprefix(f"/plans/{plan_key}")
    query = f"?{request.url.query}" * bool(request.url.query)
    return RedirectResponse(f"/plans/{found[0]}{rest}{query}", 307, {"Cache-Control": "no-store"}) if found else None


def _stored(store: Store, plan_key: str) -> Plan | None:
    """The plan with this key; None where none is stored, or `plan_key` cannot be a key."""
    try:
        body = store.plans.plan(check_key(plan_key, "plan"))
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
        store.plans.source,
        summary.cut_short if summary else None,
    )


def _words(stored: StoredGraph | None, parsed: Graph | None) -> NodeWords:
    """Names of nodes and tensors by whoever sent the graph last. parsed: the graph in `stored`, None where it cannot be
    read."""
    if stored is None or parsed is None:
        return NodeWords(None, Naming(inputs_of(stored), outputs_of(stored)))
    return NodeWords(parsed, Naming.of_graph(stored.names.named(parsed)))


def _lines(stored: StoredGraph, parsed: Graph | None) -> list[str]:
    """The graph's text with the names of its sender; the canonical one where this version does not read it."""
    text = stored.text if parsed is None else print_graph(stored.names.named(parsed))
    return text.splitlines()


def _signature(record: Plan, stored: StoredGraph | None) -> str:
    """ "x f32[128, 512], w f32[512] → y f32[128, 512]"; the beginning of the graph's key where its names are gone."""
    if stored is None:
        return record.graph_key[:10]
    outputs = [f"{name} {_type(spec)}" for name, spec in zip(outputs_of(stored), record.outputs, strict=False)]
    return list_view.typed_signature(inputs_of(stored), [_type(spec) for spec in record.inputs], outputs)


def _type(spec: TensorSpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"


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
