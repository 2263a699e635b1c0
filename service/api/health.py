"""For whoever keeps the service running: alive, ready, and in numbers."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.api.context import context
from service.api.models import Health
from tuning_db import DatabaseError

router = APIRouter(tags=["health"])


@router.get("/livez", summary="Is the process alive", responses={200: {"model": Health}})
async def livez() -> Response:
    """Answers without touching anything."""
    return Response(Health(status="ok").model_dump_json(), 200, {"Cache-Control": "no-store"}, "application/json")


@router.get("/readyz", summary="Can requests be answered", responses={200: {"model": Health}, 503: {"model": Health}})
def readyz(request: Request) -> Response:
    """200 once the database answers and the default target's device is known; 503 until then."""
    ctx = context(request)
    checks: dict[str, str] = {}
    try:
        ctx.store.ping()
        checks["database"] = "ok"
    except DatabaseError as error:
        checks["database"] = str(error)
    checks["device"] = ctx.devices.state(ctx.settings.target)
    ok = all(state == "ok" for state in checks.values())
    waiting = not ok and all(state in ("ok", "starting") for state in checks.values())
    health = Health(status="ok" if ok else "starting" if waiting else "unavailable", checks=checks)
    return Response(health.model_dump_json(), 200 if ok else 503, {"Cache-Control": "no-store"}, "application/json")


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request) -> Response:
    """Requests, seconds, hits and misses of this process; operations by state."""
    ctx = context(request)
    for state, count in ctx.store.operation_counts().items():
        ctx.metrics.operations.labels(state).set(count)
    return Response(ctx.metrics.text(), 200, {"Cache-Control": "no-store"}, ctx.metrics.content_type)
