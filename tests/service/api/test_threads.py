"""A database that does not answer holds a few threads, and nothing else: no answer waits for it beyond its deadline."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.threads import Threads
from service.errors import ApiError
from tests.support.service_app import Running, running, wire
from tests.support.whole import some
from tuning_db.store import Store

ASKING = (
    ("GET", "/v1/plans"),
    ("GET", "/v1/plans/" + "0" * 64),
    ("GET", "/v1/plans/" + "0" * 64 + "/source"),
    ("DELETE", "/v1/plans/" + "0" * 64),
    ("GET", "/v1/graphs/" + "0" * 64),
    ("GET", "/v1/binaries/" + "0" * 64),
    ("GET", "/v1/executor"),
    ("GET", "/v1/operations/x"),
    ("POST", "/v1/operations/x:cancel"),
    ("GET", "/v1/batches"),
    ("GET", "/v1/batches/x"),
    ("POST", "/v1/batches/x:cancel"),
    ("GET", "/v1/batches/x/results"),
    ("GET", "/v1/batches/x/errors"),
    ("GET", "/v1/batches/x/events"),
    ("GET", "/v1/devices"),
    ("GET", "/"),
    ("GET", "/plans/" + "0" * 64),
    ("GET", "/plans/" + "0" * 64 + "/graph"),
    ("GET", "/plans/" + "0" * 64 + "/text"),
    ("GET", "/plans/" + "0" * 64 + "/steps"),
    ("GET", "/plans/" + "0" * 64 + "/sources/x"),
)


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """An application whose database stands still once the block has begun, until it ends."""
    goes_on = threading.Event()
    with running(tmp_path, db_seconds=0.2, layout_seconds=0.1) as found:
        database: Any = found.store._database
        for name in ("rows", "cached", "write"):
            usual = getattr(database, name)

            def still(*args: Any, usual: Any = usual, **kwargs: Any) -> Any:
                goes_on.wait(60)
                return usual(*args, **kwargs)

            monkeypatch.setattr(database, name, still)
        yield found
        goes_on.set()


@pytest.mark.soak
def test_every_endpoint_that_asks_the_database_has_a_deadline(stopped: Running) -> None:
    """The loop of events runs all the while: it is what the deadlines are of. Metrics tell what they know."""
    for method, path in some(ASKING, 6):
        answer = stopped.client.request(method, path)
        assert answer.status_code == 503, (method, path, answer.text)
        assert int(answer.headers["Retry-After"]) > 0, (method, path)
        assert answer.json()["type"] in ("/errors/database-unavailable", "/errors/busy")
    answer = stopped.client.post("/v1/plans:resolve", json={"graph": wire()})
    assert (answer.status_code, answer.json()["type"]) == (503, "/errors/database-unavailable")
    refusal = {"id": "0" * 32, "why": "unusable", "text": "no"}
    answer = stopped.client.post("/v1/plans/" + "0" * 64 + "/refusals", json=refusal)
    assert (answer.status_code, answer.json()["type"]) == (503, "/errors/database-unavailable")
    lines = json.dumps({"custom_id": "a", "graph": wire()})
    answer = stopped.client.post("/v1/batches", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert (answer.status_code, answer.json()["type"]) == (503, "/errors/database-unavailable")
    assert stopped.client.get("/livez").status_code == 200
    assert stopped.client.get("/readyz").status_code == 503
    assert "fuseplan_http_requests_total" in stopped.client.get("/metrics").text
    assert stopped.client.get("/openapi.json").status_code == 200


def test_all_routes_are_told_of_here(stopped: Running) -> None:
    """An endpoint that is new asks the database in threads, or stands among those that do not ask it."""
    free = {
        "/livez",
        "/readyz",
        "/metrics",
        "/errors",
        "/errors/{slug}",
        "/openapi.json",
        "/v1/plans:resolve",
        "/v1/key",
    }
    paths = {path for path, _ in stopped.app.openapi()["paths"].items()} | {"/", "/plans/{plan_key}"}
    paths |= {f"/plans/{{plan_key}}/{part}" for part in ("graph", "text", "steps", "sources/{step}")}
    told = {path.replace("0" * 64, "{}").replace("/x", "/{}") for _, path in ASKING} | {"/v1/batches"}
    told |= {"/v1/plans/{}/refusals"}
    shapes = {"/".join("{}" + p[p.index("}") + 1 :] if p.startswith("{") else p for p in path.split("/"))
              for path in paths - free}  # fmt: skip
    assert shapes == told


def test_hits_do_not_wait_for_others(tmp_path: Path) -> None:
    """`/livez` is answered while the threads of the database are all taken, and calls beyond the queue are refused."""
    with running(tmp_path, db_seconds=5.0) as service:
        held = threading.Event()
        threads = service.app.state.context.database

        async def ask() -> tuple[list[int], int]:
            transport = httpx.ASGITransport(service.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                calls = [asyncio.create_task(threads.run(held.wait, 30)) for _ in range(threads.size + threads.waiting)]
                await asyncio.sleep(0)
                refused = (await client.get("/v1/plans")).status_code
                alive = [(await client.get("/livez")).status_code for _ in range(5)]
                held.set()
                await asyncio.gather(*calls)
                return alive, refused

        assert asyncio.run(ask()) == ([200] * 5, 503)


def test_a_call_that_fails_fails_as_it_did() -> None:
    threads = Threads(1, 0, 5.0, "busy", "The test")

    def fails() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        asyncio.run(threads.run(fails))
    assert asyncio.run(threads.run(lambda: 3)) == 3
    with pytest.raises(ApiError, match="within"):
        asyncio.run(threads.within(0.05, threading.Event().wait, 1.0))
    threads.close()


@pytest.mark.parametrize(("size", "waiting"), [(1, 0), (1, 1), (2, 0), (4, 2)])
@pytest.mark.parametrize("fails", [False, True])
def test_as_many_callers_as_places_are_never_refused(size: int, waiting: int, fails: bool) -> None:
    """Each calls again as soon as it is told: its place is free by then."""
    threads = Threads(size, waiting, 30.0, "busy", "The test")

    def called() -> int:
        if fails:
            raise KeyError("its own")
        return 3

    async def told(call: Awaitable[int]) -> int | BaseException:
        return (await asyncio.gather(call, return_exceptions=True))[0]

    async def caller() -> list[str]:
        return [type(await told(threads.run(called))).__name__ for _ in range(300)]

    async def callers() -> list[list[str]]:
        return await asyncio.gather(*(caller() for _ in range(size + waiting)))

    found = {name for names in asyncio.run(callers()) for name in names}
    threads.close()
    assert found == {"KeyError" if fails else "int"}


def test_the_server_ends_though_its_database_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()
    monkeypatch.setattr("service.app.CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(Store, "close", lambda _: forever.wait(60))
    with running(tmp_path):
        pass
    assert not forever.is_set()


def test_who_waits_is_told_when_the_server_ends(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.app.state.context.stopping = True
        body = json.dumps({"graph": wire()})
        headers = {"Content-Type": "application/json", "Prefer": "wait=30"}
        answer = service.client.post("/v1/plans:resolve", content=body, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (503, "/errors/stopping")
        assert int(answer.headers["Retry-After"]) > 0
        assert service.client.get(answer.headers["Location"]).json()["state"] == "queued"
