"""Batches: many requests submitted together, as JSON lines, worked through on all workers."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from fusion_ir.records import Numerics
from service.api.batch_lines import read_lines
from service.api.batch_models import (
    BatchError,
    BatchModel,
    BatchPage,
    BatchProgress,
    BatchResult,
    BatchSummary,
    ItemCounts,
    ItemEvent,
    RunningItem,
    Segments,
)
from service.api.bodies import receive
from service.api.context import Context, context
from service.api.keys import only_one
from service.api.operations import object_in, problem_in
from service.api.reading import check_seconds
from service.api.threads import blocking
from service.api.times import moment
from service.errors import ApiError
from service.jobs import PlanResult
from service.settings import TARGET
from tuning_db.batch_endings import Ending
from tuning_db.batches import Batch, BatchItem
from tuning_db.errors import KeyReused, NeverFits, QueueFull
from tuning_db.prefixes import is_prefix
from tuning_db.states import OperationState
from tuning_db.store import Store

router = APIRouter(tags=["batches"])

SUBMIT = "/v1/batches"
LINES = "application/x-ndjson"
MEDIA_TYPES = (LINES, "application/jsonl")
RUNNING_SHOWN = 64
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_CHUNK = 500

_LINES_BODY = {
    "requestBody": {
        "required": True,
        "content": {LINES: {"schema": {"type": "string", "description": "A BatchLine as JSON on every line."}}},
    }
}
_SHOWN: dict[int | str, dict[str, Any]] = {200: {"model": BatchModel}}


def _lines(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    text = {"type": "string", "description": f"A {model.__name__} as JSON on every line."}
    return {200: {"content": {LINES: {"schema": text}}}}


@router.post(
    SUBMIT,
    summary="Submit a batch",
    status_code=201,
    responses={201: {"model": BatchModel, "description": "The batch, or the one that this key made before."}},
    response_class=Response,
    openapi_extra=_LINES_BODY,
)
async def submit(
    request: Request,
    target: Annotated[str | None, Query(pattern=TARGET)] = None,
    seconds: Annotated[float | None, Query(ge=0.1, le=86400)] = None,
    numerics: Numerics | None = None,
    memory_bytes: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    sampler: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Each line of the body is a request as `POST /v1/plans:resolve` takes it, with a `custom_id` of its own.

    `target`, `seconds`, `numerics`, `memory_bytes` and `sampler` stand in for members that a line lacks. All lines are
    taken, or, where one cannot be told apart, none. With `Idempotency-Key`, the same body makes one batch however often
    it is sent.
    """
    ctx = context(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise ApiError("unsupported-media-type", f"Expected Content-Type: {LINES}.", "Content-Type")
    check_seconds(ctx.settings, seconds, "seconds")
    given = {
        "target": target,
        "seconds": seconds,
        "numerics": numerics,
        "memory_bytes": memory_bytes,
        "sampler": sampler,
    }
    defaults = {name: value for name, value in given.items() if value is not None}
    if target is not None:
        await ctx.devices.get(target)
    key = _idempotency_key(request)
    with _in_flight(ctx, key):
        body, digest = await receive(request, json.dumps(defaults, sort_keys=True).encode() + b"\n")
        await ctx.database.run(ctx.store.ping)  # before what has a longer deadline
        batch = await ctx.batches.run(_submit, ctx, body, defaults, digest.hex(), key)
        shown = await ctx.database.run(model, ctx.store, batch)
    headers = {"Location": f"{SUBMIT}/{batch.id}", "Cache-Control": "no-store"}
    return Response(shown.model_dump_json(), 201, headers, "application/json")


def _submit(ctx: Context, body: bytes, defaults: dict[str, Any], payload: str, key: str | None) -> Batch:
    try:
        earlier = None if key is None else ctx.store.batches.find(key, payload)
        if earlier is not None:
            return earlier
        lines = read_lines(ctx, body, defaults)
        limit = ctx.settings.max_batch_queue
        batch = ctx.store.batches.submit(lines.items, lines.graphs, payload, idempotency_key=key, limit=limit)
    except KeyReused as error:
        raise ApiError("idempotency-key-reused", f"{error}.", "Idempotency-Key") from error
    except NeverFits as error:
        limit = f"at most {error.limit} operations of batches may wait (setting max_batch_queue)"
        raise ApiError("batch-too-large", f"The batch needs {error.needed} operations, and {limit}.") from error
    except QueueFull as error:
        raise ApiError("too-many-operations", f"{error}.", headers={"Retry-After": "30"}) from error
    for item in lines.items:
        if isinstance(item.outcome, Ending) and item.outcome.state == "failed":
            ctx.metrics.failed(item.outcome.error)
    return batch


@router.get(SUBMIT, summary="Batches", response_model=BatchPage)
@blocking
def list_(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    page_token: Annotated[str | None, Query(max_length=1000)] = None,
) -> BatchPage:
    """Newest first."""
    try:
        page = context(request).store.batches.batches(page_token, limit)
    except ValueError as error:
        raise ApiError("bad-request", f"{error}.", "page_token") from error
    return BatchPage(batches=[summary(batch) for batch in page.items], next_page_token=page.next_page_token)


@router.get("/v1/batches/{batch_id}", summary="A batch", responses=_SHOWN, response_class=Response)
@blocking
def get(request: Request, batch_id: str) -> Response:
    """How far it is, what is being done, and how many segments its graphs share."""
    store = context(request).store
    return _response(store, found(store, batch_id))


@router.post("/v1/batches/{batch_id}:cancel", summary="Cancel a batch", responses=_SHOWN, response_class=Response)
@blocking
def cancel(request: Request, batch_id: str) -> Response:
    """Ends the items that have not ended; what has a plan keeps it. A batch that has ended stays as it is.

    An operation goes on where another batch or request waits for it.
    """
    store = context(request).store
    batch = store.batches.cancel(found(store, batch_id).id)
    assert batch is not None
    return _response(store, batch)


@router.get("/v1/batches/{batch_id}/results", summary="Results", responses=_lines(BatchResult), response_class=Response)
async def results(request: Request, batch_id: str) -> Response:
    """A line for every item that has its plan by now, in the order in which they were submitted."""
    return await _stream(context(request), batch_id, ("done",))


@router.get("/v1/batches/{batch_id}/errors", summary="Errors", responses=_lines(BatchError), response_class=Response)
async def errors(request: Request, batch_id: str) -> Response:
    """A line for every item that failed or was cancelled by now, in the order in which they were submitted."""
    return await _stream(context(request), batch_id, ("failed", "cancelled"))


def found(store: Store, batch_id: str) -> Batch:
    """The batch with this id, or the only one whose id begins so. Raises ApiError `not-found`, `ambiguous-key`."""
    batch = None if "\x00" in batch_id else store.batches.batch(batch_id)
    if batch is None and is_prefix(batch_id):
        batch = store.batches.batch(only_one(batch_id, store.batches.ids, "batch", "batches"))
    if batch is None:
        raise ApiError("not-found", "There is no batch with this id.")
    return batch


def summary(batch: Batch) -> BatchSummary:
    """The fields of a batch that a list of batches shows."""
    return BatchSummary(
        id=batch.id,
        state=batch.state,
        done=batch.finished is not None,
        items=batch.items,
        counts=ItemCounts(**batch.counts),
        created_at=moment(batch.created),
        cancelled_at=None if batch.cancelled is None else moment(batch.cancelled),
        finished_at=None if batch.finished is None else moment(batch.finished),
    )


def progress(store: Store, batch: Batch) -> BatchProgress:
    """The summary of a batch with the items that run now, at most RUNNING_SHOWN of them."""
    items = [] if batch.finished is not None else store.batches.items(batch.id, ("running",), limit=RUNNING_SHOWN)
    running = [
        RunningItem(custom_id=i.custom_id, operation=i.operation_id or "", progress=object_in(i.progress))
        for i in items
    ]
    return BatchProgress(**summary(batch).model_dump(), running=running)


def model(store: Store, batch: Batch) -> BatchModel:
    """The progress of a batch with the numbers of its segments: used, distinct and shared."""
    shared = store.batches.sharing(batch.id)
    segments = Segments(used=shared.used, distinct=shared.distinct, shared=shared.used - shared.distinct)
    return BatchModel(**progress(store, batch).model_dump(), segments=segments)


def event(item: BatchItem) -> ItemEvent:
    """The event that reports the end of an item: its state, and its result or its problem."""
    line = _line(item)
    return ItemEvent(
        custom_id=item.custom_id,
        state=item.state,
        result=line if isinstance(line, BatchResult) else None,
        error=line.problem if isinstance(line, BatchError) else None,
    )


def _line(item: BatchItem) -> BatchResult | BatchError:
    if item.state != "done":
        return BatchError(custom_id=item.custom_id, problem=problem_in(item.state, item.error))
    plan = PlanResult.model_validate_json(item.result or "")
    return BatchResult.model_validate({"custom_id": item.custom_id, "graph_key": item.graph_key, **plan.model_dump()})


async def _stream(ctx: Context, batch_id: str, states: tuple[OperationState, ...]) -> Response:
    batch = await ctx.database.run(found, ctx.store, batch_id)

    async def lines() -> AsyncIterator[str]:
        after = -1
        while items := await ctx.database.run(ctx.store.batches.items, batch.id, states, after, _CHUNK):
            after = items[-1].number
            yield "".join(_line(item).model_dump_json(exclude_none=True) + "\n" for item in items)

    return StreamingResponse(lines(), 200, {"Cache-Control": "no-store"}, LINES)


def _response(store: Store, batch: Batch) -> Response:
    return Response(model(store, batch).model_dump_json(), 200, {"Cache-Control": "no-store"}, "application/json")


def _idempotency_key(request: Request) -> str | None:
    """The key, with or without the quotes of a structured field. Raises ApiError."""
    text = request.headers.get("idempotency-key")
    if text is None:
        return None
    key = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if not _KEY.fullmatch(key):
        raise ApiError("bad-request", "Expected 1 to 255 visible ASCII characters.", "Idempotency-Key")
    return key


@contextmanager
def _in_flight(ctx: Context, key: str | None) -> Iterator[None]:
    """Holds an idempotency key while its request is read. Raises ApiError where another request holds it."""
    if key is None:
        yield
        return
    if key in ctx.submitting:
        raise ApiError("idempotency-key-in-flight", "A request with this key is being read.", "Idempotency-Key")
    ctx.submitting.add(key)
    try:
        yield
    finally:
        ctx.submitting.discard(key)
