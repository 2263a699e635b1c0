"""The pages, as endpoints outside the API's schema."""

import time
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from service.api.context import context
from service.api.threads import in_threads
from service.dashboard import batch_view, list_view, plan_pages, queue_view
from service.dashboard.first_steps import first_steps
from service.dashboard.rendering import inputs_of, outputs_of, page, types_of
from service.errors import PROBLEM_TYPES
from service.planning.predictions import predicted_us
from tuning_db.store import Store

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
router.include_router(plan_pages.router)

PAGE_ROWS = 50
BATCHES = 50  # the newest ones
QUEUE_ROWS = 8  # of those that wait
RUNNING_ROWS = 64
FAILED_ROWS = 5
_MARK = Path(__file__).with_name("static") / "mark.svg"


@router.get("/")
@in_threads("pages")
def plans(request: Request, page_token: Annotated[str | None, Query(max_length=1000)] = None) -> Response:
    """The list of cached plans, and what is in the queue."""
    ctx, now, origin = context(request), time.time(), _origin(request)
    store = ctx.store
    try:
        listed = store.plans.plans(page_token=page_token, limit=PAGE_ROWS)
    except ValueError:
        return RedirectResponse("/", 303)
    graphs = {key: store.graphs.graph(key) for key in {p.graph_key for p in listed.items}}
    rows = [
        list_view.list_row(
            plan_key=p.plan_key,
            graph_key=p.graph_key,
            inputs=inputs_of(graphs[p.graph_key]),
            outputs=outputs_of(graphs[p.graph_key]),
            types=types_of(graphs[p.graph_key]),
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
        for p in listed.items
    ]
    queue = queue_view.queue(
        store.queue.operations(("running",), RUNNING_ROWS),
        store.queue.waiting(QUEUE_ROWS),
        store.queue.counts()["queued"],
        now,
        partial(_names, store),
    )
    open_batches = [b for b in store.batches.batches(limit=BATCHES).items if b.finished is None]
    failed = queue_view.failed(store.queue.operations(("failed",), FAILED_ROWS), now, partial(_names, store))
    return page(
        "list.html",
        "plans",
        rows=rows,
        queue=queue,
        failed=failed,
        batches=batch_view.batch_rows(open_batches, now, origin),
        steps=first_steps(ctx, origin) if not rows else None,
        first=page_token is None,
        next_page_token=listed.next_page_token,
    )


@router.get("/batches")
@in_threads("pages")
def batches(request: Request) -> Response:
    """The newest batches."""
    origin = _origin(request)
    newest = context(request).store.batches.batches(limit=BATCHES).items
    return page("batches.html", "batches", batches=batch_view.batch_rows(newest, time.time(), origin), origin=origin)


@router.get("/operations")
def operations() -> Response:
    """Redirects to the list of plans, which shows the operations that run and wait."""
    return RedirectResponse("/", 307, {"Cache-Control": "no-store"})


@router.get("/favicon.ico")
def favicon() -> Response:
    """The mark, for browsers that ask without having read a page."""
    return Response(_MARK.read_bytes(), media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})


@router.get("/errors")
def errors() -> Response:
    """The table of problem types."""
    return page("errors.html", "errors", table=list(PROBLEM_TYPES.values()), one=None)


@router.get("/errors/{slug}")
def error(slug: str) -> Response:
    """The page of one problem type, the address in a problem's `type`."""
    row = PROBLEM_TYPES.get(slug)
    if row is None:
        return page("missing.html", "errors", status=404, detail="There is no such type of problem.")
    return page("errors.html", "errors", table=[], one=row)


def _origin(request: Request) -> str:
    """The server's address, as its reader has it."""
    return str(request.base_url).rstrip("/")


def _names(store: Store, graph_key: str) -> str:
    """Names of a graph's inputs with their types, and of its outputs: "x f32[128, 512] → y"; "" where the graph is not
    stored."""
    stored = store.graphs.graph(graph_key)
    return list_view.typed_signature(inputs_of(stored), types_of(stored), outputs_of(stored)) if stored else ""
