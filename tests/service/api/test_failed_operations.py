"""Operations that fail are counted in the metrics, once each, by the type of their problem: whoever ends or asks."""

import json
from pathlib import Path

import pytest

from service.errors import problem
from tests.support.service_app import Running, problems, running, wire
from tuning_db import operations
from tuning_db.operations import MAX_ATTEMPTS
from tuning_db.store import Store

DISAGREE = problem("kernels-disagree", "out0[3] is 2.5 (0x1), expected 2.0 (0x2)").model_dump_json()


def submit(service: Running, size: int = 8) -> str:
    """Address of an operation."""
    response = service.client.post("/v1/plans:resolve", json={"graph": wire(size)})
    assert response.status_code == 202
    return response.headers["location"]


def fail(store: Store, error: str = DISAGREE) -> None:
    held = store.queue.lease("worker", 30.0)
    assert held is not None
    assert store.queue.finish(held.id, "worker", held.token, error=error)


def test_a_failure_is_counted_though_nobody_asks(service: Running) -> None:
    submit(service)
    assert problems(service) == {}
    fail(service.store)
    assert problems(service) == {"kernels-disagree": 1.0}
    submit(service, 9)
    fail(service.store)
    assert problems(service) == {"kernels-disagree": 2.0}


@pytest.mark.parametrize("prefer", ["wait=0", "wait=5"])
def test_a_failure_is_counted_once_however_often_it_is_asked_for(service: Running, prefer: str) -> None:
    address = submit(service)
    fail(service.store)
    for _ in range(3):
        asked = service.client.get(address, headers={"Prefer": prefer}).json()
        assert asked["error"]["type"] == "/errors/kernels-disagree"
        assert problems(service) == {"kernels-disagree": 1.0}


def test_what_is_given_up_is_problems(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "BACK_OFF_SECONDS", (0.0, 0.0))
    submit(service)
    for _ in range(MAX_ATTEMPTS):
        assert problems(service) == {}
        assert service.store.queue.lease("lost", 30.0) is not None
        service.store.queue.abandon("lost")
    assert problems(service) == {"tuning-failed": 1.0}


@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_other_ends_are_not_problems(service: Running, end: str) -> None:
    address = submit(service)
    held = service.store.queue.lease("worker", 30.0)
    assert held is not None
    result = "{}" if end == "done" else None
    assert service.store.queue.finish(held.id, "worker", held.token, result=result, cancelled=end == "cancelled")
    assert service.client.get(address).json()["state"] == end
    assert problems(service) == {}


def test_an_unknown_problem_is_a_failed_search(service: Running) -> None:
    """Labels are those of the table, whatever is stored."""
    for error in ("no kernel passed its check", DISAGREE.replace("kernels-disagree", "made-up")):
        submit(service)
        fail(service.store, error)
    assert problems(service) == {"tuning-failed": 2.0}


def test_servers_of_one_database_count_it_once(tmp_path: Path) -> None:
    with running(tmp_path) as first, running(tmp_path) as second:
        submit(first)
        fail(first.store)
        assert [problems(second), problems(first)] == [{"kernels-disagree": 1.0}, {}]
    with running(tmp_path) as again:
        assert problems(again) == {}, "a server that is new counts from zero"


def test_items_of_a_batch_are_problems(service: Running) -> None:
    """Items of a batch that fail as they are read, and items that fail later, are counted once by kind of problem."""
    bad = wire(7) | {"outputs": []}
    lines = [{"custom_id": "a", "graph": wire()}, {"custom_id": "b", "graph": wire()}, {"custom_id": "c", "graph": bad}]
    body = "".join(json.dumps(line) + "\n" for line in lines)
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "k"}
    batch = service.client.post("/v1/batches", content=body, headers=headers).json()
    for _ in range(2):
        assert service.client.post("/v1/batches", content=body, headers=headers).json()["id"] == batch["id"]
        assert (batch["counts"]["queued"], batch["counts"]["failed"]) == (2, 1)
        [refused] = problems(service).items()
        assert refused == ("bad-graph", 1.0)
    fail(service.store)
    for _ in range(2):
        assert service.client.get(f"/v1/batches/{batch['id']}/errors").text.count("kernels-disagree") == 2
        assert problems(service) == {"bad-graph": 1.0, "kernels-disagree": 1.0}, "two items, one operation"
