"""Endpoints for whoever keeps the service running: whether it is alive, whether it is ready, and its metrics."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from codegen.sandbox.object_cache import CacheError
from service import disk
from service.api.context import Context, context
from service.api.models import Health
from service.errors import RETRY_SECONDS, ApiError
from tuning_db.errors import DatabaseError
from tuning_db.states import OPERATION_STATES, OperationState

router = APIRouter(tags=["health"])


@router.get("/livez", summary="Is the process alive", responses={200: {"model": Health}})
async def livez() -> Response:
    """Answers without touching anything."""
    return Response(Health(status="ok").model_dump_json(), 200, {"Cache-Control": "no-store"}, "application/json")


@router.get("/readyz", summary="Can requests be answered", responses={200: {"model": Health}, 503: {"model": Health}})
async def readyz(request: Request) -> Response:
    """200 once the database answers, there is room to write, and the default target's device is known; 503 until
    then."""
    ctx = context(request)
    checks = {
        "database": await _checked(ctx, ctx.store.ping),
        "disk": await _checked(ctx, partial(disk.check, ctx.settings)),
        "device": ctx.devices.state(ctx.settings.target),
    }
    ok = all(state == "ok" for state in checks.values())
    waiting = not ok and all(state in ("ok", "starting") for state in checks.values())
    health = Health(status="ok" if ok else "starting" if waiting else "unavailable", checks=checks)
    headers = {"Cache-Control": "no-store"} | ({} if ok else {"Retry-After": str(RETRY_SECONDS)})
    return Response(health.model_dump_json(), 200 if ok else 503, headers, "application/json")


async def _checked(ctx: Context, check: Callable[[], None]) -> str:
    """ "ok", or why not."""
    try:
        await ctx.database.run(check)
    except (DatabaseError, CacheError, ApiError) as error:
        return str(error)
    return "ok"


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Requests, seconds, hits and misses of this process, and problems: failed operations are counted by the first
    server that is asked; operations by state, which are no number where the database does not answer."""
    ctx = context(request)
    counts: Mapping[OperationState, float]
    try:
        counts = await ctx.database.run(ctx.store.queue.counts)
    except (DatabaseError, ApiError):
        counts = dict.fromkeys(OPERATION_STATES, math.nan)
    with suppress(DatabaseError, ApiError):
        await ctx.database.run(_count_failures, ctx)
    for state, count in counts.items():
        ctx.metrics.operations.labels(state).set(count)
    for table, rows in ctx.store.damaged().items():
        ctx.metrics.damaged.labels(table).set(rows)
    return Response(ctx.metrics.text(), 200, {"Cache-Control": "no-store"}, ctx.metrics.content_type)


def _count_failures(ctx: Context) -> None:
    """Adds newly failed operations to the metrics, also those that workers, other servers or supervisors ended."""
    for error in ctx.store.queue.newly_failed():
        ctx.metrics.failed(error)
