"""`fuseplan batch` against a server whose worker the test is."""

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.cli import batch_client as batch_remote
from service.jobs import PlanResult
from tests.service.cli.conftest import GRAPH, Cli, Ended
from tests.support.service_app import wire
from tests.support.service_process import server
from tuning_db.models import Base
from tuning_db.store import Store

KEY = "ab" * 32


@dataclass(frozen=True)
class Server:
    """The server of this module: its address, and its database."""

    url: str
    database: Path

    def forget(self) -> None:
        """Empties the database, but for its revision and its seal."""
        with closing(sqlite3.connect(self.database)) as connection, connection:
            for name in Base.metadata.tables.keys() - {"seals"}:
                connection.execute(f"DELETE FROM {name}")


@dataclass
class Served:
    """`fuseplan batch` with the server's address, and the server's database."""

    cli: Cli
    url: str
    store: Store

    def batch(self, *arguments: object) -> Ended:
        return self.cli("batch", *arguments, "--server", self.url)

    def finish(self, error: str | None = None) -> None:
        """Ends the next operation, as soon as there is one."""
        for _ in range(1000):
            held = self.store.queue.lease("w", 60)
            if held is not None:
                break
            time.sleep(0.02)
        else:
            raise AssertionError("nothing was queued")
        result = PlanResult(plan_key=KEY, cache="miss", state="measured").model_dump_json()
        self.store.queue.finish(held.id, "w", held.token, result=None if error else result, error=error)


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    with server(folder, workers=0) as (_, port):
        yield Server(f"http://127.0.0.1:{port}", folder / "fuseplan.db")


@pytest.fixture
def served(cli: Cli, one_server: Server) -> Iterator[Served]:
    """The module's server, with no batches and no operations."""
    one_server.forget()
    with Store(f"sqlite:///{one_server.database}") as store:
        yield Served(cli, one_server.url, store)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "graphs"
    folder.mkdir()
    (folder / "a.txt").write_text(GRAPH)
    (folder / "b.json").write_text(json.dumps(wire(9)))
    return folder


def later(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_submit_show_watch_results(served: Served, folder: Path) -> None:
    submitted = served.batch("submit", folder, "--seconds", "2", "--key", "k")
    assert submitted.code == 0
    id = submitted.out.strip()
    assert f"fuseplan batch watch {id}" in submitted.err
    assert served.batch("submit", folder, "--seconds", "2", "--key", "k").out.strip() == id
    changed = served.batch("submit", folder, "--key", "k")
    assert (changed.code, id in changed.err) == (2, True)
    payloads = [json.loads(o.payload) for o in served.store.queue.operations()]
    assert [(p["target"], p["seconds"], p["numerics"]) for p in payloads] == [("cpu", 2, "reassociate")] * 2
    assert "0 of 2 done" in served.batch("show", id).out
    assert id in served.batch("list").out

    def work() -> None:
        served.finish()
        served.finish("no kernel passed its check")

    worker = later(work)
    watched = served.batch("watch", id)
    worker.join()
    assert watched.code == 1
    assert watched.out.splitlines() == [
        f"{folder / 'a.txt'}  measured  miss  {KEY[:12]}",
        f"{folder / 'b.json'}  failed  no kernel passed its check",
    ]
    assert f"batch {id}: done, 1 of 2 done, 1 failed" in watched.err
    assert f"fuseplan batch results {id} --errors" in watched.err
    shown = json.loads(served.batch("show", id, "--json").out)
    assert (shown["state"], shown["counts"]["failed"]) == ("done", 1)
    results = served.batch("results", id)
    assert results.code == 0
    assert KEY[:12] in results.out and "--errors" in results.err
    assert [json.loads(line) for line in served.batch("results", id, "--json").out.splitlines()] == [
        {"custom_id": str(folder / "a.txt"), "plan_key": KEY, "cache": "miss", "state": "measured"}
        | {"graph_key": payloads[1]["graph_key"]}
    ]
    errors = json.loads(served.batch("results", id, "--errors", "--json").out)
    assert errors["problem"]["detail"] == "no kernel passed its check"
    assert "tuning-failed" in served.batch("results", id, "--errors").out
    assert served.batch("cancel", id).code == 0, "an ended batch stays as it is"


def test_submit_and_watch_in_one(served: Served, folder: Path) -> None:
    def work() -> None:
        served.finish()
        served.finish()

    worker = later(work)
    ended = served.batch("submit", folder, "--watch", "--json")
    worker.join()
    assert ended.code == 0
    events = [json.loads(line) for line in ended.out.splitlines()]
    assert [e["custom_id"] for e in events if "custom_id" in e] == [str(folder / "a.txt"), str(folder / "b.json")]
    assert events[-1]["state"] == "done"


def test_cancel(served: Served, folder: Path) -> None:
    id = served.batch("submit", folder).out.strip()
    assert "cancelled, 0 of 2 done, 2 cancelled" in served.batch("cancel", id).out
    assert served.store.queue.counts()["queued"] == 0
    watched = served.batch("watch", id)
    assert watched.code == 1
    assert "2 items of 2 without a plan" in watched.err


def test_graphs_that_cannot_be_read_are_left_out(served: Served, folder: Path) -> None:
    (folder / "bad.json").write_text("{}")
    ended = served.batch("submit", folder, folder / "none.txt", "--json")
    assert ended.code == 1
    assert json.loads(ended.out)["items"] == 2
    assert f"failed: {folder / 'bad.json'}" in ended.err and f"failed: {folder / 'none.txt'}" in ended.err
    assert "2 graphs" in ended.err
    assert served.batch("submit", folder / "none.txt").code == 2
    assert len(served.store.batches.batches().items) == 1


def test_a_batch_that_is_not_there(served: Served) -> None:
    for command in ("show", "watch", "cancel", "results"):
        ended = served.batch(command, "no such?batch")
        assert (ended.code, "There is no batch with this id" in ended.err) == (2, True)
    assert "There are no batches" in served.batch("list").err


def test_a_server_that_does_not_answer(cli: Cli) -> None:
    for command in (("list",), ("watch", "x")):
        ended = cli("batch", *command, "--server", "http://127.0.0.1:9")
        assert (ended.code, "127.0.0.1:9" in ended.err) == (1, True)


def test_watching_goes_on_after_a_restart_of_the_server(
    cli: Cli, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_remote, "PAUSE_SECONDS", 0.05)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    seen: list[Any] = []
    one = threading.Event()
    with Store(f"sqlite:///{tmp_path / 'fuseplan.db'}") as store:
        with server(tmp_path, workers=0, port=port) as (process, _):
            served = Served(cli, url, store)
            id = served.batch("submit", folder).out.strip()

            def follow() -> None:
                with batch_remote.BatchRemote(url) as remote:
                    for event in remote.events(id):
                        seen.append(event)
                        if getattr(event, "custom_id", None):
                            one.set()

            reader = later(follow)
            served.finish()
            assert one.wait(30)
            process.kill()
            process.wait()
        served.finish()
        with server(tmp_path, workers=0, port=port):
            reader.join(60)
    assert [e.custom_id for e in seen if hasattr(e, "custom_id")] == [str(folder / "a.txt"), str(folder / "b.json")]
    assert seen[-1].done
