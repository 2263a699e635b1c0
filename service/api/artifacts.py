"""Graphs and compiled kernels, which plans refer to by sha256."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.api.context import context
from service.api.immutable import check_key, immutable
from service.api.models import GraphModel, Names
from service.api.threads import blocking
from service.errors import ApiError

router = APIRouter(tags=["artifacts"])


@router.get(
    "/v1/binaries/{sha256}",
    summary="A compiled kernel",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        304: {"description": "The client has it."},
    },
)
@blocking
def binary(request: Request, sha256: str) -> Response:
    """A shared object (cpu) or cubin (cuda) that a plan's steps name. Its sha256 is its address."""
    content = context(request).store.plans.binary(check_key(sha256, "binary"))
    if content is None:
        raise ApiError("not-found", "There is no binary with this key, or it is damaged: resolve the graph again.")
    return immutable(request, sha256, content, "application/octet-stream")


@router.get("/v1/graphs/{graph_key}", summary="A graph", response_model=GraphModel)
@blocking
def graph(request: Request, graph_key: str) -> GraphModel:
    """Canonical text, whose sha256 is the key, and the names it was last sent with."""
    stored = context(request).store.graphs.graph(check_key(graph_key, "graph"))
    if stored is None:
        raise ApiError("unknown-graph", "No graph with this key is stored, or it is damaged: send the graph itself.")
    names = Names(inputs=list(stored.names.inputs), outputs=list(stored.names.outputs), nodes=list(stored.names.nodes))
    return GraphModel(graph_key=stored.graph_key, text=stored.text, names=names)
