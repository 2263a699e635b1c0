"""Workers: done, failed, cancelled, lost, ended; and the supervisor that keeps them running."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from codegen.devices.detection import DeviceError
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.core.graph import Graph
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Device, Plan
from fusion_ir.text.printing import print_graph
from scheduler.budget import INTERRUPTED, Event
from scheduler.no_plan import Disagreement
from service import server, worker
from service.api.operations import problem_of
from service.errors import Problem
from service.jobs import PLAN, PlanJob
from service.planning import planner
from service.planning.devices_here import DevicesHere
from service.planning.plan_request import PlanRequest
from service.planning.planner import PlanAnswer, PlanningError
from service.settings import Settings, environment, load
from service.version import VERSION
from tests.support.known_machine import know_machine
from tests.support.stored_plans import DEVICE, chain, plan_of, store_plan
from tuning_db.operation import Operation
from tuning_db.reading.graphs import Names
from tuning_db.requests import Conditions, RequestKey
from tuning_db.store import Store

ROOT = Path(__file__).parents[3]
KEY = graph_key(chain())
EVENT = Event("segments", 3, 12.5, 1.0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    given = {"db": f"sqlite:///{tmp_path / 'fuseplan.db'}", "cache": str(tmp_path / "cache"), "lease_seconds": 2.0}
    return load(given, env={"HOME": str(tmp_path)})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store(settings.db) as opened:
        yield opened


def submit(store: Store, device_key: str | None = None) -> Operation:
    store.graphs.put(KEY, print_graph(chain()), Names(("x",), ("y",)))
    job = PlanJob(graph_key=KEY, target="cpu", seconds=1.5, numerics="exact")
    return store.queue.submit(PLAN, job.model_dump_json(), "same", device_key=device_key)


def planning(monkeypatch: pytest.MonkeyPatch, plan: Callable[..., Any]) -> None:
    """Puts `plan` in the place of planning, and a device that nobody has to measure in that of this machine's."""
    monkeypatch.setattr(planner, "plan_stored_graph", plan)
    monkeypatch.setattr(worker, "DevicesHere", partial(DevicesHere, detector=lambda *_, **__: DEVICE))


def ended(store: Store, operation: Operation) -> Operation:
    found = store.queue.operation(operation.id)
    assert found is not None
    return found


def test_an_operation_is_planned_and_its_result_says_which(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(
        graph: Graph, request: PlanRequest, store: Store, cache: Any, progress: Any, *, again: bool, cancel_counts: bool
    ) -> PlanAnswer:
        assert print_graph(graph) == print_graph(chain())
        assert request.key == RequestKey(KEY, DEVICE.class_key, "exact")
        assert (request.device, request.budget.seconds, again, cancel_counts) == (DEVICE, 1.5, False, True)
        progress(EVENT)
        running = store.queue.operation(operation.id)
        assert running is not None
        assert json.loads(running.progress) == {"phase": "segments", "measured": 3, "best_us": 12.5, "seconds": 1.0}
        return PlanAnswer(plan_of(chain()), store_plan(store, chain()), "miss", "measured")

    planning(monkeypatch, plan)
    operation = submit(store)
    taker = worker.Worker(settings, store)
    assert taker.step()
    done = ended(store, operation)
    assert done.state == "done"
    assert json.loads(done.result or "") == {
        "plan_key": store_plan(store, chain()),
        "cache": "miss",
        "state": "measured",
    }
    assert not taker.step()


@pytest.mark.parametrize(
    ("error", "type_", "words"),
    [
        (DeviceError("no CUDA device: install a driver"), "/errors/no-device", "install a driver"),
        (PlanningError("a binary is gone"), "/errors/tuning-failed", "a binary is gone"),
        (
            Disagreement(chain().outputs[0].node, "out0[3] is 2.5 (0x1), expected 2.0 (0x2)"),
            "/errors/kernels-disagree",
            "out0[3] is 2.5",
        ),
        (RuntimeError("secret words"), "/errors/tuning-failed", "incident"),
    ],
)
def test_a_failure_is_a_problem(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception, type_: str, words: str
) -> None:
    def plan(*_: Any, **__: Any) -> PlanAnswer:
        raise error

    planning(monkeypatch, plan)
    operation = submit(store)
    assert worker.Worker(settings, store).step()
    problem = problem_of(ended(store, operation))
    assert problem.type == type_
    assert words in problem.detail
    assert "secret" not in problem.detail


def test_a_device_that_changed_since_it_was_looked_at_is_not_searched_on(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = DEVICE.model_copy(update={"units": 64})

    def detect(*_: Any, ceilings: bool = True) -> Device:
        return other if ceilings else DEVICE

    monkeypatch.setattr(worker, "DevicesHere", partial(DevicesHere, detector=detect))
    monkeypatch.setattr(planner, "plan_stored_graph", lambda *_, **__: pytest.fail("searched"))
    operation = submit(store, DEVICE.class_key)
    taker = worker.Worker(settings, store)
    assert taker.step()
    problem = problem_of(ended(store, operation))
    assert problem.type == "/errors/no-device"
    assert problem.detail == f"cpu is another device by now: {other.class_key}"


def test_a_graph_that_is_gone_fails(settings: Settings, store: Store) -> None:
    job = PlanJob(graph_key=KEY, target="cpu", seconds=1, numerics="exact")
    operation = store.queue.submit(PLAN, job.model_dump_json())
    assert worker.Worker(settings, store).step()
    assert problem_of(ended(store, operation)).detail == "the graph is not stored any more"


def test_cancelling_stops_the_search_at_its_next_step(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def plan(*arguments: Any, **_: Any) -> PlanAnswer:
        nonlocal steps
        store.queue.cancel(operation.id)
        for _ in range(100):
            steps += 1
            arguments[4](EVENT)
            time.sleep(0.05)
        raise AssertionError("was not stopped")

    planning(monkeypatch, plan)
    operation = submit(store)
    assert worker.Worker(settings, store).step()
    assert ended(store, operation).state == "cancelled"
    assert steps < 20


def test_a_cancelled_search_leaves_the_best_plan_so_far(settings: Settings, store: Store) -> None:
    """On this machine's CPU: cancelled once something was measured, though a minute was asked for."""
    know_machine(ObjectCache(settings.cache, store.seal()))
    graph = chain(1000)
    store.graphs.put(graph_key(graph), print_graph(graph), Names(("x",), ("y",)))
    job = PlanJob(graph_key=graph_key(graph), target="cpu", seconds=60, numerics="exact")
    operation = store.queue.submit(PLAN, job.model_dump_json(), "same")

    def cancel() -> None:
        while not json.loads(ended(store, operation).progress or "{}").get("measured"):
            time.sleep(0.02)
        store.queue.cancel(operation.id)

    canceller = threading.Thread(target=cancel, daemon=True)
    canceller.start()
    assert worker.Worker(settings, store).step()
    canceller.join(1)
    assert not canceller.is_alive()
    assert ended(store, operation).state == "cancelled"
    [listed] = store.plans.plans().items
    assert listed.graph_key == graph_key(graph)
    plan = Plan.model_validate_json(store.plans.plan(listed.plan_key) or b"")
    if any(r.text == INTERRUPTED for r in plan.reasons):
        assert (listed.state, listed.cut_short) == ("predicted" if plan.time_us is None else "measured", INTERRUPTED)
        request = RequestKey(listed.graph_key, plan.device.class_key, "exact")
        now = Conditions.of_device(plan.device, VERSION)
        for seconds, due in ((60.0, False), (61.0, True)):  # what somebody cancelled is not begun anew by who polls
            found = store.plans.resolve(request, now, seconds)
            assert found is not None
            assert found.due == due
    else:
        assert plan.search.seconds < 60, "it was through before"


def test_a_worker_that_lost_its_lease_writes_nothing(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.time()]
    other = Store(settings.db, clock=lambda: clock[0])

    def plan(*arguments: Any, **_: Any) -> PlanAnswer:
        clock[0] += 3600  # as seen by the other, the lease ran out
        taken = other.queue.lease("other", 3600)
        assert taken is not None
        assert taken.id == operation.id
        for _ in range(100):
            arguments[4](EVENT)
            time.sleep(0.05)
        raise AssertionError("was not stopped")

    planning(monkeypatch, plan)
    operation = submit(store)
    assert worker.Worker(settings, store).step()
    now = ended(store, operation)
    assert (now.state, now.owner, now.attempt) == ("running", "other", 2)
    other.close()


def test_the_lease_is_renewed_while_the_search_says_nothing(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*_: Any, **__: Any) -> PlanAnswer:
        before = ended(store, operation).lease_until
        for _ in range(100):
            if ended(store, operation).lease_until > before:
                return PlanAnswer(plan_of(chain()), store_plan(store, chain()), "miss", "measured")
            time.sleep(0.05)
        raise AssertionError("was not renewed")

    planning(monkeypatch, plan)
    operation = submit(store)
    assert worker.Worker(settings, store).step()
    assert ended(store, operation).state == "done"


def test_an_interrupted_worker_gives_its_operation_back(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*_: Any, **__: Any) -> PlanAnswer:
        raise SystemExit(0)

    planning(monkeypatch, plan)
    operation = submit(store)
    with pytest.raises(SystemExit):
        worker.Worker(settings, store).step()
    now = ended(store, operation)
    assert (now.state, now.attempt, now.owner) == ("queued", 0, "")


def start(settings: Settings, *arguments: str) -> "subprocess.Popen[str]":
    env = {**os.environ, **environment(settings), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "service.worker", *arguments],
        env=env,
        text=True,
        stderr=subprocess.PIPE,
        cwd=settings.cache,
    )


@pytest.mark.turn("workers that end")
def test_a_real_worker_ends_on_sigterm_and_without_its_parent(settings: Settings, store: Store) -> None:
    Path(settings.cache).mkdir()
    operation = store.queue.submit(PLAN, "{}")
    with start(settings) as process:
        for _ in range(600):
            if not ended(store, operation).is_open:
                break
            time.sleep(0.05)
        assert ended(store, operation).state == "failed"
        assert Problem.model_validate_json(ended(store, operation).error or "").type == "/errors/tuning-failed"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    with start(settings, "--parent", "1" if os.getpid() != 1 else "2") as orphan:
        assert orphan.wait(20) == 0


@pytest.mark.turn("workers that end")
def test_a_worker_without_a_database_says_so(settings: Settings, tmp_path: Path) -> None:
    Path(settings.cache).mkdir()
    (tmp_path / "file").write_text("")
    broken = load(
        {"db": f"sqlite:///{tmp_path / 'file' / 'x.db'}", "cache": settings.cache}, env={"HOME": str(tmp_path)}
    )
    with start(broken) as process:
        _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "cannot be written" in said


@pytest.mark.turn("workers that end")
def test_the_supervisor_starts_a_new_worker_slower_each_time(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RESTART_SECONDS", (0.01, 0.02, 3600.0))
    log = tmp_path / "starts"
    command = (sys.executable, "-c", f"open({str(log)!r}, 'a').write('x'); raise SystemExit(3)")
    with server.Supervisor(settings, command):
        for _ in range(600):
            if log.exists() and len(log.read_text()) >= 3:
                break
            time.sleep(0.02)
        time.sleep(1.0)
        assert log.read_text() == "xxx"  # the third failure waits an hour


def test_the_supervisor_kills_what_does_not_end(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STOP_SECONDS", 0.3)
    log = tmp_path / "pid"
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(log)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    with server.Supervisor(settings, (sys.executable, "-c", code)):
        for _ in range(600):
            if log.exists() and log.read_text():
                break
            time.sleep(0.02)
        process = int(log.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
