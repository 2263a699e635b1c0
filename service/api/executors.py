"""GET /v1/executor: what programs run plans for CPUs with."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from codegen.sandbox.object_cache import CacheError, ObjectCache
from codegen.toolchain.compiler import CompilerMissing
from codegen.toolchain.cpu import host_arch
from service.api.context import context
from service.api.immutable import immutable
from service.api.signed import SIGNATURE_HEADER, signed
from service.api.threads import in_threads
from service.errors import ApiError
from service.planning.executor import executor

router = APIRouter(tags=["artifacts"])
PLACE = "/v1/executor"


@router.get(
    PLACE,
    summary="The executor of plans for CPUs",
    response_class=Response,
    responses={
        200: {
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            "headers": SIGNATURE_HEADER,
        },
        304: {"description": "The client has it."},
    },
)
@in_threads("pages")
def get_executor(request: Request, arch: str = "") -> Response:
    """A shared object that runs the steps of plans on a program's own threads or on its own, for CPUs of `arch`: the
    server's own by default. Its ETag is its sha256. `fuseplan_client` loads it."""
    if arch not in ("", host_arch()):
        raise ApiError("not-found", f"This server compiles for {host_arch()}, not for {arch}.", "arch")
    ctx = context(request)
    try:
        sha256, data = executor(ObjectCache(ctx.settings.cache, ctx.store.seal()))
    except (CompilerMissing, CacheError) as error:
        raise ApiError("no-device", f"The executor cannot be compiled: {error}") from error
    answer = immutable(request, sha256, data, "application/octet-stream", PLACE)
    answer.headers.update(signed(request, data))
    return answer
