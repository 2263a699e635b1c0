"""The OpenAPI document: FastAPI's, with our error shape for its own, and the bodies that we read ourselves."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fusion_ir.formats.side_json import SideInput, SideModel
from service.api.batch_models import BatchLine
from service.errors import MEDIA_TYPE, Problem

_REFERENCE = "#/components/schemas/{model}"


def install(app: FastAPI) -> None:
    """Makes `app.openapi` give our document, made once."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def body(model: type[Any]) -> dict[str, Any]:
    """`openapi_extra` of an endpoint that reads its JSON body itself, as a `model`."""
    schema = model.model_json_schema(ref_template=_REFERENCE)
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = Problem.model_json_schema(ref_template=_REFERENCE)
    for model in (SideModel, SideInput, BatchLine):
        schemas[model.__name__] = model.model_json_schema(ref_template=_REFERENCE)
        schemas[model.__name__].pop("$defs", None)
    problem = {
        "description": "Any error: a problem document (RFC 9457).",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = problem
    return document
