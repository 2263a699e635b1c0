"""Rules of every endpoint: one shape of error, limits, caching, headers, health."""

import io
from pathlib import Path

import pytest

from codegen.toolchain.cpu import host_arch
from service.errors import MEDIA_TYPE, PROBLEM_TYPES, Problem, markdown, problem
from tests.support.service_app import Running, problems, running, wire
from tests.support.stored_plans import BINARY, DEVICE, chain, sha, store_alike, store_plan
from tuning_db.errors import DatabaseError

ZEROS = "0" * 64
DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/plans/", 404),
        ("GET", f"/v1/plans/{ZEROS}", 404),
        ("GET", "/v1/plans/../../etc/passwd", 404),
        ("GET", "/v1/plans/%2e%2e%2f", 404),
        ("GET", f"/v1/plans/{ZEROS}/source", 404),
        ("GET", f"/v1/plans/{ZEROS}/source?step=-1", 422),
        ("GET", f"/v1/binaries/{ZEROS}", 404),
        ("GET", "/v1/binaries/short", 404),
        ("GET", f"/v1/graphs/{ZEROS}", 404),
        ("GET", "/v1/operations/none", 404),
        ("POST", "/v1/operations/none:cancel", 404),
        ("DELETE", f"/v1/plans/{ZEROS}", 404),
        ("GET", "/v1/plans:resolve", 405),
        ("PUT", "/v1/plans", 405),
        ("POST", "/livez", 405),
        ("GET", "/v1/plans?limit=0", 422),
        ("GET", "/v1/plans?limit=x", 422),
        ("GET", "/v1/plans?page_token=x", 422),
        ("GET", "/static/nothing.css", 404),
    ],
)
def test_every_error_has_one_shape(service: Running, method: str, path: str, status: int) -> None:
    response = service.client.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.headers["cache-control"] == "no-store"
    document = Problem.model_validate(response.json(), strict=True)
    row = PROBLEM_TYPES[document.type.removeprefix("/errors/")]
    assert (document.title, document.status) == (row.title, status)
    assert list(response.json()) in (
        ["type", "title", "status", "detail"],
        ["type", "title", "status", "detail", "place"],
    )
    if status == 405:
        assert response.headers["allow"]
    assert problems(service) == {document.type.removeprefix("/errors/"): 1.0}


def test_types_of_problems_resolve_to_pages_and_are_documented(service: Running) -> None:
    for row in PROBLEM_TYPES.values():
        page = service.client.get(row.uri)
        assert page.status_code == 200
        assert row.title in page.text
    assert (DOCS / "errors.md").read_text() == markdown()


def test_words_of_the_clients_are_cut_and_on_one_line() -> None:
    document = problem("bad-graph", "x\n\x1b[31m" + "y" * 5000, "/a\n" + "b" * 5000)
    assert document.detail.isprintable()
    assert len(document.detail) <= 600
    assert document.place is not None
    assert document.place.isprintable()
    assert len(document.place) <= 200


def test_a_fault_inside_is_a_500_problem_without_its_words(
    service: Running, monkeypatch: pytest.MonkeyPatch, logged: io.StringIO
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(service.store.plans, "resolve", fail)
    response = service.client.post("/v1/plans:resolve", json={"graph": wire()})
    assert (response.status_code, response.json()["type"]) == (500, "/errors/internal")
    assert "secret" not in response.text
    assert response.json()["detail"].rstrip(".").split()[-1] in logged.getvalue()
    assert "secret words" in logged.getvalue()
    assert response.headers["content-security-policy"]
    assert problems(service) == {"internal": 1.0}


def test_a_database_that_does_not_answer_is_503(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DatabaseError("database at postgresql://user:password@host is away")

    monkeypatch.setattr(service.store.plans, "resolve", fail)
    monkeypatch.setattr(service.store, "ping", fail)
    response = service.client.post("/v1/plans:resolve", json={"graph": wire()})
    assert (response.status_code, response.json()["type"]) == (503, "/errors/database-unavailable")
    assert "password" not in response.text
    assert problems(service) == {"database-unavailable": 1.0}
    assert service.client.get("/readyz").status_code == 503
    assert service.client.get("/livez").status_code == 200


def test_the_body_limit_counts_declared_and_streamed_bytes(tmp_path: Path) -> None:
    with running(tmp_path, max_body_bytes=2000) as service:
        headers = {"Content-Type": "application/json"}
        sent = 0

        def stream(total: int):  # type: ignore[no-untyped-def]
            nonlocal sent
            while sent < total:
                sent += 500
                yield b" " * 500

        for content in (b" " * 2001, stream(4000)):
            response = service.client.post("/v1/plans:resolve", content=content, headers=headers)
            assert (response.status_code, response.json()["type"]) == (413, "/errors/body-too-large")
        for content in (b" " * 2000, b" " * 1000):
            response = service.client.post("/v1/plans:resolve", content=content, headers=headers)
            assert (response.status_code, response.json()["type"]) == (400, "/errors/bad-json")
        assert problems(service) == {"body-too-large": 2.0, "bad-json": 2.0}


def test_only_loopback_names_reach_the_application(service: Running) -> None:
    for host in ("localhost", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST:1"):
        assert service.client.get("/livez", headers={"Host": host}).status_code == 200
    for host in (
        "example.com",
        "example.com:8080",
        "127.0.0.1.example.com",
        "localhost.example.com:80",
        "",
        "[::1].example.com",
    ):
        response = service.client.get("/livez", headers={"Host": host})
        assert (response.status_code, response.json()["type"]) == (421, "/errors/wrong-host")
    assert problems(service) == {"wrong-host": 6.0}


def test_hosts_that_the_settings_name_reach_the_application_too(tmp_path: Path) -> None:
    with running(tmp_path, allowed_hosts="service,Plans.Example,[fd00::7]") as service:
        for host in ("localhost:8080", "service:8080", "SERVICE", "plans.example", "[fd00::7]:80"):
            assert service.client.get("/livez", headers={"Host": host}).status_code == 200, host
        for host in ("service.example.com", "plans", "example", "[fd00::8]", "service,plans.example", ""):
            assert service.client.get("/livez", headers={"Host": host}).status_code == 421, host
        evict = {"Host": "service:8080", "Origin": "http://plans.example"}
        assert service.client.delete(f"/v1/plans/{ZEROS}", headers=evict).status_code == 403
        assert (
            service.client.delete(f"/v1/plans/{ZEROS}", headers=evict | {"Origin": "http://service:8080"}).status_code
            == 404
        )


def test_other_sites_pages_cannot_write(service: Running) -> None:
    plan_key = store_plan(service.store, chain())
    for site in ("cross-site", "same-site"):
        response = service.client.delete(f"/v1/plans/{plan_key}", headers={"Sec-Fetch-Site": site})
        assert (response.status_code, response.json()["type"]) == (403, "/errors/cross-site")
    assert service.store.plans.plan(plan_key) is not None
    assert service.client.delete(f"/v1/plans/{plan_key}", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 204


def test_plans_are_immutable_with_a_strong_etag(service: Running) -> None:
    plan_key = store_plan(service.store, chain())
    response = service.client.get(f"/v1/plans/{plan_key}")
    assert sha(response.content) == plan_key
    assert response.headers["etag"] == f'"{plan_key}"'
    assert "immutable" in response.headers["cache-control"]
    for tags in (f'"{plan_key}"', f'"x", "{plan_key}"', "*", f'W/"{plan_key}"'):
        again = service.client.get(f"/v1/plans/{plan_key}", headers={"If-None-Match": tags})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", f'"{plan_key}"')
    assert service.client.get(f"/v1/plans/{plan_key}", headers={"If-None-Match": '"x"'}).status_code == 200


def test_binaries_sources_and_graphs_come_as_stored(service: Running) -> None:
    plan_key = store_plan(service.store, chain(), source="int <b> & ü;\n")
    binary = service.client.get(f"/v1/binaries/{sha(BINARY)}")
    assert (binary.content, binary.headers["content-type"]) == (BINARY, "application/octet-stream")
    assert binary.headers["x-content-type-options"] == "nosniff"
    source = service.client.get(f"/v1/plans/{plan_key}/source", params={"step": 0})
    assert (source.text, source.headers["content-type"]) == ("int <b> & ü;\n", "text/plain; charset=utf-8")
    assert service.client.get(f"/v1/plans/{plan_key}/source", params={"step": 1}).status_code == 404
    graph_key = service.client.get(f"/v1/plans/{plan_key}").json()["graph_key"]
    graph = service.client.get(f"/v1/graphs/{graph_key}").json()
    assert sha(graph["text"]) == graph_key
    assert graph["names"] == {"inputs": ["x0"], "outputs": ["y0"], "nodes": []}
    assert list(service.client.get("/v1/devices").json()["devices"]) == [DEVICE.class_key]


def test_the_executor_is_code_of_this_machine(service: Running) -> None:
    answer = service.client.get("/v1/executor")
    assert (answer.status_code, answer.content[:4]) == (200, b"\x7fELF"), answer.text
    assert answer.headers["etag"] == f'"{sha(answer.content)}"'
    again = service.client.get(
        "/v1/executor", params={"arch": host_arch()}, headers={"If-None-Match": answer.headers["etag"]}
    )
    assert again.status_code == 304
    other = service.client.get("/v1/executor", params={"arch": "pdp-11"})
    assert (other.status_code, other.json()["place"]) == (404, "arch")


def test_eviction_takes_if_match(service: Running) -> None:
    plan_key = store_plan(service.store, chain())
    assert service.client.delete(f"/v1/plans/{plan_key}", headers={"If-Match": f'"{ZEROS}"'}).status_code == 412
    assert service.client.delete(f"/v1/plans/{plan_key}", headers={"If-Match": f'W/"{plan_key}"'}).status_code == 412
    assert service.client.delete(f"/v1/plans/{plan_key}", headers={"If-Match": f'"{plan_key}"'}).status_code == 204
    assert service.client.get(f"/v1/plans/{plan_key}").status_code == 404
    assert service.client.get(f"/v1/binaries/{sha(BINARY)}").status_code == 404


def test_pages_of_plans_hold_each_once_newest_first(service: Running) -> None:
    keys = [store_plan(service.store, chain(n)) for n in range(1, 8)]
    seen: list[str] = []
    token: str | None = None
    for _ in range(10):
        page = service.client.get("/v1/plans", params={"limit": 3} | ({"page_token": token} if token else {})).json()
        seen += [row["plan_key"] for row in page["plans"]]
        token = page["next_page_token"]
        if token is None:
            break
    assert seen == keys[::-1]
    assert [
        r["plan_key"]
        for r in service.client.get("/v1/plans", params={"family": "pointwise", "op": "exp"}).json()["plans"]
    ] == keys[::-1]
    assert service.client.get("/v1/plans", params={"device": "cuda"}).json() == {"plans": [], "next_page_token": None}


def test_an_operation_can_be_cancelled_once_and_stays_so(service: Running) -> None:
    location = service.client.post("/v1/plans:resolve", json={"graph": wire()}).headers["location"]
    cancelled = service.client.post(f"{location}:cancel").json()
    assert (cancelled["state"], cancelled["done"], cancelled["error"]["type"]) == (
        "cancelled",
        True,
        "/errors/cancelled",
    )
    assert service.client.post(f"{location}:cancel").json() == cancelled
    assert service.client.get(location).json() == cancelled


def test_metrics_count_by_template(service: Running) -> None:
    store_plan(service.store, chain())
    service.client.post("/v1/plans:resolve", json={"graph": wire()})
    service.client.post("/v1/plans:resolve", json={"graph": wire(9)})
    service.client.get(f"/v1/plans/{ZEROS}")
    text = service.client.get("/metrics").text
    assert 'fuseplan_resolves_total{outcome="hit"} 1.0' in text
    assert 'fuseplan_resolves_total{outcome="miss"} 1.0' in text
    assert 'fuseplan_http_requests_total{method="GET",route="/v1/plans/{plan_key}",status="404"} 1.0' in text
    assert 'fuseplan_operations{state="queued"} 1.0' in text
    assert ZEROS not in text


def test_openapi_names_our_problem_for_every_operation(service: Running) -> None:
    document = service.client.get("/openapi.json").json()
    operations = [o for path in document["paths"].values() for o in path.values()]
    assert len(operations) >= 12
    for operation in operations:
        assert operation["responses"]["default"]["content"][MEDIA_TYPE]["schema"] == {
            "$ref": "#/components/schemas/Problem"
        }
        assert "422" not in operation["responses"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
    api = (DOCS / "api.md").read_text()
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in api, f"docs/api.md does not describe {method.upper()} {path}"


def test_readiness_waits_for_the_device(service: Running) -> None:
    for _ in range(100):
        response = service.client.get("/readyz")
        if response.status_code == 200:
            break
        assert response.json()["status"] == "starting"
    assert response.json() == {"status": "ok", "checks": {"database": "ok", "disk": "ok", "device": "ok"}}


def test_a_device_that_is_missing_shows_in_readiness(tmp_path: Path) -> None:
    with running(tmp_path, target="cuda") as service:
        service.client.post("/v1/plans:resolve", json={"graph": wire()})
        response = service.client.get("/readyz")
        assert (response.status_code, response.json()["status"]) == (503, "unavailable")
        assert "driver" in response.json()["checks"]["device"]


def test_the_beginning_of_a_key_stands_for_it(service: Running) -> None:
    plan_key = store_plan(service.store, chain(), source="int x;\n")
    short = service.client.get(f"/v1/plans/{plan_key[:6]}")
    assert sha(short.content) == plan_key
    assert short.headers["content-location"] == f"/v1/plans/{plan_key}"
    assert (short.headers["etag"], short.headers["cache-control"]) == (f'"{plan_key}"', "no-cache")
    tags = {"If-None-Match": f'"{plan_key}"'}
    assert service.client.get(f"/v1/plans/{plan_key[:6]}", headers=tags).status_code == 304
    source = service.client.get(f"/v1/plans/{plan_key[:6]}/source?step=0")
    assert source.text == "int x;\n"
    assert source.headers["content-location"] == f"/v1/plans/{plan_key}/source?step=0"
    assert "content-location" not in service.client.get(f"/v1/plans/{plan_key}").headers
    for address in ("0123", "0123/source", plan_key[:3], "%25%25%25%25", "____"):
        missing = service.client.get(f"/v1/plans/{address}")
        assert (missing.status_code, missing.json()["type"]) == (404, "/errors/not-found"), address
    assert service.client.delete("/v1/plans/0123").status_code == 404
    wanted = {"If-Match": f'"{plan_key}"'}
    assert service.client.delete(f"/v1/plans/{plan_key[:6]}", headers=wanted).status_code == 204
    assert service.store.plans.plan(plan_key) is None


def test_the_beginning_of_several_keys_is_none_of_them(service: Running) -> None:
    beginning, keys = store_alike(service.store)
    for method, what in (("GET", ""), ("GET", "/source"), ("DELETE", "")):
        refused = service.client.request(method, f"/v1/plans/{beginning}{what}")
        assert (refused.status_code, refused.json()["type"]) == (409, "/errors/ambiguous-key")
        assert all(key[:12] in refused.json()["detail"] for key in keys)
    assert [service.client.get(f"/v1/plans/{key[:12]}").json()["version"] is not None for key in keys] == [True, True]
