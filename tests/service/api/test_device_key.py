"""Requests that say for which class of devices their plan has to be, and a client that does."""

import json
from pathlib import Path

import pytest
from fuseplan_client.server import Answer, BadAnswer, PlanClient, ProblemAnswer

from testing.plan_server import answer, http, patient, plan_server
from tests.support.served_app import served
from tests.support.service_app import Running, problems, stored, wire
from tests.support.stored_plans import DEVICE, chain, store_plan

OTHER = "cpu-0123456789abcdef"


def test_a_plan_for_the_devices_class_is_answered_and_remembered(service: Running) -> None:
    plan_key = store_plan(service.store, chain())
    body = {"graph": wire(), "device_key": DEVICE.class_key}
    for _ in range(2):
        answer = service.client.post("/v1/plans:resolve", json=body).json()
        assert (answer["plan_key"], answer["device_key"]) == (plan_key, DEVICE.class_key)
    by_key = {"graph_key": answer["graph_key"], "device_key": DEVICE.class_key}
    assert service.client.post("/v1/plans:resolve", json=by_key).json()["plan_key"] == plan_key


@pytest.mark.parametrize("seen_before", [False, True])
def test_another_class_is_a_problem_that_says_both_and_stores_nothing(service: Running, seen_before: bool) -> None:
    if seen_before:
        store_plan(service.store, chain())
        assert service.client.post("/v1/plans:resolve", json={"graph": wire()}).status_code == 200
    before = stored(service.store)
    for key in (OTHER, "cuda-0123456789abcdef", "emulator-0123456789abcdef", OTHER):
        response = service.client.post("/v1/plans:resolve", json={"graph": wire(), "device_key": key})
        assert (response.status_code, response.headers["content-type"]) == (409, "application/problem+json")
        problem = response.json()
        assert (problem["type"], problem["place"]) == ("/errors/other-device", "/device_key")
        assert key in problem["detail"]
        assert DEVICE.class_key in problem["detail"]
        assert DEVICE.name in problem["detail"]
    assert stored(service.store) == before
    assert problems(service)["other-device"] == 4


@pytest.mark.parametrize(
    "key", ["", "cpu", "cpu-", "cpu-0123456789abcdeF", "tpu-0123456789abcdef", f"{OTHER}\n", 7, "é"]
)
def test_what_is_no_class_key_is_a_bad_request(service: Running, key: object) -> None:
    response = service.client.post("/v1/plans:resolve", json={"graph": wire(), "device_key": key})
    assert (response.status_code, response.json()["type"]) == (422, "/errors/bad-request")
    assert response.json()["place"] == "/device_key"


def test_a_line_of_a_batch_for_another_class_fails_alone(service: Running) -> None:
    store_plan(service.store, chain())
    lines = [
        {"custom_id": "a", "device_key": OTHER},
        {"custom_id": "b", "device_key": DEVICE.class_key},
        {"custom_id": "c"},
    ]
    body = "\n".join(json.dumps({"graph": wire(), **line}) for line in lines)
    headers = {"Content-Type": "application/x-ndjson"}
    batch = service.client.post("/v1/batches", content=body, headers=headers).json()
    assert (batch["counts"]["done"], batch["counts"]["failed"]) == (2, 1)
    failed = json.loads(service.client.get(f"/v1/batches/{batch['id']}/errors").text)
    assert (failed["custom_id"], failed["problem"]["type"]) == ("a", "/errors/other-device")


def test_the_member_and_the_problem_are_described(service: Running) -> None:
    schema = service.client.get("/openapi.json").json()["paths"]["/v1/plans:resolve"]["post"]["requestBody"]
    assert "device_key" in schema["content"]["application/json"]["schema"]["properties"]
    assert service.client.get("/errors/other-device").status_code == 200


def test_a_client_is_told_and_takes_no_answer_for_another_class(tmp_path: Path) -> None:
    limits = patient(attempts=1)
    with served(tmp_path) as service:
        store_plan(service.store, chain())
        client = PlanClient(service.url, limits=limits, cache_bytes=0)
        found = client.resolve({"graph": wire(), "device_key": DEVICE.class_key})
        assert isinstance(found, Answer)
        assert found.device_key == DEVICE.class_key
        with pytest.raises(ProblemAnswer, match=DEVICE.class_key) as caught:
            client.resolve({"graph": wire(), "device_key": OTHER})
        assert (caught.value.status, caught.value.type) == (409, "other-device")
    with plan_server(lambda asked: (http(answer(device_key=OTHER)),)) as other:
        client = PlanClient(other.url, limits=limits, cache_bytes=0)
        with pytest.raises(BadAnswer, match=f"for devices of class '{OTHER}'"):
            client.resolve({"graph": wire(), "device_key": DEVICE.class_key})
