"""The pages' router, or, where the extra `dashboard` is not installed, a page that says so."""

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

try:
    from service.dashboard import rendering, routes
except ModuleNotFoundError as error:
    if error.name != "jinja2":
        raise
    rendering = routes = None


def router() -> APIRouter:
    """The dashboard's endpoints."""
    return routes.router if routes is not None else _missing()


def not_found(detail: str) -> Response | None:
    """The page for an address that is none; None where there are no templates for one."""
    return None if rendering is None else rendering.missing(detail, "")


def _missing() -> APIRouter:
    missing = APIRouter(include_in_schema=False)

    @missing.get("/")
    @missing.get("/plans/{key}")
    @missing.get("/plans/{key}/{part:path}")
    @missing.get("/batches")
    @missing.get("/operations")
    @missing.get("/errors")
    @missing.get("/errors/{slug}")
    def page(key: str = "", part: str = "", slug: str = "") -> Response:
        """Every page, as far as it goes without its templates."""
        return PlainTextResponse("The pages need Jinja2: pip install 'fuseplan[dashboard]'\n", 501)

    return missing
