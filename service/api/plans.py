"""Stored plans: one, many, their source, their end."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from fusion_ir.records import Plan
from service.api.context import context
from service.api.immutable import immutable, matches
from service.api.keys import whole_key
from service.api.models import PlanPage, PlanRow
from service.api.signed import SIGNATURE_HEADER, signed
from service.api.threads import blocking
from service.api.times import moment
from service.errors import ApiError
from service.wording.formatting import count
from tuning_db.plan_lists import PlanFilter

router = APIRouter(tags=["plans"])

Text = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]


@router.get("/v1/plans", summary="Stored plans", response_model=PlanPage)
@blocking
def list_(
    request: Request,
    device: Text = None,
    op: Text = None,
    family: Text = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    page_token: Annotated[str | None, Query(max_length=1000)] = None,
) -> PlanPage:
    """Newest first. `device`: a class key, a name or a target; `op`: used by the graph; `family`: used by a step."""
    store = context(request).store
    try:
        page = store.plans.plans(PlanFilter(device=device, op=op, family=family), page_token, limit)
    except ValueError as error:
        raise ApiError("bad-request", f"{error}.", "page_token") from error
    rows = [
        PlanRow(
            plan_key=p.plan_key,
            graph_key=p.graph_key,
            device_key=p.device_key,
            device=p.device,
            numerics=p.numerics,
            state=p.state or "superseded",
            cut_short=p.cut_short,
            steps=p.steps,
            time_us=p.time_us,
            unfused_us=p.unfused_us,
            lower_bound_us=p.lower_bound_us,
            hits=p.hits,
            created_at=moment(p.created),
        )
        for p in page.items
    ]
    return PlanPage(plans=rows, next_page_token=page.next_page_token)


@router.get(
    "/v1/plans/{plan_key}",
    summary="A plan",
    responses={200: {"model": Plan, "headers": SIGNATURE_HEADER}, 304: {"description": "The client has it."}},
)
@blocking
def get(request: Request, plan_key: str) -> Response:
    """The stored body, whose sha256 is the key. It never changes: the ETag is strong, and caches may keep it.

    Here and below, the first digits of a key stand for it, at least four, where no other plan's key begins with them;
    `Content-Location` has the whole one. The answer is signed (`Fuseplan-Signature`).
    """
    key = whole_key(context(request).store, plan_key)
    body = _body(request, key)
    response = immutable(request, key, body, "application/json", _place(request, plan_key, key))
    if response.status_code == 200:
        response.headers.update(signed(request, body))
    return response


@router.get(
    "/v1/plans/{plan_key}/source",
    summary="Source of a step",
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        304: {"description": "The client has it."},
    },
    response_class=Response,
)
@blocking
def source(request: Request, plan_key: str, step: Annotated[int, Query(ge=0, le=1_000_000)] = 0) -> Response:
    """The generated C++ or CUDA of the file that step number `step` was compiled from."""
    key = whole_key(context(request).store, plan_key)
    plan = Plan.model_validate_json(_body(request, key))
    if step >= len(plan.steps):
        raise ApiError("not-found", f"The plan has {count(len(plan.steps), 'step')}, numbered from 0.", "step")
    text = context(request).store.plans.source(plan.steps[step].source)
    if text is None:
        raise ApiError("not-found", "The source of this step is not stored.", "step")
    place = _place(request, plan_key, key)
    return immutable(request, plan.steps[step].source, text.encode(), "text/plain; charset=utf-8", place)


@router.delete("/v1/plans/{plan_key}", summary="Evict a plan", status_code=204, response_class=Response)
@blocking
def evict(request: Request, plan_key: str) -> Response:
    """Removes the plan, what only it needs, and its place as an answer: the next request plans again.

    With `If-Match`, only where that names this plan.
    """
    key = whole_key(context(request).store, plan_key)
    wanted = request.headers.getlist("if-match")
    if wanted and not matches(wanted, f'"{key}"'):
        raise ApiError("precondition-failed", "If-Match names another plan.", "If-Match")
    if not context(request).store.plans.evict(key):
        raise ApiError("not-found", "There is no plan with this key.")
    return Response(status_code=204)


def _body(request: Request, plan_key: str) -> bytes:
    body = context(request).store.plans.plan(plan_key)
    if body is None:
        raise ApiError("not-found", "There is no plan with this key.")
    return body


def _place(request: Request, given: str, key: str) -> str | None:
    """The request's address with the whole plan key in place of `given`; None where `given` is the whole key."""
    if given == key:
        return None
    path = request.url.path.replace(given, key, 1)
    return f"{path}?{request.url.query}" if request.url.query else path
