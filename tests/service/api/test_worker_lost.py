"""Workers and servers that are killed: leases come back at once, what kills is given up, nobody is left over."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen.devices.detection import DeviceError
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.text.printing import print_graph
from service import server, worker
from service.jobs import PLAN, PlanJob
from service.planning import devices_here
from service.settings import Settings, environment, load
from tests.support.processes import gone, within
from tests.support.stored_plans import DEVICE, chain
from tuning_db import operations
from tuning_db.operation import Operation
from tuning_db.operations import MAX_ATTEMPTS
from tuning_db.reading.graphs import Names
from tuning_db.store import Store

ROOT = Path(__file__).parents[3]
LONGEST_SECONDS = 60.0
# A worker whose search first does something, told by a line in a file, and then what the test wants.
WORKER = """
    import os, signal, sys, time
    from service import worker; from service.planning import planner

    def plan(*arguments, **_):
        with open(LOG, "a") as log:
            print(os.getpid(), file=log)
        DO

    planner.plan_stored_graph = plan
    worker.DevicesHere.device = lambda *_: None
    sys.exit(worker.main())
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    given = {"db": f"sqlite:///{tmp_path / 'fuseplan.db'}", "cache": str(tmp_path / "cache"), "lease_seconds": 600.0}
    return load(given, env={"HOME": str(tmp_path)})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store(settings.db) as opened:
        yield opened


def submit(store: Store, device_key: str | None = None) -> Operation:
    graph = chain()
    store.graphs.put(graph_key(graph), print_graph(graph), Names(("x",), ("y",)))
    job = PlanJob(graph_key=graph_key(graph), target="cpu", seconds=1.5, numerics="exact")
    return store.queue.submit(PLAN, job.model_dump_json(), device_key=device_key)


def command(folder: Path, do: str) -> tuple[str, ...]:
    code = textwrap.dedent(WORKER).replace("LOG", repr(str(folder / "started"))).replace("DO", do)
    return sys.executable, "-c", code


def started(folder: Path) -> list[int]:
    path = folder / "started"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def now(store: Store, operation: Operation) -> Operation:
    found = store.queue.operation(operation.id)
    assert found is not None
    return found


@pytest.mark.turn("processes that are killed")
def test_what_kills_its_worker_is_given_up_without_waiting_for_leases(
    settings: Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases are of ten minutes here: the server gives back what its dead worker held."""
    monkeypatch.setattr(operations, "BACK_OFF_SECONDS", (0.1, 0.1))
    monkeypatch.setattr(server, "RESTART_SECONDS", (3600.0,))  # a worker that died of its operation does not wait
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    operation = submit(store)
    with server.Supervisor(settings, command(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")):
        assert within(LONGEST_SECONDS, lambda: not now(store, operation).is_open)
    ended = now(store, operation)
    assert (ended.state, ended.attempt) == ("failed", MAX_ATTEMPTS)
    assert len(started(tmp_path)) == MAX_ATTEMPTS


@pytest.mark.turn("processes that are killed")
def test_a_worker_ends_with_its_server_in_the_middle_of_a_search(
    settings: Settings, store: Store, tmp_path: Path
) -> None:
    """The search computes, and never looks whether it is still wanted."""
    do = "while True: sum(range(100000))"
    operation = submit(store)
    code = textwrap.dedent(
        f"""
        import time
        from service.server import Supervisor
        from service.settings import load
        with Supervisor(load(), {command(tmp_path, do)!r}):
            time.sleep(600)
        """
    )
    env = {**os.environ, **environment(settings), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True) as parent:
        began = within(LONGEST_SECONDS, lambda: len(started(tmp_path)) == 1)
        parent.kill()
        parent.wait()
        assert began
        [pid] = started(tmp_path)
        assert within(LONGEST_SECONDS, lambda: gone(pid))
    assert (now(store, operation).state, now(store, operation).attempt) == ("queued", 0), "given back"


def test_a_worker_that_cannot_be_interrupted_ends_all_the_same(tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import os, signal, time
        from service.process import parent
        parent.GRACE_SECONDS = 2.0
        signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
        parent.end_with(os.getppid())
        print(os.getpid(), flush=True)
        while True:
            time.sleep(600)
        """
    )
    starter = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {code!r}]); time.sleep(600)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", starter], env=env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        assert parent.stdout.readline() == "asked\n"
        assert within(LONGEST_SECONDS, lambda: gone(pid))


def test_a_worker_leaves_what_is_for_devices_of_others(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def detect(target: str, *_: object, **__: object) -> object:
        asked.append(target)
        if target != "cpu":
            raise DeviceError("no CUDA device")
        return DEVICE

    monkeypatch.setattr(devices_here.DevicesHere.__init__, "__defaults__", (detect,))
    foreign, own = submit(store, "cuda-0123456789abcdef"), submit(store, DEVICE.class_key)
    taker = worker.Worker(settings, store)
    done: list[str] = []
    monkeypatch.setattr(taker, "_plan", lambda operation, _lease: done.append(operation.id) or _Result())
    assert taker.step()
    assert not taker.step()
    assert done == [own.id]
    assert now(store, foreign).state == "queued"
    assert asked == ["cpu", "cpu"], "once for each class that was wanted"


class _Result:
    def model_dump_json(self) -> str:
        return "{}"
