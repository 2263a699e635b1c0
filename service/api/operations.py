"""Operations: work that outlasts its request."""

import json
import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.api.context import context
from service.api.models import OperationModel
from service.api.prefer import wait_seconds
from service.api.threads import blocking
from service.api.times import moment
from service.errors import ApiError, Problem, problem
from service.wording import failures
from service.wording.queue_turns import LOOKED_AT, retry_seconds
from tuning_db.operation import Operation
from tuning_db.store import Store

router = APIRouter(tags=["operations"])

OPERATION: dict[int | str, dict[str, Any]] = {200: {"model": OperationModel}}
RETRY_SECONDS = 1


@router.get("/v1/operations/{operation_id}", summary="An operation", responses=OPERATION)
async def get(request: Request, operation_id: str) -> Response:
    """How far it is; once `done`, its `result` or its `error`.

    `Prefer: wait=N` waits up to N seconds for another state. One that is open is answered at most ten times a second.
    """
    ctx = context(request)
    await ctx.pacing.turn(operation_id)
    operation = await ctx.database.run(ctx.store.queue.operation, operation_id)
    seconds = wait_seconds(request, ctx.settings.max_wait_seconds)
    if operation is not None and operation.is_open and seconds > 0:
        await ctx.watcher.changed(operation, seconds)
        operation = await ctx.database.run(ctx.store.queue.operation, operation_id)
    ctx.pacing.note(operation_id, operation is not None and operation.is_open)
    retry = RETRY_SECONDS if operation is None else await ctx.database.run(retry_after, ctx.store, operation)
    return _response(operation, retry)


@router.post("/v1/operations/{operation_id}:cancel", summary="Cancel an operation", responses=OPERATION)
@blocking
def cancel(request: Request, operation_id: str) -> Response:
    """Ends a waiting operation; asks the worker of a running one to stop. One that has ended stays as it is."""
    store = context(request).store
    operation = store.queue.cancel(operation_id)
    return _response(operation, RETRY_SECONDS if operation is None else retry_after(store, operation))


def model(operation: Operation) -> OperationModel:
    """The operation as the API shows it to clients."""
    ended = not operation.is_open
    return OperationModel(
        id=operation.id,
        kind=operation.kind,
        state=operation.state,
        done=ended,
        attempt=operation.attempt,
        cancel_requested=operation.cancel_requested,
        progress=object_in(operation.progress),
        created_at=moment(operation.created),
        result=object_in(operation.result) if operation.state == "done" else None,
        error=problem_of(operation) if ended and operation.state != "done" else None,
    )


def problem_of(operation: Operation) -> Problem:
    """Why an operation ended without a result: the problem its worker wrote, or the queue's own words."""
    return problem_in(operation.state, operation.error)


def problem_in(state: str, error: str | None) -> Problem:
    """The problem of an operation that failed or was cancelled, from its state and its stored error."""
    if state == "cancelled":
        return problem("cancelled", "The operation was cancelled.")
    return failures.problem_in(error)


def retry_after(store: Store, operation: Operation) -> int:
    """Seconds for `Retry-After`: for a queued operation those until it starts at the latest, else RETRY_SECONDS."""
    if operation.state != "queued":
        return RETRY_SECONDS
    running, waiting = store.queue.operations(("running",), LOOKED_AT), store.queue.waiting(LOOKED_AT)
    return retry_seconds(operation, running, waiting, time.time())


def _response(operation: Operation | None, retry: int) -> Response:
    if operation is None:
        raise ApiError("not-found", "There is no operation with this id.")
    headers = {"Cache-Control": "no-store"}
    if operation.is_open:
        headers["Retry-After"] = str(retry)
    return Response(model(operation).model_dump_json(), 200, headers, "application/json")


def object_in(text: str | None) -> dict[str, Any] | None:
    """A JSON object that a worker of ours wrote; None for anything else."""
    try:
        value = json.loads(text or "null")
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
