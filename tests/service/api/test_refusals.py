"""Refusals over HTTP, on the pages, and from the client to the next search."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fuseplan_client.server import Answer, Pending, PlanClient

from testing.plan_server import BINARY, answer, http, patient, plan, plan_server, sha, unused_url
from tests.support.served_app import served
from tests.support.service_app import Running, wire
from tests.support.stored_plans import chain, plan_of, store_plan

ID = "0123456789abcdef" * 2
SLOWER = {"id": ID, "why": "slower", "took_us": 120.5, "instead_us": 80.25, "text": "beside other work"}
LIMITS = patient(attempts=2)


@pytest.fixture
def plan_key(service: Running) -> str:
    return store_plan(service.store, chain())


def counts(service: Running) -> dict[str, float]:
    found = re.findall(
        r'^fuseplan_refusals_total\{why="(\w+)"\} (\S+)', service.client.get("/metrics").text, re.MULTILINE
    )
    return {why: float(count) for why, count in found}


def test_a_refusal_is_stored_counted_listed_and_shown(service: Running, plan_key: str) -> None:
    place = f"/v1/plans/{plan_key[:12]}/refusals"
    first = service.client.post(place, json=SLOWER)
    assert first.status_code == 201
    stored = first.json()
    assert {**stored, "created_at": ""} == {**SLOWER, "plan_key": plan_key, "created_at": ""}
    again = service.client.post(place, json={**SLOWER, "text": "other words"})
    assert (again.status_code, again.json()) == (200, stored)
    service.client.post(place, json={"id": "f" * 32, "why": "unusable", "text": "<b>no</b> such symbol\x1b[2J"})
    assert counts(service) == {"slower": 1.0, "unusable": 1.0}
    listed = service.client.get(place).json()["refusals"]
    assert [r["why"] for r in listed] == ["unusable", "slower"]
    page = service.client.get(f"/plans/{plan_key}").text.replace("\u00a0", " ")
    assert "Refused by clients" in page
    assert "it took longer than what it is to replace: 120 µs, not 80.2 µs (1.50×): beside other work" in page
    assert "&lt;b&gt;no&lt;/b&gt; such symbol" in page
    assert "\x1b" not in page
    assert service.client.post("/v1/plans:resolve", json={"graph": wire()}).json()["state"] == "measured"


def test_a_plan_that_nobody_refused_says_nothing_of_it(service: Running, plan_key: str) -> None:
    assert "Refused" not in service.client.get(f"/plans/{plan_key}").text
    assert service.client.get(f"/v1/plans/{plan_key}/refusals").json() == {"refusals": []}


def test_after_wrong_the_next_request_searches_again(service: Running, plan_key: str) -> None:
    body = {"graph": wire()}
    assert service.client.post("/v1/plans:resolve", json=body).status_code == 200
    wrong = {"id": ID, "why": "wrong", "text": "out0 is off by 3.5 at [7]"}
    assert service.client.post(f"/v1/plans/{plan_key}/refusals", json=wrong).status_code == 201
    pending = service.client.post("/v1/plans:resolve", json=body)
    assert pending.status_code == 202
    assert service.client.post("/v1/plans:resolve", json=body).json()["operation"] == pending.json()["operation"]
    page = service.client.get(f"/plans/{plan_key}").text
    assert "its outputs disagreed with what they should be: out0 is off by 3.5 at [7]" in page
    better = store_plan(service.store, chain(), version="0.1.0+again")
    assert better != plan_key
    assert service.client.post("/v1/plans:resolve", json=body).json()["plan_key"] == better


BAD: list[tuple[Any, str]] = [
    ({}, "bad-request"),
    ({**SLOWER, "why": "ugly"}, "bad-request"),
    ({**SLOWER, "id": "x"}, "bad-request"),
    ({**SLOWER, "id": ID.upper()}, "bad-request"),
    ({**SLOWER, "took_us": None}, "bad-request"),
    ({"id": ID, "why": "slower"}, "bad-request"),
    ({**SLOWER, "took_us": -1.0}, "bad-request"),
    ({**SLOWER, "instead_us": 0.0}, "bad-request"),
    ({**SLOWER, "took_us": "1"}, "bad-request"),
    ({**SLOWER, "text": "x" * 2001}, "bad-request"),
    ({**SLOWER, "other": 1}, "bad-request"),
    ([], "bad-request"),
    (b"{", "bad-json"),
    (b'{"id": "a", "id": "b"}', ""),
    (b'{"took_us": NaN}', ""),
    (b" " * 20_000, "body-too-large"),
]


@pytest.mark.parametrize(("body", "slug"), BAD, ids=range(len(BAD)))
def test_what_is_no_refusal_is_a_problem_and_changes_nothing(
    service: Running, plan_key: str, body: Any, slug: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    response = service.client.post(f"/v1/plans/{plan_key}/refusals", content=content, headers=headers)
    assert 400 <= response.status_code < 500
    assert response.json()["type"].endswith(f"/errors/{slug}" if slug else "")
    assert service.store.refusals.of(plan_key) == []
    assert service.client.post("/v1/plans:resolve", json={"graph": wire()}).status_code == 200


@pytest.mark.parametrize("key", ["0" * 64, "0000", "nothing", "%00"])
def test_a_plan_that_is_not_there_is_not_found(service: Running, plan_key: str, key: str) -> None:
    assert service.client.post(f"/v1/plans/{key}/refusals", json=SLOWER).status_code == 404
    assert service.client.get(f"/v1/plans/{key}/refusals").status_code == 404


def test_pages_of_other_sites_refuse_nothing(service: Running, plan_key: str) -> None:
    headers = {"Origin": "https://example.com"}
    assert service.client.post(f"/v1/plans/{plan_key}/refusals", json=SLOWER, headers=headers).status_code == 403


def test_a_client_refuses_a_plan_and_gets_another_search(tmp_path: Path) -> None:
    request = {"graph": wire()}
    with served(tmp_path) as service:
        store_plan(service.store, chain())
        client = PlanClient(service.url, limits=LIMITS, cache=tmp_path / "c", server_keys=[service.public_key])
        found = client.resolve(request)
        assert isinstance(found, Answer)
        assert client.refuse(found.plan_key, "slower", took_us=3.0, instead_us=2.0)
        assert client.resolve(request, fresh_s=60.0) == client.resolve(request, fresh_s=60.0)
        assert client.refuse(found.plan_key, "wrong", "é\x00\ud800" + "x" * 5000)
        assert [r.why for r in service.store.refusals.of(found.plan_key)] == ["wrong", "slower"]
        assert isinstance(client.resolve(request, fresh_s=60.0), Pending)
        assert client.problems == ()
        record = plan_of(chain(), version="0.1.0+again")
        assert store_plan(service.store, chain(), version="0.1.0+again") == record.plan_key
        again = client.resolve(request)
        assert isinstance(again, Answer)
        assert again.plan_key == record.plan_key


@pytest.mark.parametrize("why", ["wrong", "unusable"])
def test_a_plan_that_was_refused_is_not_taken_from_the_cache_even_where_nobody_could_be_told(
    tmp_path: Path, why: str
) -> None:
    request = {"graph_key": "0" * 64}
    with plan_server(lambda asked: (http(answer()),)) as server:
        client = PlanClient(server.url, limits=LIMITS, cache=tmp_path / "c")
        found = client.resolve(request)
        assert isinstance(found, Answer)
        server.respond = lambda asked: ()
        assert not client.refuse(found.plan_key, why)
        assert any("a refusal was not sent" in text for text in client.problems)
        for other in (client, PlanClient(server.url, limits=LIMITS, cache=tmp_path / "c")):
            with pytest.raises(Exception, match=r"was lost before an answer|no connection"):
                other.resolve(request)
        server.respond = lambda asked: (http(answer(plan(note="another"))),)
        client.resolve(request)
        server.respond = lambda asked: ()
        assert isinstance(client.resolve(request), Answer)


def test_a_refusal_never_raises(tmp_path: Path) -> None:
    absent = PlanClient(unused_url(), limits=LIMITS, cache=tmp_path / "c")
    key, nan = sha(BINARY), float("nan")
    arguments: list[tuple[Any, Any, Any, Any]] = [
        (key, "wrong", "", None), ("x", "wrong", "", None), (None, "wrong", "", None), (key, "ugly", "", None),
        (key, ["wrong"], "", None), (key, "slower", "", nan), (key, "slower", object(), object()),
        (key, "wrong", None, 1),
    ]  # fmt: skip
    for plan_key, why, text, time_us in arguments:
        assert absent.refuse(plan_key, why, text, took_us=time_us, instead_us=time_us) is False
    assert len(absent.problems) >= 4
    blocked = tmp_path / "file"
    blocked.write_text("")
    with plan_server(lambda asked: (http({}, 201),)) as server:
        assert PlanClient(server.url, limits=LIMITS, cache=blocked).refuse(key, "wrong") is True
        (asked,) = server.asked
        assert json.loads(asked.body)["why"] == "wrong"
