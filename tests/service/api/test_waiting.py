"""Waiting for operations: answers come with the change, at the limit and at the end of the server, by few looks."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from service.api.pacing import ANSWER_SECONDS
from service.api.watcher import Watcher
from service.cli.server_client import Remote
from service.errors import ApiError
from tests.support.service_app import Running, running, wire
from tests.support.service_process import server
from tuning_db.errors import DatabaseError
from tuning_db.operation import Operation, new_operation
from tuning_db.operations import Operations

WAIT = {"Prefer": "wait=30"}


def queued(service: Running, size: int = 8) -> str:
    """The address of a new operation."""
    answer = service.client.post("/v1/plans:resolve", json={"graph": wire(size)})
    assert answer.status_code == 202
    return answer.headers["Location"]


def operation(id: str) -> Operation:
    return new_operation("test", id, None, None, 0, 0.0)


@contextmanager
def soon(work: threading.Thread) -> Iterator[None]:
    """Starts the thread, and joins it after the block."""
    work.start()
    try:
        yield
    finally:
        work.join()


def looked(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Every look at the database for those who wait, as the operations that it asked for."""
    looks: list[set[str]] = []
    states = Operations.states

    def counted(self: Operations, ids: set[str]) -> Mapping[str, str]:
        looks.append(set(ids))
        return states(self, ids)

    monkeypatch.setattr(Operations, "states", counted)
    return looks


def test_the_answer_comes_with_the_next_state(service: Running) -> None:
    address, store = queued(service), service.store

    def lease() -> None:
        time.sleep(0.2)
        assert store.queue.lease("test", 60.0)

    with soon(threading.Thread(target=lease)):
        assert service.client.get(address, headers=WAIT).json()["state"] == "running"
    held = store.queue.operations(("running",))[0]
    assert store.queue.progress(held.id, "test", held.token, json.dumps({"phase": "candidates"}))

    def finish() -> None:
        time.sleep(0.2)
        store.queue.finish(held.id, "test", held.token, error="no kernel passed its check")

    with soon(threading.Thread(target=finish)):
        answer = service.client.get(address, headers=WAIT).json()
    assert (answer["state"], answer["done"]) == ("failed", True)
    assert service.client.get(address, headers=WAIT).json() == answer, "what has ended is not waited for"


def test_a_cancelled_operation_is_told(service: Running) -> None:
    address = queued(service)

    def cancel() -> None:
        time.sleep(0.2)
        service.client.post(f"{address}:cancel")

    with soon(threading.Thread(target=cancel)):
        assert service.client.get(address, headers=WAIT).json()["state"] == "cancelled"


@pytest.mark.parametrize("preference", ["wait=0", "wait=soon", "respond-async", "wait=-1"])
def test_what_is_no_preference_is_answered_at_once(service: Running, preference: str) -> None:
    answer = service.client.get(queued(service), headers={"Prefer": preference})
    assert (answer.status_code, answer.json()["state"]) == (200, "queued")


def test_the_answer_comes_at_the_servers_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = looked(monkeypatch)
    with running(tmp_path, max_wait_seconds=0.05) as service:
        answer = service.client.get(queued(service), headers={"Prefer": "wait=600"})
        assert (answer.status_code, answer.json()["state"]) == (200, "queued")
        assert "retry-after" in answer.headers
        assert looks == [], "the first look comes later"


def test_an_operation_that_there_is_not_is_not_waited_for(service: Running) -> None:
    assert service.client.get("/v1/operations/none", headers=WAIT).status_code == 404


def test_who_waits_is_told_when_the_server_ends(service: Running) -> None:
    address = queued(service)

    def stop() -> None:
        time.sleep(0.2)
        service.app.state.context.stopping = True

    with soon(threading.Thread(target=stop)):
        answer = service.client.get(address, headers=WAIT)
    assert (answer.status_code, answer.json()["type"]) == (503, "/errors/stopping")
    assert answer.headers["Location"] == address
    assert int(answer.headers["Retry-After"]) > 0
    assert service.client.get(address).json()["state"] == "queued", "without a wait there is an answer to the end"


def test_a_server_process_that_ends_answers_all_who_wait(tmp_path: Path) -> None:
    body = {"graph": wire()}
    with server(tmp_path, workers=0) as (process, port), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        address = client.post("/v1/plans:resolve", json=body, timeout=60).headers["Location"]

        def wait(resolve: bool) -> httpx.Response:
            if resolve:
                return client.post("/v1/plans:resolve", json=body, headers=WAIT, timeout=60)
            return client.get(address, headers=WAIT, timeout=60)

        with ThreadPoolExecutor(4) as threads:
            answers = [threads.submit(wait, resolve) for resolve in (True, False, True, False)]
            time.sleep(0.5)
            process.terminate()
            for future in answers:
                answer = future.result()
                assert (answer.status_code, answer.headers["Location"]) == (503, address)
                assert "retry-after" in answer.headers
        assert process.wait(60) is not None


def test_many_who_wait_share_every_look(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 requests for 3 operations, through resolve and as operations."""
    addresses = [queued(service, size) for size in (8, 9, 10)]
    ids = {address.rpartition("/")[2] for address in addresses}
    looks: list[set[str]] = []
    watcher: Watcher = service.app.state.context.watcher

    async def look(asked: set[str]) -> Mapping[str, str]:
        """Nothing happens until all wait, and for three looks more."""
        if waiting(watcher) == 30:
            looks.append(set(asked))
        if len(looks) == 4:
            for id in ids:
                service.store.queue.cancel(id)
            return service.store.queue.states(asked)
        return dict.fromkeys(asked, "queued")

    monkeypatch.setattr(watcher, "_look", look)

    def ask(i: int) -> int:
        if i % 2:
            return service.client.get(addresses[i % 3], headers=WAIT).status_code
        return service.client.post("/v1/plans:resolve", json={"graph": wire(8 + i % 3)}, headers=WAIT).status_code

    with ThreadPoolExecutor(30) as threads:
        assert sorted(threads.map(ask, range(30))) == [200] * 15 + [409] * 15
    assert looks == [ids] * 4, "one look for all of them, each time"


def waiting(watcher: Watcher) -> int:
    return len(watcher._waiters)


def test_looks_begin_with_who_waits_and_end_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    first, longest = 0.02, 0.05
    monkeypatch.setattr("service.api.watcher.LOOK_SECONDS", (first, longest))
    looks: list[set[str]] = []

    async def look(ids: set[str]) -> Mapping[str, str]:
        looks.append(ids)
        return dict.fromkeys(ids, "running" if len(looks) == 2 else "queued")

    async def waits() -> None:
        watcher = Watcher(look, lambda: False)
        await asyncio.sleep(2 * first)
        assert looks == []
        await asyncio.gather(*(watcher.changed(operation(str(i)), 30.0) for i in range(50)))
        (ids,) = {frozenset(look) for look in looks}
        assert (len(looks), len(ids)) == (2, 50)
        await asyncio.sleep(4 * longest)
        assert len(looks) == 2
        await watcher.changed(operation("late"), first / 4)  # given up before there was a look
        await asyncio.sleep(4 * longest)
        assert len(looks) == 2

    asyncio.run(waits())


def test_an_operation_that_is_forgotten_ends_the_wait() -> None:
    async def look(ids: set[str]) -> Mapping[str, str]:
        return {}

    asyncio.run(Watcher(look, lambda: False).changed(operation("gone"), 60.0))


def test_what_a_look_raises_is_the_answer_of_all_who_wait(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(ids: set[str]) -> Mapping[str, str]:
        raise DatabaseError("the database is away")

    async def two() -> list[BaseException | None]:
        watcher = Watcher(look, lambda: False)
        return await asyncio.gather(*(watcher.changed(operation(i), 30.0) for i in "ab"), return_exceptions=True)

    assert [str(error) for error in asyncio.run(two())] == ["the database is away"] * 2
    address = queued(service)
    monkeypatch.setattr(service.app.state.context.watcher, "_look", look)
    answer = service.client.get(address, headers=WAIT)
    assert (answer.status_code, answer.json()["type"]) == (503, "/errors/database-unavailable")


def test_states_are_those_of_operations_that_there_are(service: Running) -> None:
    id = queued(service).rpartition("/")[2]
    assert service.store.queue.states({id, "none"}) == {id: "queued"}


def test_a_wait_that_begins_after_the_end_is_refused() -> None:
    async def look(ids: set[str]) -> Mapping[str, str]:
        raise AssertionError("nobody waits")

    with pytest.raises(ApiError, match="next server"):
        asyncio.run(Watcher(look, lambda: True).changed(operation("a"), 60.0))


def test_an_open_operation_is_answered_ten_times_a_second_and_with_what_is_true_then(service: Running) -> None:
    address, store = queued(service), service.store
    started = time.monotonic()
    for _ in range(5):
        assert service.client.get(address).json()["state"] == "queued"
    assert time.monotonic() - started >= 4 * ANSWER_SECONDS, "sleeps, which are never shorter"
    store.queue.cancel(address.rpartition("/")[2])
    assert service.client.get(address).json()["state"] == "cancelled"


def test_the_command_line_has_the_server_wait() -> None:
    id, asked = "0" * 32, list[str | None]()
    model = {
        "id": id, "kind": "plan", "state": "running", "done": False, "attempt": 1, "cancel_requested": False,
        "progress": {"phase": "candidates"}, "created_at": "2026-01-01T00:00:00Z", "result": None, "error": None,
    }  # fmt: skip
    problem = {"type": "/errors/cancelled", "title": "cancelled", "status": 409, "detail": "It was cancelled."}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(202, headers={"Location": f"/v1/operations/{id}"})
        asked.append(request.headers.get("prefer"))
        ended = {"state": "cancelled", "done": True, "error": problem} if len(asked) == 4 else {}
        return httpx.Response(200, json={**model, **ended})

    reports: list[Mapping[str, object] | None] = []
    with Remote("http://localhost") as remote:
        remote._client = httpx.Client(base_url=remote.url, transport=httpx.MockTransport(answer))
        with pytest.raises(Exception, match="It was cancelled"):
            remote.resolve({}, reports.append)
    assert asked == [None, "wait=2", "wait=2", "wait=2"]
    assert len(reports) == 4
