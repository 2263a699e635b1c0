"""The OpenAPI document as a contract: generated requests get documented answers, and never a 5xx."""

import json
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.errors import MEDIA_TYPE
from tests.support.service_process import server
from tests.support.stored_plans import chain, store_plan
from tests.support.whole import WHOLE
from tuning_db.store import Store

EXAMPLES = 15 if WHOLE else 6  # for each operation
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NOT_READY = 503


@schemathesis.serializer("application/x-ndjson")
def json_lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """Generated text, as it is or as the source of the one line of a batch."""
    text = str(value)
    sent = text if len(text) % 2 else json.dumps({"custom_id": "a", "source": text})
    return sent.encode(errors="surrogatepass")


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_generated_requests_get_documented_answers(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'fuseplan.db'}") as store:
        store_plan(store, chain())
    with server(tmp_path, workers=0) as (_, port):
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        asked: dict[str, set[int]] = {}
        for found in schema.get_all_operations():
            operation = found.ok()
            asked[f"{operation.method.upper()} {operation.path}"] = ask(operation)
    assert len(asked) >= 12
    assert all(asked.values())
    assert asked["GET /v1/plans"] >= {200, 422}
    assert asked["POST /v1/batches"] >= {201, 422}
    assert asked["POST /v1/plans:resolve"] & {400, 404, 415, 422}


def ask(operation: schemathesis.APIOperation) -> set[int]:
    """Sends generated requests, half of them against the document; the status codes that came back."""
    statuses: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(operation.as_strategy(), operation.as_strategy(GenerationMode.NEGATIVE)))
    def check(case: schemathesis.Case) -> None:
        response = case.call()
        statuses.add(response.status_code)
        if case.path == "/readyz" and response.status_code == NOT_READY:
            return
        case.validate_response(response, checks=CHECKS)
        assert response.status_code < 400 or MEDIA_TYPE in str(response.headers["content-type"])

    check()
    return statuses
