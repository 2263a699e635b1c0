"""POST /v1/plans:resolve: hit, miss, waiting, joining; what the answer holds, byte for byte."""

import hashlib
import json
import re
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from fusion_ir.keys.graph_key import graph_key
from fusion_ir.text.printing import print_graph
from service.errors import problem
from service.jobs import PLAN, PlanJob
from service.version import VERSION
from tests.support.service_app import Running, running, wire
from tests.support.stored_plans import BINARY, DEVICE, chain, plan_of, sha, store_plan
from tuning_db import operations
from tuning_db.operations import MAX_ATTEMPTS
from tuning_db.reading.graphs import Names
from tuning_db.requests import Conditions, RequestKey, Searched
from tuning_db.store import Store

KEY = graph_key(chain())


def test_a_hit_holds_the_stored_bytes_and_the_names_of_the_request(service: Running) -> None:
    plan_key = store_plan(service.store, chain())
    response = service.client.post("/v1/plans:resolve", json={"graph": wire(names=('odd "name"\n<b>', "out"))})
    assert response.status_code == 200
    answer = response.json()
    head = ["state", "cache", "plan_key", "graph_key", "device_key", "cut_short", "refining"]
    assert list(answer) == [*head, "plan", "names"]
    assert (answer["cut_short"], answer["refining"]) == (None, False)
    assert (answer["state"], answer["cache"], answer["plan_key"]) == ("measured", "hit", plan_key)
    assert (answer["graph_key"], answer["device_key"]) == (KEY, DEVICE.class_key)
    assert answer["names"] == {"inputs": ['odd "name"\n<b>'], "outputs": ["out"], "nodes": ["", "t0", "t1"]}
    body = service.store.plans.plan(plan_key)
    assert body is not None
    assert body in response.content
    assert hashlib.sha256(body).hexdigest() == plan_key
    assert response.headers["content-location"] == f"/v1/plans/{plan_key}"
    assert "no-store" in response.headers["cache-control"]


def test_renamed_graphs_hit_and_each_gets_its_own_names(service: Running) -> None:
    store_plan(service.store, chain())
    for names in (("a", "b"), ("c", "d"), ("a", "b")):
        answer = service.client.post("/v1/plans:resolve", json={"graph": wire(names=names)}).json()
        expected = {"inputs": [names[0]], "outputs": [names[1]], "nodes": ["", "t0", "t1"]}
        assert (answer["cache"], answer["names"]) == ("hit", expected)


def test_another_shape_op_or_numerics_misses(service: Running) -> None:
    store_plan(service.store, chain())
    for body in ({"graph": wire(9)}, {"graph": wire(ops=("exp", "abs"))}, {"graph": wire(), "numerics": "exact"}):
        assert service.client.post("/v1/plans:resolve", json=body).status_code == 202


def test_a_sampler_is_told_to_the_worker_and_makes_no_other_plan(service: Running) -> None:
    for asked, told in (({}, None), ({"sampler": "tpe"}, "tpe"), ({"sampler": "fuseplan"}, "fuseplan")):
        body = {"graph": wire(7 + len(str(told))), **asked}
        response = service.client.post("/v1/plans:resolve", json=body)
        operation = service.store.queue.operation(response.json()["operation"]["id"])
        assert operation is not None
        assert PlanJob.model_validate_json(operation.payload).sampler == told
        assert ("sampler" in operation.payload) == (told is not None), "workers of before know no such field"
    plan_key = store_plan(service.store, chain())
    hit = service.client.post("/v1/plans:resolve", json={"graph": wire(), "sampler": "random"})
    assert (hit.status_code, hit.json()["plan_key"]) == (200, plan_key)


def test_text_and_key_name_the_same_graph(service: Running) -> None:
    plan_key = store_plan(service.store, chain(), Names(("p",), ("q",)))
    text = print_graph(chain())
    for body in ({"source": text, "format": "text"}, {"source": text}, {"graph_key": KEY}):
        answer = service.client.post("/v1/plans:resolve", json=body).json()
        assert answer["plan_key"] == plan_key
    assert answer["names"] == {"inputs": ["p"], "outputs": ["q"]}


def test_shapes_beside_a_source(service: Running) -> None:
    """A dump with a symbolic extent is the chain itself, once the request says how long it is."""
    plan_key = store_plan(service.store, chain())
    axes = (f"[iS{i}{{i0}}]" for i in range(3))
    x, e, y = (f"T{i}_{memory}_float{a}" for i, memory, a in zip(range(3), "glg", axes, strict=True))
    body = f"%kernel_math {{\n{e}\n   = expf({x});\n{y}\n   = -{e};\n}}\n"
    source = f"Inputs:\n  {x}\nOutputs:\n  {y}\n{body}"
    for shapes in ({"extents": {"i0": 8}}, {"inputs": {"T0": {"shape": [8], "dtype": "f32"}}}):
        answer = service.client.post("/v1/plans:resolve", json={"source": source, "shapes": shapes}).json()
        assert answer["plan_key"] == plan_key
    assert answer["names"] == {"inputs": ["T0"], "outputs": ["T2"], "nodes": ["", "T1", "T2"]}
    for shapes, place in (
        ({}, "2:18"),
        ({"extents": {"i0": 8, "i1": 8}}, "/shapes/extents/i1"),
        ({"extents": {"i0": 8}, "outputs": ["T2", "T2"]}, "/shapes/outputs"),
    ):
        refused = service.client.post("/v1/plans:resolve", json={"source": source, "shapes": shapes})
        assert (refused.status_code, refused.json()["type"]) == (422, "/errors/bad-graph")
        assert refused.json()["place"] == place


def test_a_miss_stores_the_graph_and_queues_one_operation_for_equal_requests(service: Running) -> None:
    first = service.client.post("/v1/plans:resolve", json={"graph": wire(), "seconds": 2.5})
    second = service.client.post("/v1/plans:resolve", json={"graph": wire(names=("other", "name"))})
    assert (first.status_code, second.status_code) == (202, 202)
    operation = first.json()["operation"]
    assert first.json()["best_plan"] is None
    assert second.json()["operation"]["id"] == operation["id"]
    assert first.headers["location"] == f"/v1/operations/{operation['id']}"
    assert int(first.headers["retry-after"]) >= 1
    queued = service.store.queue.operation(operation["id"])
    assert queued is not None
    assert queued.kind == PLAN
    assert PlanJob.model_validate_json(queued.payload) == PlanJob(
        graph_key=KEY, target="cpu", seconds=2.5, numerics="reassociate"
    )
    stored = service.store.graphs.graph(KEY)
    assert stored is not None
    assert stored.text == print_graph(chain())
    shown = service.client.get(first.headers["location"]).json()
    assert (shown["state"], shown["done"], shown["result"], shown["error"]) == ("queued", False, None, None)


def test_a_body_that_was_read_before_still_misses_after_eviction(service: Running) -> None:
    plan_key = store_plan(service.store, chain())
    body = json.dumps({"graph": wire()}).encode()
    headers = {"Content-Type": "application/json"}
    for _ in range(2):  # the second time by the memo
        assert service.client.post("/v1/plans:resolve", content=body, headers=headers).json()["plan_key"] == plan_key
    assert service.client.delete(f"/v1/plans/{plan_key}").status_code == 204
    assert service.client.post("/v1/plans:resolve", content=body, headers=headers).status_code == 202


def work(store: Store, end: str) -> None:
    """A worker for one operation."""
    for _ in range(500):
        operation = store.queue.lease("test", 30)
        if operation is not None:
            break
        time.sleep(0.01)
    else:
        raise AssertionError("nothing was queued")
    if end == "done":
        plan_key = store_plan(store, chain())
        store.queue.finish(operation.id, "test", operation.token, result=json.dumps({"plan_key": plan_key}))
    elif end == "failed":
        store.queue.finish(operation.id, "test", operation.token, error="no kernel passed its check")
    else:
        store.queue.cancel(operation.id)
        store.queue.finish(operation.id, "test", operation.token, cancelled=True)


@pytest.mark.parametrize(
    ("end", "status", "type_"), [("failed", 500, "/errors/tuning-failed"), ("cancelled", 409, "/errors/cancelled")]
)
def test_waiting_for_an_operation_that_ends_badly_says_so(service: Running, end: str, status: int, type_: str) -> None:
    worker = threading.Thread(target=work, args=(service.store, end))
    worker.start()
    response = service.client.post("/v1/plans:resolve", json={"graph": wire()}, headers={"Prefer": "wait=20"})
    worker.join()
    assert (response.status_code, response.json()["type"]) == (status, type_)
    counted = f'fuseplan_problems_total{{type="{type_.rpartition("/")[2]}"}} 1.0'
    assert counted in service.client.get("/metrics").text


def test_waiting_gives_the_plan_as_a_miss(service: Running) -> None:
    worker = threading.Thread(target=work, args=(service.store, "done"))
    worker.start()
    response = service.client.post(
        "/v1/plans:resolve", json={"graph": wire()}, headers={"Prefer": "respond-async, wait=20"}
    )
    worker.join()
    assert (response.status_code, response.json()["cache"], response.json()["state"]) == (200, "miss", "measured")
    assert response.json()["plan"]["time_us"] == plan_of(chain()).time_us


def test_waiting_ends_at_the_servers_limit(tmp_path: Path) -> None:
    with running(tmp_path, max_wait_seconds=0.05) as service:
        response = service.client.post("/v1/plans:resolve", json={"graph": wire()}, headers={"Prefer": "wait=600"})
        assert response.status_code == 202


def test_a_full_queue_is_429(tmp_path: Path) -> None:
    with running(tmp_path, max_queue=1) as service:
        assert service.client.post("/v1/plans:resolve", json={"graph": wire()}).status_code == 202
        assert service.client.post("/v1/plans:resolve", json={"graph": wire()}).status_code == 202  # joins
        response = service.client.post("/v1/plans:resolve", json={"graph": wire(9)})
        assert (response.status_code, response.json()["type"]) == (429, "/errors/too-many-operations")
        assert "retry-after" in response.headers
        assert service.store.graphs.graph(graph_key(chain(9))) is None, "a refused request leaves nothing"


def test_a_target_that_is_not_there_stores_nothing(service: Running) -> None:
    response = service.client.post("/v1/plans:resolve", json={"graph": wire(), "target": "cuda:1"})
    assert (response.status_code, response.json()["type"], response.json()["place"]) == (
        422,
        "/errors/no-device",
        "/target",
    )
    assert "install" in response.json()["detail"]
    assert service.store.graphs.graph(KEY) is None
    assert service.store.queue.operations() == []


def test_an_unknown_graph_key_is_404(service: Running) -> None:
    response = service.client.post("/v1/plans:resolve", json={"graph_key": "0" * 64})
    assert (response.status_code, response.json()["type"]) == (404, "/errors/unknown-graph")


def test_a_plan_of_another_version_is_served_as_stale_and_made_again(service: Running) -> None:
    plan_key = store_plan(service.store, chain(), version="before")
    answer = service.client.post("/v1/plans:resolve", json={"graph": wire()}).json()
    assert (answer["state"], answer["cache"], answer["plan_key"]) == ("stale", "hit", plan_key)
    assert [o.state for o in service.store.queue.operations()] == ["queued"]


def test_the_key_of_a_hit_is_the_requests(service: Running) -> None:
    store_plan(service.store, chain())
    assert service.store.plans.resolve(RequestKey(KEY, DEVICE.class_key)) is not None
    assert service.store.plans.resolve(RequestKey(KEY, DEVICE.class_key, "exact")) is None


def test_a_plan_whose_search_was_cut_short_is_answered_and_refined(service: Running) -> None:
    plan = plan_of(chain())
    store_plan(service.store, chain())
    binaries = {sha(BINARY): BINARY}
    request = RequestKey(KEY, DEVICE.class_key)
    service.store.plans.put(request, plan, "measured", binaries, {}, Searched(5.0, "its 5 s were over"))
    for seconds, refining in ((1.0, False), (5.0, False), (6.0, True)):
        answer = service.client.post("/v1/plans:resolve", json={"graph": wire(), "seconds": seconds}).json()
        assert (answer["state"], answer["cache"], answer["plan_key"]) == ("measured", "hit", plan.plan_key)
        assert (answer["cut_short"], answer["refining"]) == ("its 5 s were over", refining)
        assert len(service.store.queue.operations()) == refining
    [listed] = service.client.get("/v1/plans").json()["plans"]
    assert listed["cut_short"] == "its 5 s were over"
    for page in ("/", f"/plans/{plan.plan_key}"):
        assert "its 5 s were over" in service.client.get(page).text.replace("\N{NO-BREAK SPACE}", " ")


def test_a_plan_is_answered_though_the_queue_has_no_room_to_refine_it(tmp_path: Path) -> None:
    with running(tmp_path, max_queue=1) as service:
        assert service.client.post("/v1/plans:resolve", json={"graph": wire(9)}).status_code == 202
        store_plan(service.store, chain(), version="before")
        response = service.client.post("/v1/plans:resolve", json={"graph": wire()})
        assert (response.status_code, response.json()["state"], response.json()["refining"]) == (200, "stale", False)


def test_a_faster_plan_of_a_stricter_class_is_the_answer(service: Running) -> None:
    store_plan(service.store, chain())
    fast = plan_of(chain()).model_copy(update={"numerics": "exact", "time_us": 6.25})
    exact = RequestKey(KEY, DEVICE.class_key, "exact")
    service.store.plans.put(exact, fast, "measured", {sha(BINARY): BINARY}, {})
    for numerics in ("exact", "reassociate", "approximate"):
        answer = service.client.post("/v1/plans:resolve", json={"graph": wire(), "numerics": numerics}).json()
        assert (answer["plan_key"], answer["refining"]) == (fast.plan_key, numerics == "approximate")


def test_a_failed_search_is_told_and_not_queued_again(service: Running) -> None:
    now = Conditions.of_device(DEVICE, VERSION)
    error = problem("memory-exceeded", "the least needs 5 bytes").model_dump_json()
    service.store.failures.put(RequestKey(KEY, DEVICE.class_key), now, 30.0, error)
    response = service.client.post("/v1/plans:resolve", json={"graph": wire()})
    assert (response.status_code, response.json()["type"]) == (422, "/errors/memory-exceeded")
    assert "the least needs 5 bytes (found " in response.json()["detail"]
    lines = f'{{"custom_id": "a", "graph": {json.dumps(wire())}}}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    batch = service.client.post("/v1/batches", content=lines, headers=headers).json()
    assert batch["counts"]["failed"] == 1
    assert service.store.queue.operations() == []
    assert service.client.post("/v1/plans:resolve", json={"graph": wire(), "seconds": 31}).status_code == 202
    assert len(service.store.queue.operations()) == 1


def test_what_cost_three_workers_is_told_and_not_queued_again(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "BACK_OFF_SECONDS", (0.0, 0.0))
    assert service.client.post("/v1/plans:resolve", json={"graph": wire(), "seconds": 2.5}).status_code == 202
    for _ in range(MAX_ATTEMPTS):
        assert service.store.queue.lease("lost", 30.0) is not None
        service.store.queue.abandon("lost")
    response = service.client.post("/v1/plans:resolve", json={"graph": wire(), "seconds": 2.5})
    assert (response.status_code, response.json()["type"]) == (500, "/errors/tuning-failed")
    assert "given up: 3 workers took it and were lost" in response.json()["detail"]
    assert "a search with more seconds" in response.json()["detail"]
    lines = f'{{"custom_id": "a", "seconds": 2.5, "graph": {json.dumps(wire())}}}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    batch = service.client.post("/v1/batches", content=lines, headers=headers).json()
    assert batch["counts"]["failed"] == 1
    assert [o.state for o in service.store.queue.operations()] == ["failed"]
    lines = lines.replace("2.5", "3.5")
    batch = service.client.post("/v1/batches", content=lines, headers=headers).json()
    assert batch["counts"]["queued"] == 1
    for _ in range(MAX_ATTEMPTS):
        assert service.store.queue.lease("lost", 30.0) is not None
        service.store.queue.abandon("lost")
    assert service.client.post("/v1/plans:resolve", json={"graph": wire(), "seconds": 3.5}).status_code == 500
    assert service.client.post("/v1/plans:resolve", json={"graph": wire(), "seconds": 4.5}).status_code == 202


@pytest.mark.parametrize("by", ["graph", "batch"])
@pytest.mark.parametrize("failed", [False, True])
def test_a_graph_that_is_damaged_is_a_miss_and_stored_again(service: Running, by: str, failed: bool) -> None:
    """Whoever asked for the graph by its key was answered with the plan, then with 404. failed: there was a search for
    a better plan, which found none."""
    plan_key = store_plan(service.store, chain())
    if failed:
        now = Conditions.of_device(DEVICE, VERSION)
        service.store.failures.put(RequestKey(KEY, DEVICE.class_key), now, 30.0, "three workers lost")
    with closing(sqlite3.connect(service.settings.db.removeprefix("sqlite:///"))) as raw:
        raw.execute("UPDATE graphs SET text = replace(text, 'exp', 'log')")
        raw.commit()
    before = service.store.damaged().get("graphs", 0)
    assert service.client.get(f"/v1/graphs/{KEY}").status_code == 404
    response = service.client.post("/v1/plans:resolve", json={"graph_key": KEY})
    assert (response.status_code, response.json()["type"]) == (404, "/errors/unknown-graph")
    if by == "graph":
        assert service.client.post("/v1/plans:resolve", json={"graph": wire()}).status_code == 202
    else:
        lines = f'{{"custom_id": "a", "graph": {json.dumps(wire())}}}\n'
        headers = {"Content-Type": "application/x-ndjson"}
        counts = service.client.post("/v1/batches", content=lines, headers=headers).json()["counts"]
        assert (counts["done"], counts["queued"]) == (0, 1)
    metrics = service.client.get("/metrics").text
    assert 'fuseplan_resolves_total{outcome="miss"} 1.0' in metrics
    counted = re.search(r'fuseplan_damaged_rows\{table="graphs"\} (\S+)', metrics)
    assert counted is not None
    assert float(counted[1]) > before
    assert service.client.get(f"/v1/graphs/{KEY}").status_code == 200
    answer = service.client.post("/v1/plans:resolve", json={"graph_key": KEY}).json()
    assert (answer["cache"], answer["plan_key"]) == ("hit", plan_key)


@pytest.mark.parametrize("control", ["no-cache", "max-age=0, No-Cache"])
def test_a_failed_search_is_made_again_where_that_is_asked_for(service: Running, control: str) -> None:
    now, request = Conditions.of_device(DEVICE, VERSION), RequestKey(KEY, DEVICE.class_key)
    service.store.failures.put(request, now, 1000.0, "three workers lost")
    for headers in ({}, {"Cache-Control": "no-store"}):
        answer = service.client.post("/v1/plans:resolve", json={"graph": wire()}, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (500, "/errors/tuning-failed")
        assert "Cache-Control: no-cache" in answer.json()["detail"]
    answer = service.client.post("/v1/plans:resolve", json={"graph": wire()}, headers={"Cache-Control": control})
    assert answer.status_code == 202
    assert service.store.failures.failure(request, now, 1.0) is None, "the worker must not find it, either"


def test_a_plan_that_is_there_is_the_answer_however_it_is_asked_for(service: Running) -> None:
    store_plan(service.store, chain())
    headers = {"Cache-Control": "no-cache"}
    answer = service.client.post("/v1/plans:resolve", json={"graph": wire()}, headers=headers).json()
    assert (answer["cache"], answer["refining"]) == ("hit", True), "and is timed again, as --continue does"
    [queued] = service.store.queue.operations()
    assert PlanJob.model_validate_json(queued.payload).again
    once_more = service.client.post("/v1/plans:resolve", json={"graph": wire()}).json()
    assert (once_more["cache"], once_more["refining"], len(service.store.queue.operations())) == ("hit", False, 1)
