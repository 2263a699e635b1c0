"""GET /v1/batches/{id}/events: server-sent events, one for every item that ends, until the batch does."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from service.api.batches import event, found, model, progress
from service.api.context import Context, context
from service.errors import ApiError
from tuning_db.errors import DatabaseError

log = logging.getLogger("fuseplan.http")

router = APIRouter(tags=["batches"])

POLL_SECONDS = (0.3, 1.0)  # first and longest pause between looks: the first again when an item ends
HEARTBEAT_SECONDS = 15.0  # proxies and clients close a connection that says nothing for long
RECONNECT_MS = 1000
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
    204: {"description": "The client has seen the end."},
}


@router.get("/v1/batches/{batch_id}/events", summary="Events of a batch", responses=_STREAM, response_class=Response)
async def events(request: Request, batch_id: str) -> Response:
    """`item` for every item that has ended, with the number of its ending as id; `progress` now and then, without id;
    `end` with the whole batch, and the stream closes. `Last-Event-ID` goes on after the event of that id. A stream that
    closes before its `end` belongs to a server that stops: come back.
    """
    ctx = context(request)
    after = _last_event_id(request)
    batch = await ctx.database.run(found, ctx.store, batch_id)
    if batch.finished is not None and after > batch.items:
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    if ctx.streams >= ctx.settings.max_event_streams:
        raise ApiError("too-many-streams", f"{ctx.streams} streams are open.", headers={"Retry-After": "5"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(ctx, batch.id, after), 200, headers, "text/event-stream")


async def _events(ctx: Context, batch_id: str, after: int) -> AsyncIterator[str]:
    ctx.streams += 1
    try:
        yield f"retry: {RECONNECT_MS}\n\n"
        shown, said = "", time.monotonic()
        pause, longest = POLL_SECONDS
        while not ctx.stopping:
            batch = await ctx.database.run(found, ctx.store, batch_id)
            # Read after the batch: where that has ended, these are all.
            while items := await ctx.database.run(ctx.store.batches.ended, batch_id, after):
                after = items[-1].event or after
                yield "".join(_event("item", event(item), item.event) for item in items)
                said, pause = time.monotonic(), POLL_SECONDS[0]
            if batch.finished is not None:
                yield _event("end", await ctx.database.run(model, ctx.store, batch), batch.items + 1)
                return
            now = _event("progress", await ctx.database.run(progress, ctx.store, batch))
            if now != shown:
                yield now
                shown, said = now, time.monotonic()
            elif time.monotonic() - said >= HEARTBEAT_SECONDS:
                yield ": still here\n\n"
                said = time.monotonic()
            await asyncio.sleep(pause)
            pause = min(1.2 * pause, longest)
    except (ApiError, DatabaseError) as error:
        log.warning("a stream of events ends: %s", error)  # its reader comes back to where it was
    finally:
        ctx.streams -= 1


def _event(name: str, data: BaseModel, id: int | None = None) -> str:
    head = "" if id is None else f"id: {id}\n"
    return f"{head}event: {name}\ndata: {data.model_dump_json()}\n\n"


def _last_event_id(request: Request) -> int:
    """0 without one. Raises ApiError."""
    text = request.headers.get("last-event-id", "").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ApiError("bad-request", "Expected the id of an event of this batch, a whole number.", "Last-Event-ID")
    return int(text)
