"""Batches on the pages: how far each open one is, and what follows it; rows tell graphs of the same names apart."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.dashboard.list_view import input_types, typed_signature
from service.errors import problem
from service.jobs import PlanResult
from tests.support.service_app import Running, running, wire
from tests.support.strict_page import page

RESULT = PlanResult(plan_key="0" * 64, cache="miss", state="measured").model_dump_json()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as started:
        yield started


def finish(service: Running, error: str | None = None) -> None:
    held = service.store.queue.lease("w", 60)
    assert held is not None
    assert service.store.queue.finish(held.id, "w", held.token, result=None if error else RESULT, error=error)


def test_the_list_shows_open_batches_and_what_follows_them(service: Running) -> None:
    assert "None was submitted" in page(service, "/batches").text
    assert "Open batches" not in page(service, "/").text
    body = b"".join(json.dumps({"custom_id": f"i{n}", "graph": wire(n)}).encode() + b"\n" for n in range(8, 13))
    headers = {"Content-Type": "application/x-ndjson"}
    id = service.client.post("/v1/batches", content=body, headers=headers).json()["id"]
    finish(service)
    finish(service, problem("tuning-failed", "no").model_dump_json())
    for path in ("/", "/batches"):
        shown = page(service, path)
        assert f"batch {id[:8]} 1 of 5 done, 1 failed" in shown.text, path
        assert f"fuseplan batch watch {id[:8]} --server http://localhost" in shown.text
        assert {f"/v1/batches/{id}", f"/v1/batches/{id}/results", f"/v1/batches/{id}/errors"} <= set(shown.links)
    assert "x f32[10] → y" in page(service, "/").text, "what waits: not the same as x f32[11] → y"
    assert "x f32[11] → y" in page(service, "/").text
    for what in ("/results", "/events"):
        assert service.client.head(f"/v1/batches/{id}{what}").content == b"", "a stream is not waited for"
    for _ in range(3):
        finish(service)
    assert "Open batches" not in page(service, "/").text
    assert f"batch {id[:8]} 4 of 5 done, 1 failed" in page(service, "/batches").text


def test_operations_are_where_the_queue_is(service: Running) -> None:
    there = service.client.get("/operations", follow_redirects=False)
    assert (there.status_code, there.headers["location"]) == (307, "/")


def test_a_signature_has_types_and_always_the_outputs() -> None:
    text = "fuseplan graph 1\nin0: f32[128, 512] align 16\nin1: bf16[] strides [] align 2\n%0 = in0: f32[128, 512]\n"
    assert input_types(text) == ["f32[128, 512]", "bf16[]"]
    assert typed_signature(("a", "b"), input_types(text), ("c",)) == "a f32[128, 512], b bf16[] → c"
    many = typed_signature([f"name{i}" for i in range(40)], ["f32[128, 512]"] * 16, ("c",))
    assert many.startswith("name0 f32[128, 512], name1 f32[128, 512], ")
    assert many.endswith(", … → c")
    assert len(many) <= 90
    long = typed_signature(("x" * 200,), ["f32[8]"], ("y" * 200, "z"))
    assert len(long) <= 90
    assert "…" in long
