"""Batches over HTTP: what a line becomes, what refuses a batch, keys, results apart from errors, events."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from fusion_ir.keys.graph_key import graph_key
from fusion_ir.text.printing import print_graph
from service.jobs import PlanJob, PlanResult
from tests.support.service_app import Running, running, stored, wire
from tests.support.stored_plans import chain, store_plan
from tuning_db.operation import Operation

KEY = graph_key(chain())
NDJSON = {"Content-Type": "application/x-ndjson"}
HIT, MISS, BAD = {"graph": wire()}, {"graph": wire(9)}, {"graph": wire(8, ("exqp",))}


def lines(*members: Any) -> bytes:
    """Each as a line of JSON; objects without a custom_id get i0, i1, ..."""
    named = [{"custom_id": f"i{n}", **m} if isinstance(m, dict) else m for n, m in enumerate(members)]
    return b"".join(json.dumps(value).encode() + b"\n" for value in named)


def post(service: Running, body: bytes, query: str = "", **headers: str) -> httpx.Response:
    return service.client.post(f"/v1/batches{query}", content=body, headers={**NDJSON, **headers})


def submit(service: Running, *members: Any, **headers: str) -> dict[str, Any]:
    response = post(service, lines(*members), **headers)
    assert response.status_code == 201, response.text
    assert response.headers["location"] == f"/v1/batches/{response.json()['id']}"
    return response.json()


def get(service: Running, batch: dict[str, Any], what: str = "") -> Any:
    response = service.client.get(f"/v1/batches/{batch['id']}{what}")
    assert response.status_code == 200
    if not what:
        return response.json()
    assert response.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()]


def lease(service: Running) -> Operation:
    held = service.store.queue.lease("w", 60)
    assert held is not None
    return held


def finish(service: Running, error: str | None = None) -> PlanJob:
    held = lease(service)
    result = PlanResult(plan_key="0" * 64, cache="miss", state="measured").model_dump_json()
    assert service.store.queue.finish(held.id, "w", held.token, result=None if error else result, error=error)
    return PlanJob.model_validate_json(held.payload)


def test_what_lines_become(service: Running) -> None:
    plan_key = store_plan(service.store, chain())
    unknown = {"graph_key": "0" * 64}
    batch = submit(service, HIT, MISS, BAD, {**MISS, "target": "cuda"}, unknown, MISS, {"graph_key": KEY}, {})
    assert (batch["state"], batch["done"], batch["items"]) == ("running", False, 8)
    assert batch["counts"] == {"queued": 2, "running": 0, "done": 2, "failed": 4, "cancelled": 0}
    assert batch["segments"] == {"used": 0, "distinct": 0, "shared": 0}
    assert len(service.store.queue.operations()) == 1, "equal lines share an operation"
    assert get(service, batch, "/results") == [
        {"custom_id": name, "plan_key": plan_key, "graph_key": KEY, "cache": "hit", "state": "measured"}
        for name in ("i0", "i6")
    ]
    problems = {e["custom_id"]: e["problem"] for e in get(service, batch, "/errors")}
    assert {name: p["type"].rpartition("/")[2] for name, p in problems.items()} == {
        "i2": "bad-graph",
        "i3": "no-device",
        "i4": "unknown-graph",
        "i7": "bad-request",
    }
    assert problems["i2"]["place"].startswith("/graph/nodes/0")


def test_a_batch_from_submission_to_end(service: Running) -> None:
    batch = submit(service, MISS, {"source": print_graph(chain(10)), "seconds": 2.5, "numerics": "exact"})
    held = lease(service)
    service.store.queue.progress(held.id, "w", held.token, '{"phase": "segments"}')
    shown = get(service, batch)
    assert shown["counts"]["running"] == 1
    assert shown["running"] == [{"custom_id": "i0", "operation": held.id, "progress": {"phase": "segments"}}]
    service.store.queue.release(held.id, "w", held.token)
    assert finish(service) == PlanJob(graph_key=graph_key(chain(9)), target="cpu", seconds=30, numerics="reassociate")
    assert finish(service, "no kernel passed") == PlanJob(
        graph_key=graph_key(chain(10)), target="cpu", seconds=2.5, numerics="exact"
    )
    shown = get(service, batch)
    assert (shown["state"], shown["done"], shown["running"]) == ("done", True, [])
    assert shown["finished_at"] >= shown["created_at"]
    assert [r["custom_id"] for r in get(service, batch, "/results")] == ["i0"]
    assert [(e["custom_id"], e["problem"]["detail"]) for e in get(service, batch, "/errors")] == [
        ("i1", "no kernel passed")
    ]


def test_parameters_stand_in_for_members_that_lines_lack(service: Running) -> None:
    response = post(service, lines(MISS, {**MISS, "graph": wire(10), "seconds": 1}), "?seconds=4&numerics=exact")
    assert response.status_code == 201
    assert [(job.seconds, job.numerics) for job in (finish(service), finish(service))] == [(4, "exact"), (1, "exact")]
    for query, type_, place in (
        ("?seconds=1e9", "bad-request", "seconds"),
        ("?seconds=4000", "bad-request", "seconds"),
        ("?memory_bytes=0", "bad-request", "memory_bytes"),
        ("?memory_bytes=8GiB", "bad-request", "memory_bytes"),
        (f"?sampler={'x' * 201}", "bad-request", "sampler"),
        ("?target=gpu", "bad-request", "target"),
        ("?target=cuda", "no-device", "/target"),
    ):
        refused = post(service, lines(MISS), query)
        assert (refused.status_code, refused.json()["type"]) == (422, f"/errors/{type_}")
        assert refused.json()["place"] == place


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", "1"),
        (b"\n \r\n", "1"),
        (lines(MISS) + b'{"custom_id": "x", }\n', "2:20"),
        (lines(MISS) + b"\xff\n", "2:1"),
        (lines(MISS, 3), "2"),
        (lines(MISS, {**MISS, "custom_id": "i0"}), "2"),
        (b"\n" + lines({**MISS, "custom_id": ""}), "2"),
        (lines({**MISS, "custom_id": "a\nb"}), "1"),
        (lines({**MISS, "custom_id": 7}), "1"),
        (lines({**MISS, "custom_id": "x" * 513}), "1"),
        (b'{"custom_id": "\\ud800"}\n', "1"),
        (b'{"graph_key": "x"}\n', "1"),
        (b'{"custom_id": "a", "custom_id": "b"}\n', "1:1"),
    ],
)
def test_a_line_that_cannot_be_told_apart_refuses_the_batch(service: Running, body: bytes, place: str) -> None:
    refused = post(service, body)
    assert (refused.status_code, refused.json()["type"]) == (422, "/errors/bad-batch")
    assert refused.json()["place"] == place
    assert stored(service.store) == (0, 0)
    assert service.client.get("/v1/batches").json() == {"batches": [], "next_page_token": None}


def test_limits(tmp_path: Path) -> None:
    limits = {"max_batch_items": 2, "max_batch_bytes": 2000, "max_body_bytes": 1024, "max_batch_queue": 1}
    with running(tmp_path, **limits) as service:
        assert post(service, lines(MISS, BAD, BAD)).json()["place"] == "3"
        assert post(service, lines(MISS, MISS) + b" " * 1000).status_code == 201, "more than other bodies may have"
        full = post(service, lines({"graph": wire(10)}))
        assert (full.status_code, full.json()["type"]) == (429, "/errors/too-many-operations")
        assert full.headers["retry-after"]
        large = post(service, lines(MISS) + b" " * 2000)
        assert large.status_code == 413 and "max_batch_bytes" in large.json()["detail"]
        other = service.client.post("/v1/plans:resolve", content=b" " * 1025)
        assert other.status_code == 413 and "max_body_bytes" in other.json()["detail"]


def test_other_media_types_are_refused(service: Running) -> None:
    refused = service.client.post("/v1/batches", content=lines(MISS), headers={"Content-Type": "application/json"})
    assert refused.status_code == 415
    taken = service.client.post("/v1/batches", content=lines(MISS), headers={"Content-Type": "application/jsonl; a=b"})
    assert taken.status_code == 201


def test_the_same_key_answers_the_same_batch(service: Running) -> None:
    first = submit(service, MISS, **{"Idempotency-Key": "k1"})
    finish(service)
    again = submit(service, MISS, **{"Idempotency-Key": '"k1"'})
    assert (again["id"], again["state"]) == (first["id"], "done")
    for response in (
        post(service, lines(HIT), **{"Idempotency-Key": "k1"}),
        post(service, lines(MISS), "?seconds=3", **{"Idempotency-Key": "k1"}),
        post(service, b"not even lines", **{"Idempotency-Key": "k1"}),
    ):
        assert (response.status_code, response.json()["type"]) == (422, "/errors/idempotency-key-reused")
    assert submit(service, MISS, **{"Idempotency-Key": "k2"})["id"] != first["id"]
    assert post(service, lines(MISS), **{"Idempotency-Key": ""}).json()["place"] == "Idempotency-Key"
    assert post(service, b"{\n", **{"Idempotency-Key": "k3"}).status_code == 422
    assert submit(service, MISS, **{"Idempotency-Key": "k3"}), "a refused batch does not use up its key"


def test_a_key_in_flight_is_409(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go = threading.Event(), threading.Event()
    submit_ = service.store.batches.submit

    def slow(*arguments: Any, **given: Any) -> Any:
        reading.set()
        assert go.wait(20)
        return submit_(*arguments, **given)

    monkeypatch.setattr(service.store.batches, "submit", slow)
    answers: list[int] = []
    headers = {"Idempotency-Key": "k"}
    first = threading.Thread(target=lambda: answers.append(post(service, lines(MISS), **headers).status_code))
    first.start()
    assert reading.wait(20)
    second = post(service, lines(MISS), **headers)
    go.set()
    first.join()
    assert (second.status_code, second.json()["type"]) == (409, "/errors/idempotency-key-in-flight")
    assert answers == [201]
    assert post(service, lines(MISS), **headers).status_code == 201


def test_a_stale_plan_is_made_again(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    store_plan(service.store, chain(), version="older")
    assert submit(service, HIT)["counts"]["queued"] == 1


def test_cancelling_keeps_plans_and_spares_others(service: Running) -> None:
    batch = submit(service, MISS, {"graph": wire(10)}, {"graph": wire(11)})
    finish(service)
    asked = service.client.post("/v1/plans:resolve", json={"graph": wire(10)}).json()["operation"]["id"]
    cancelled = service.client.post(f"/v1/batches/{batch['id']}:cancel").json()
    assert (cancelled["state"], cancelled["done"]) == ("cancelled", True)
    assert cancelled["counts"] == {"queued": 0, "running": 0, "done": 1, "failed": 0, "cancelled": 2}
    assert cancelled["cancelled_at"] and cancelled["finished_at"]
    assert [o.id for o in service.store.queue.operations(["queued"])] == [asked]
    assert [r["custom_id"] for r in get(service, batch, "/results")] == ["i0"]
    assert {e["problem"]["type"] for e in get(service, batch, "/errors")} == {"/errors/cancelled"}
    assert service.client.post(f"/v1/batches/{batch['id']}:cancel").json() == cancelled


def test_lists_are_paged_and_unknown_ids_are_not_found(service: Running) -> None:
    ids = {submit(service, BAD)["id"] for _ in range(3)}
    first = service.client.get("/v1/batches?limit=2").json()
    rest = service.client.get(f"/v1/batches?limit=2&page_token={first['next_page_token']}").json()
    assert {b["id"] for b in first["batches"] + rest["batches"]} == ids
    assert rest["next_page_token"] is None
    assert service.client.get("/v1/batches?page_token=x").status_code == 422
    for method, what in (("GET", ""), ("GET", "/results"), ("GET", "/errors"), ("GET", "/events"), ("POST", ":cancel")):
        for id in ("none", "%00", "0123", "%25%25%25%25"):
            assert service.client.request(method, f"/v1/batches/{id}{what}").status_code == 404


def test_thousands_of_results_are_all_there(service: Running) -> None:
    names = [f"é{n}" for n in range(1201)]
    body = lines(*({**BAD, "custom_id": name} for name in names))
    batch = post(service, body).json()
    assert [e["custom_id"] for e in get(service, batch, "/errors")] == names
    assert [data["custom_id"] for _, kind, data in events(service, batch) if kind == "item"] == names


Event = tuple[int | None, str, Any]


def events(service: Running, batch: dict[str, Any], last: int | None = None) -> Sequence[Event]:
    """The stream to its end: id, kind and data of each event."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    response = service.client.get(f"/v1/batches/{batch['id']}/events", headers=headers)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    found: list[Event] = []
    for block in response.text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            id = fields.get("id")
            found.append((None if id is None else int(id), fields["event"], json.loads(fields["data"])))
    return found


def test_events_of_an_ended_batch_and_going_on_after_one(service: Running) -> None:
    batch = submit(service, MISS, BAD)
    finish(service)
    found = events(service, batch)
    assert [(id, kind) for id, kind, _ in found] == [(1, "item"), (2, "item"), (3, "end")]
    assert (found[0][2]["custom_id"], found[0][2]["error"]["type"]) == ("i1", "/errors/bad-graph")
    assert (found[1][2]["custom_id"], found[1][2]["state"]) == ("i0", "done")
    assert found[1][2]["result"]["plan_key"] == "0" * 64
    assert found[2][2] == get(service, batch)
    assert events(service, batch, 1) == found[1:]
    assert events(service, batch, 2) == found[2:]
    address = f"/v1/batches/{batch['id']}/events"
    assert service.client.get(address, headers={"Last-Event-ID": "3"}).status_code == 204
    assert service.client.get(address, headers={"Last-Event-ID": "x"}).json()["place"] == "Last-Event-ID"


def test_events_follow_a_batch_to_its_end(service: Running) -> None:
    batch = submit(service, MISS, {"graph": wire(10)})
    found: list[Event] = []
    reader = threading.Thread(target=lambda: found.extend(events(service, batch)))
    reader.start()
    held = lease(service)
    service.store.queue.progress(held.id, "w", held.token, '{"phase": "segments"}')
    service.store.queue.release(held.id, "w", held.token)
    finish(service)
    finish(service)
    reader.join(30)
    assert [(id, kind) for id, kind, _ in found if kind != "progress"] == [(1, "item"), (2, "item"), (3, "end")]
    assert all(id is None for id, kind, _ in found if kind == "progress")


def test_streams_are_limited(service: Running) -> None:
    batch = submit(service, BAD)
    service.app.state.context.streams = service.settings.max_event_streams
    refused = service.client.get(f"/v1/batches/{batch['id']}/events")
    assert (refused.status_code, refused.json()["type"]) == (429, "/errors/too-many-streams")
    service.app.state.context.streams = 0
    assert events(service, batch)
    assert service.app.state.context.streams == 0


def test_a_batch_that_can_never_wait_is_told_so(tmp_path: Path) -> None:
    """429 says that waiting helps."""
    with running(tmp_path, max_batch_queue=3) as service:
        lines = "".join(json.dumps({"custom_id": str(n), "graph": wire(n)}) + "\n" for n in range(1, 21))
        headers = {"Content-Type": "application/x-ndjson"}
        response = service.client.post("/v1/batches", content=lines, headers=headers)
        assert (response.status_code, response.json()["type"]) == (422, "/errors/batch-too-large")
        assert "20 operations" in response.json()["detail"]
        assert "at most 3 " in response.json()["detail"]
        assert service.store.graphs.graph(graph_key(chain(1))) is None
        three = "".join(lines.splitlines(keepends=True)[:3])
        assert service.client.post("/v1/batches", content=three, headers=headers).status_code == 201
        one = lines.splitlines(keepends=True)[3]
        assert service.client.post("/v1/batches", content=one, headers=headers).status_code == 429
        assert service.store.graphs.graph(graph_key(chain(4))) is None


def test_the_beginning_of_an_id_stands_for_it(service: Running) -> None:
    batch = submit(service, BAD)
    for what in ("", "/results", "/errors", "/events"):
        whole, short = (service.client.get(f"/v1/batches/{id}{what}") for id in (batch["id"], batch["id"][:8]))
        assert (short.status_code, short.content) == (200, whole.content), what
    assert service.client.post(f"/v1/batches/{batch['id'][:8]}:cancel").json()["id"] == batch["id"]
