"""POST /v1/plans:resolve, the hot path: a graph goes in, its plan comes out, or the operation that will make it."""

import asyncio
import json
import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.api.bodies import receive
from service.api.context import Context, Remembered, context
from service.api.models import Pending, Resolution, ResolveRequest
from service.api.openapi import body as json_body
from service.api.operations import model as operation_model
from service.api.operations import problem_of, retry_after
from service.api.prefer import wait_seconds
from service.api.readers import Read
from service.api.reading import check_device, check_sampler, check_seconds
from service.api.signed import SIGNATURE_HEADER, signed
from service.errors import ApiError, OperationFailed
from service.jobs import PLAN, PlanJob
from service.wording.failures import failed_before
from tuning_db.errors import QueueFull
from tuning_db.failures import FailureKey
from tuning_db.graphs import NewGraph
from tuning_db.operation import Operation
from tuning_db.requests import Conditions, RequestKey, Resolved

router = APIRouter(tags=["plans"])


@router.post(
    "/v1/plans:resolve",
    summary="The plan for a graph",
    responses={
        200: {"model": Resolution, "description": "The plan.", "headers": SIGNATURE_HEADER},
        202: {"model": Pending, "description": "Being planned."},
    },
    openapi_extra=json_body(ResolveRequest),
)
async def resolve(request: Request) -> Response:
    """The plan for `graph` (or `source`, or a stored `graph_key`) on `target`, from the database if it is there.

    Otherwise 202 with an operation; equal requests join the same one. `Prefer: wait=N` waits up to N seconds for it.
    A search that failed is not made again; with `Cache-Control: no-cache` it is.
    A plan that is `stale`, or whose search was cut short with less time than this request has, is answered as it is,
    and another search is made meanwhile (`refining`); with `Cache-Control: no-cache` for any plan: it is timed again.
    """
    ctx = context(request)
    _check_media_type(request)
    body, digest = await receive(request)
    remembered = ctx.memo.get(digest)
    ask: Read | None = None
    if remembered is None:
        ask, remembered = await _read(ctx, body)
        if ask.text is not None:
            ctx.memo.put(digest, remembered)
    found = await ctx.database.run(
        ctx.store.plans.resolve, remembered.request, remembered.conditions, remembered.seconds
    )
    if found is not None:
        ctx.metrics.resolves.labels("hit").inc()
        again = _wants_another(request)
        due = found.due or again
        refining = due and await _refine(ctx, remembered, ask or (await _read(ctx, body))[0], again=again)
        return _answer(request, digest, found, "hit", remembered.names, refining=refining)
    ctx.metrics.resolves.labels("miss").inc()
    await ctx.database.run(_forget_failure if _wants_another(request) else _check_failure, ctx, remembered)
    operation = await _queue(ctx, remembered, ask or (await _read(ctx, body))[0])
    operation = await _wait(ctx, operation, wait_seconds(request, ctx.settings.max_wait_seconds))
    if operation.state == "done":
        found = await ctx.database.run(
            ctx.store.plans.resolve, remembered.request, remembered.conditions, remembered.seconds
        )
        if found is not None:
            return _answer(request, digest, found, "miss", remembered.names)
    if operation.state in ("failed", "cancelled"):
        problem = problem_of(operation)
        error = OperationFailed if operation.state == "failed" else ApiError
        raise error(problem.type.rpartition("/")[2], problem.detail, problem.place)
    pending = Pending(operation=operation_model(operation), best_plan=None)
    headers = {
        "Location": f"/v1/operations/{operation.id}",
        "Retry-After": str(await ctx.database.run(retry_after, ctx.store, operation)),
        "Cache-Control": "no-store",
    }
    return Response(pending.model_dump_json(), 202, headers, "application/json")


async def _read(ctx: Context, body: bytes) -> tuple[Read, Remembered]:
    """The request with its key. Raises ApiError."""
    _, ask = await asyncio.wrap_future(ctx.readers.submit(body))
    assert isinstance(ask, Read)  # a body that is wrong is an error of the future's
    check_seconds(ctx.settings, ask.seconds, "/seconds")
    check_sampler(ctx.settings, ask.sampler, "/sampler")
    device = await ctx.devices.get(ask.target or ctx.settings.target)
    check_device(device, ask.device_key, "/device_key")
    names = ask.names
    if ask.text is None:
        stored = await ctx.database.run(ctx.store.graphs.graph, ask.graph_key)
        if stored is None:
            raise ApiError("unknown-graph", "No graph with this key is stored.", "/graph_key")
        names = stored.names.json().encode()
    key = RequestKey(ask.graph_key, device.class_key, ask.numerics, memory_bytes=ask.memory_bytes)
    seconds = ask.seconds or ctx.settings.default_seconds
    return ask, Remembered(key, Conditions.of_device(device, ctx.version), seconds, names)


def _wants_another(request: Request) -> bool:
    """Whether a search is to be made again, one that failed or one that made a plan: `Cache-Control: no-cache` (RFC
    9111, 5.2.1.4)."""
    given = ",".join(request.headers.getlist("cache-control"))
    return "no-cache" in (directive.strip().lower() for directive in given.split(","))


def _forget_failure(ctx: Context, remembered: Remembered) -> None:
    ctx.store.failures.forget(remembered.request)


def _check_failure(ctx: Context, remembered: Remembered) -> None:
    """Raises ApiError where a search for this request ended without a plan, and would again."""
    problem = failed_before(ctx.store, remembered.request, remembered.conditions, remembered.seconds)
    if problem is not None:
        raise ApiError(problem.type.rpartition("/")[2], problem.detail, problem.place)


async def _queue(ctx: Context, remembered: Remembered, ask: Read, *, again: bool = False) -> Operation:
    """The operation that makes this plan, though there is one where it is to be made `again`: a new one, or the one
    that is under way. Raises ApiError."""

    def work() -> Operation:
        graphs = [] if ask.text is None else [NewGraph(ask.graph_key, ask.text.decode(), ask.parsed_names())]
        request, limit = remembered.request, ctx.settings.max_queue
        job = PlanJob(
            graph_key=ask.graph_key,
            target=ask.target or ctx.settings.target,
            seconds=remembered.seconds,
            numerics=ask.numerics,
            memory_bytes=ask.memory_bytes,
            sampler=ask.sampler,
            again=again,
        )
        return ctx.store.queue.submit(
            PLAN,
            job.model_dump_json(),
            request.digest,
            device_key=request.device_key,
            limit=limit,
            graphs=graphs,
            failing=FailureKey(request, remembered.conditions, remembered.seconds),
        )

    try:
        return await ctx.database.run(work)
    except QueueFull as error:
        raise ApiError("too-many-operations", f"{error}.", headers={"Retry-After": "30"}) from error


async def _refine(ctx: Context, remembered: Remembered, ask: Read, *, again: bool) -> bool:
    """Whether another search is waiting or running now. Where the queue is full, the answer is what there is."""
    try:
        await _queue(ctx, remembered, ask, again=again)
    except ApiError as error:
        if error.slug != "too-many-operations":
            raise
        return False
    return True


async def _wait(ctx: Context, operation: Operation, seconds: float) -> Operation:
    """The operation once it is done, or as it is after `seconds`. Raises ApiError where the server ends before."""
    deadline = time.monotonic() + seconds
    while operation.is_open and (left := deadline - time.monotonic()) > 0:
        await ctx.watcher.changed(operation, left)
        operation = await ctx.database.run(ctx.store.queue.operation, operation.id) or operation
    return operation


def _answer(
    request: Request, digest: bytes, found: Resolved, cache: str, names: bytes, *, refining: bool = False
) -> Response:
    """The envelope around the stored bytes of the plan: they are not read, so they still hash to `plan_key`. digest:
    sha256 of the request's body, which the signature is for."""
    head: dict[str, Any] = {
        "state": found.state,
        "cache": cache,
        "plan_key": found.plan_key,
        "graph_key": found.request.graph_key,
        "device_key": found.request.device_key,
        "cut_short": found.cut_short,
        "refining": refining,
    }
    start = json.dumps(head, separators=(",", ":"))[:-1].encode()
    content = b"".join((start, b',"plan":', found.body, b',"names":', names, b"}"))
    headers = {"Cache-Control": "no-store", "Content-Location": f"/v1/plans/{found.plan_key}"}
    return Response(content, 200, headers | signed(request, content, digest.hex()), "application/json")


def _check_media_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError("unsupported-media-type", "Expected Content-Type: application/json.", "Content-Type")
