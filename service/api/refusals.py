"""Refusals of plans: clients say which plans were of no use to them, and why."""

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import Response

from service.api.bodies import receive
from service.api.context import Context, context
from service.api.keys import whole_key
from service.api.models import RefusalBody, RefusalModel, RefusalPage
from service.api.openapi import body as json_body
from service.api.reading import read_object
from service.api.threads import blocking
from service.api.times import moment
from service.errors import ApiError, from_validation
from tuning_db.refusals import Refusal

router = APIRouter(tags=["plans"])

MOST_BYTES = 16_384  # of a body


@router.post(
    "/v1/plans/{plan_key}/refusals",
    summary="Refuse a plan",
    status_code=201,
    responses={201: {"model": RefusalModel}, 200: {"model": RefusalModel, "description": "It is stored already."}},
    response_class=Response,
    openapi_extra=json_body(RefusalBody),
)
async def refuse(request: Request, plan_key: str) -> Response:
    """Says that a plan was of no use: `wrong` (its outputs disagree), `slower` (than what it is to replace, with both
    times) or `unusable` (it could not be loaded).

    A plan that is `wrong` answers nothing any more: the next request for its graph searches again. A refusal that is
    sent twice with the same `id` counts once.
    """
    ctx = context(request)
    body, _ = await receive(request)
    if len(body) > MOST_BYTES:
        raise ApiError("body-too-large", f"A refusal has at most {MOST_BYTES} bytes.")
    try:
        asked = RefusalBody.model_validate(read_object(body))
    except ValidationError as error:
        raise from_validation(error, RefusalBody) from error
    return await ctx.database.run(_store, ctx, plan_key, asked)


@router.get("/v1/plans/{plan_key}/refusals", summary="Refusals of a plan", response_model=RefusalPage)
@blocking
def list_(request: Request, plan_key: str) -> RefusalPage:
    """The newest 100, the newest first."""
    store = context(request).store
    key = whole_key(store, plan_key)
    if store.plans.summary(key) is None:
        raise ApiError("not-found", "There is no plan with this key.")
    return RefusalPage(refusals=[_model(key, refusal) for refusal in store.refusals.of(key)])


def _store(ctx: Context, plan_key: str, asked: RefusalBody) -> Response:
    key = whole_key(ctx.store, plan_key)
    refusal = Refusal(asked.id, asked.why, asked.text, asked.took_us, asked.instead_us)
    is_new = ctx.store.refusals.put(key, refusal)
    if is_new is None:
        raise ApiError("not-found", "There is no plan with this key.")
    if is_new:
        ctx.metrics.refusals.labels(asked.why).inc()
    stored = next((r for r in ctx.store.refusals.of(key) if r.id == asked.id), refusal)
    headers = {"Cache-Control": "no-store"}
    return Response(_model(key, stored).model_dump_json(), 201 if is_new else 200, headers, "application/json")


def _model(plan_key: str, refusal: Refusal) -> RefusalModel:
    return RefusalModel(
        id=refusal.id,
        plan_key=plan_key,
        why=refusal.why,
        text=refusal.detail,
        took_us=refusal.took_us,
        instead_us=refusal.instead_us,
        created_at=moment(refusal.created),
    )
