"""The application: settings in, FastAPI out. What it is made of, in order, on one screen."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from codegen.devices.detection import DeviceError, detect
from codegen.sandbox.object_cache import CacheError, ObjectCache
from codegen.toolchain.compiler import CompilerMissing
from fusion_ir.records import Device
from service import disk
from service.api import (
    artifacts,
    batch_events,
    batches,
    devices,
    executors,
    health,
    openapi,
    operations,
    plans,
    refusals,
    resolve,
    signed,
)
from service.api.context import Context, DetectedDevices, Memo, context
from service.api.middleware import Gate, host_names
from service.api.readers import Readers
from service.api.threads import Threads
from service.dashboard import pages
from service.dashboard.layouts import Layouts
from service.errors import ApiError, OperationFailed, in_words, pointer
from service.problem_response import problem_response
from service.settings import Settings
from service.signing.key import open_key
from service.version import VERSION
from tuning_db.errors import DatabaseError
from tuning_db.store import Store

log = logging.getLogger("fuseplan.app")

BATCH_SECONDS = 600.0  # that reading a batch may take
CLOSE_SECONDS = 5.0

ROUTERS = (
    resolve.router,
    plans.router,
    refusals.router,
    artifacts.router,
    executors.router,
    operations.router,
    batches.router,
    batch_events.router,
    devices.router,
    signed.router,
    health.router,
    pages.router(),
)

DESCRIPTION = """Plans for fusion graphs: how to cut a graph into kernels, and the kernels.

`POST /v1/plans:resolve` is the way in. Errors are problem documents (RFC 9457); their `type` resolves to a page."""


def create_app(
    settings: Settings, *, detector: Callable[[str], Device] | None = None, readers: Readers | None = None
) -> FastAPI:
    """The application, which opens the database at once. `detector` finds the device of a target (default: asks it);
    `readers` read bodies (default: its own, which end with it).

    Raises DatabaseError, CacheError, SigningKeyError.
    """
    ObjectCache(settings.cache)  # makes the folder, or says why not, before anybody needs it
    key = open_key(Path(settings.signing_key))
    store = Store(settings.db)
    found = DetectedDevices(detector or partial(_detect, settings.cache))
    reading = readers or Readers()
    ctx = Context(
        settings,
        store,
        found,
        Memo(settings.memo_bytes),
        VERSION,
        reading,
        key,
        database=Threads(16, 112, settings.db_seconds, "database-unavailable", "The database"),
        # Few at a time, since the machine is measuring: some wait for others that take all the time that they may.
        drawing=Threads(2, 30, 3 * settings.layout_seconds + settings.db_seconds, "busy", "The drawing of graphs"),
        pages=Threads(4, 28, settings.layout_seconds + settings.db_seconds, "busy", "The pages"),
        batches=Threads(2, 6, BATCH_SECONDS, "busy", "The reader of batches"),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        ctx.readers.start()
        warming = asyncio.create_task(_warm(ctx))
        yield
        warming.cancel()
        if readers is None:
            await asyncio.to_thread(reading.close)
        try:
            await ctx.database.within(CLOSE_SECONDS, store.close)
        except ApiError as error:
            log.warning("the database was left as it is: %s", error)
        for threads in (ctx.database, ctx.pages, ctx.drawing, ctx.batches):
            threads.close()

    app = FastAPI(
        title="Fuseplan",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = ctx
    app.state.layouts = Layouts(ctx.drawing)
    for router in ROUTERS:
        app.include_router(router)
    app.router.routes.append(Mount("/static", StaticFiles(packages=[("service.dashboard", "static")]), name="static"))
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(DatabaseError, _no_database)
    limits = {
        "": ("max_body_bytes", settings.max_body_bytes),
        batches.SUBMIT: ("max_batch_bytes", settings.max_batch_bytes),
    }
    app.add_middleware(
        Gate,
        hosts=host_names(settings.allowed_hosts),
        limits=limits,
        most_held=settings.max_held_bytes,
        observe=ctx.metrics.observe,
        problem=ctx.metrics.problem,
    )
    openapi.install(app)
    return app


def _detect(cache: str, target: str) -> Device:
    """Without its ceilings: keys and conditions need none, and workers measure them. Raises DeviceError."""
    try:
        return detect(target, ObjectCache(cache), ceilings=False)
    except CompilerMissing as error:
        raise DeviceError(str(error)) from error


async def _warm(ctx: Context) -> None:
    """Detects the default target's device ahead of the first request, and says where there is no room to write."""
    try:
        await asyncio.to_thread(disk.check, ctx.settings)
    except CacheError as error:
        log.error("%s", error)
    try:
        await asyncio.to_thread(ctx.devices.detect, ctx.settings.target)
    except DeviceError as error:
        log.warning("target %s: %s", ctx.settings.target, error)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    if not isinstance(error, OperationFailed):
        context(request).metrics.problem(error.slug)
    return problem_response(error.slug, error.detail, error.place, error.status, error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    """The answer to a path or query parameter that FastAPI refused."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = tuple(first["loc"])
    where = str(place[-1]) if place[:1] == ("query",) else pointer(place)
    return await _api_error(request, ApiError("bad-request", in_words(first), where))


async def _http_error(request: Request, error: Exception) -> Response:
    """The answer to a request that the router itself refuses: 404 and 405, and whatever Starlette may add."""
    assert isinstance(error, HTTPException)
    slug = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http-error")
    detail = {404: "There is no endpoint at this address.", 405: "The Allow header lists the methods."}.get(
        error.status_code, error.detail
    )
    if error.status_code == 404 and _for_a_person(request) and (page := pages.not_found(detail)) is not None:
        context(request).metrics.problem(slug)
        return page
    return await _api_error(request, ApiError(slug, detail, status=error.status_code, headers=error.headers))


def _for_a_person(request: Request) -> bool:
    """Whether a browser asks for a page, and not for an endpoint of the API."""
    is_page = request.method in ("GET", "HEAD") and not request.url.path.startswith("/v1/")
    return is_page and "text/html" in request.headers.get("Accept", "").lower()


async def _no_database(request: Request, error: Exception) -> Response:
    log.error("%s", error)
    detail = "The database does not answer; the server's log says why."
    return await _api_error(request, ApiError("database-unavailable", detail))
