"""A problem document as an HTTP response; the documents are of `service.errors`, which the command line reads, too."""

import json
from collections.abc import Mapping

from starlette.responses import Response

from service.errors import MEDIA_TYPE, RETRY_SECONDS, problem


def problem_response(
    slug: str,
    detail: str,
    place: str | None = None,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The document as a response; never cached."""
    document = problem(slug, detail, place, status)
    body = json.dumps(document.model_dump(exclude_none=True), ensure_ascii=True).encode()
    always = {"Cache-Control": "no-store"}
    if document.status in (429, 503):
        always["Retry-After"] = str(RETRY_SECONDS)
    return Response(body, document.status, {**always, **(headers or {})}, MEDIA_TYPE)
