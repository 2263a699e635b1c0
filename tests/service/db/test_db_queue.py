"""The queue, on both databases, with several processes and with workers that die."""

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.whole import WHOLE
from tuning_db.errors import QueueFull
from tuning_db.operation import Operation
from tuning_db.operations import MAX_ATTEMPTS, Operations
from tuning_db.store import Store

Worker = Callable[..., "subprocess.Popen[str]"]


class Clock:
    """Time that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(url: str, clock: Clock):  # type: ignore[no-untyped-def]
    with Store(url, clock=clock) as store:
        yield store.queue


def _leased(operation: Operation | None) -> Operation:
    assert operation is not None
    return operation


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_the_life_of_an_operation(queue: Operations, clock: Clock) -> None:
    job = queue.submit("tune", '{"graph": "é"}')
    assert (job.state, job.token, job.attempt, job.created) == ("queued", 0, 0, 1000.0)
    assert queue.operation(job.id) == job
    clock.now = 1001.0
    held = _leased(queue.lease("w1", 10.0))
    assert (held.id, held.payload, held.state, held.owner) == (job.id, '{"graph": "é"}', "running", "w1")
    assert (held.token, held.attempt, held.lease_until, held.started) == (1, 1, 1011.0, 1001.0)
    assert queue.lease("w2", 10.0) is None
    assert _leased(queue.progress(job.id, "w1", 1, "half")).progress == "half"
    clock.now = 1009.0
    assert _leased(queue.renew(job.id, "w1", 1, 10.0)).lease_until == 1019.0
    clock.now = 1015.0
    assert queue.lease("w2", 10.0) is None
    assert queue.finish(job.id, "w1", 1, result="plan")
    done = queue.operation(job.id)
    assert done is not None
    assert (done.state, done.result, done.error, done.finished, done.is_open) == ("done", "plan", None, 1015.0, False)
    assert not queue.finish(job.id, "w1", 1, error="again")
    assert queue.renew(job.id, "w1", 1, 10.0) is None
    assert queue.operation(job.id) == done
    assert queue.counts() == {"queued": 0, "running": 0, "done": 1, "failed": 0, "cancelled": 0}


def test_finish_takes_exactly_one_outcome(queue: Operations) -> None:
    for outcome in ({}, {"result": "a", "error": "b"}, {"result": "", "cancelled": True}):
        with pytest.raises(ValueError, match="exactly one"):
            queue.finish("x", "w", 1, **outcome)  # type: ignore[arg-type]


def test_priority_then_age(queue: Operations, clock: Clock) -> None:
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)):
        queue.submit("tune", name, priority=priority)
        clock.now += 1
    order = [_leased(queue.lease("w", 100.0)).payload for _ in range(5)]
    assert order == ["b", "d", "a", "c", "e"]


def test_kinds(queue: Operations) -> None:
    queue.submit("tune", "1")
    assert queue.lease("w", 10.0, kinds=["verify"]) is None
    assert queue.lease("w", 10.0, kinds=[]) is None
    assert _leased(queue.lease("w", 10.0, kinds=["verify", "tune"])).payload == "1"


def test_equal_requests_join_until_the_job_is_done(queue: Operations) -> None:
    first = queue.submit("tune", "1", "same")
    assert queue.submit("tune", "2", "same").id == first.id
    assert queue.submit("tune", "3", "other").id != first.id
    assert queue.submit("tune", "4").id != queue.submit("tune", "4").id
    assert queue.submit("tune", "5", "same", priority=9).priority == 9
    held = _leased(queue.lease("w", 10.0))
    assert held.id == first.id
    joined = queue.submit("tune", "6", "same", priority=1)
    assert (joined.id, joined.state, joined.priority) == (first.id, "running", 9)
    assert queue.finish(held.id, "w", held.token, result="")
    assert queue.submit("tune", "7", "same").id != first.id


def test_a_full_queue_refuses_new_jobs_but_lets_equal_ones_join(queue: Operations) -> None:
    first = queue.submit("tune", "1", "same", limit=2)
    queue.submit("tune", "2", limit=2)
    with pytest.raises(QueueFull, match="2 operations are waiting"):
        queue.submit("tune", "3", limit=2)
    assert queue.submit("tune", "1", "same", limit=2).id == first.id
    _leased(queue.lease("w", 10.0))
    queue.submit("tune", "3", limit=2)
    assert queue.counts()["queued"] == 2


def test_cancel(queue: Operations) -> None:
    waiting, running = queue.submit("tune", "1", "a"), queue.submit("tune", "2", "b", priority=1)
    held = _leased(queue.lease("w", 10.0))
    assert held.id == running.id
    assert _leased(queue.cancel(waiting.id)).state == "cancelled"
    asked = _leased(queue.cancel(running.id))
    assert (asked.state, asked.cancel_requested) == ("running", True)
    assert queue.submit("tune", "2", "b").id != running.id, "nobody joins a job that is being cancelled"
    assert _leased(queue.renew(held.id, "w", held.token, 10.0)).cancel_requested
    assert queue.finish(held.id, "w", held.token, cancelled=True)
    assert _leased(queue.cancel(running.id)).state == "cancelled"
    assert queue.cancel("unknown") is None


def test_an_expired_lease_goes_to_another_worker_and_the_stale_one_writes_nothing(
    queue: Operations, clock: Clock
) -> None:
    job = queue.submit("tune", "1")
    stale = _leased(queue.lease("w1", 10.0))
    clock.now += 10.5
    assert queue.lease("w2", 10.0) is None, "it waits a while after its worker was lost"
    clock.now += 0.5
    fresh = _leased(queue.lease("w2", 10.0))
    assert (fresh.id, fresh.token, fresh.attempt, fresh.owner) == (job.id, 2, 2, "w2")
    before = queue.operation(job.id)
    assert queue.renew(job.id, "w1", stale.token, 100.0) is None
    assert queue.progress(job.id, "w1", stale.token, "late") is None
    assert not queue.finish(job.id, "w1", stale.token, result="late")
    assert not queue.finish(job.id, "w1", fresh.token, result="guessed token"), "the owner counts too"
    assert not queue.finish(job.id, "w2", stale.token, result="old token"), "and so does the token"
    assert not queue.release(job.id, "w1", stale.token)
    assert queue.operation(job.id) == before
    assert queue.finish(job.id, "w2", fresh.token, result="right")


def test_the_same_worker_name_does_not_pass_for_the_fresh_lease(queue: Operations, clock: Clock) -> None:
    job = queue.submit("tune", "1")
    stale = _leased(queue.lease("w", 10.0))
    clock.now += 11
    fresh = _leased(queue.lease("w", 10.0))
    assert not queue.finish(job.id, "w", stale.token, result="late")
    assert queue.finish(job.id, "w", fresh.token, result="right")


def test_attempts_are_limited(queue: Operations, clock: Clock) -> None:
    job = queue.submit("tune", "1", "same")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert _leased(queue.lease(f"w{attempt}", 10.0)).attempt == attempt
        clock.now += 21
    assert queue.lease("w9", 10.0) is None
    failed = _leased(queue.operation(job.id))
    assert (failed.state, failed.finished) == ("failed", clock.now)
    assert failed.error == "given up: 3 workers took it and were lost before they ended it, w3 last"
    assert queue.submit("tune", "1", "same").id != job.id


def test_a_lost_worker_and_a_cancelled_job(queue: Operations, clock: Clock) -> None:
    job = queue.submit("tune", "1")
    queue.lease("w1", 10.0)
    queue.cancel(job.id)
    clock.now += 11
    assert queue.lease("w2", 10.0) is None
    assert _leased(queue.operation(job.id)).state == "cancelled"


def test_release_gives_back_without_counting(queue: Operations) -> None:
    job = queue.submit("tune", "1")
    for _ in range(MAX_ATTEMPTS + 2):
        held = _leased(queue.lease("w", 10.0))
        assert (held.id, held.attempt) == (job.id, 1)
        assert queue.release(held.id, "w", held.token)
    assert _leased(queue.operation(job.id)).state == "queued"


def test_forgetting_old_operations(queue: Operations, clock: Clock) -> None:
    old, kept = queue.submit("tune", "1"), queue.submit("tune", "2")
    queue.cancel(old.id)
    clock.now += 100
    assert queue.forget(200.0) == 0
    assert queue.forget(50.0) == 1
    assert queue.operation(old.id) is None
    assert queue.operations() == [kept]
    assert queue.operations(["running"]) == []


def test_failures_are_given_out_once(url: str) -> None:
    with Store(url) as store, Store(url) as other:
        for n in range(40):
            store.queue.submit("tune", str(n))
        for n in range(40):
            held = _leased(store.queue.lease("w", 60.0))
            result, error = ("{}", None) if n % 4 == 0 else (None, held.payload)
            assert store.queue.finish(held.id, "w", held.token, result=result, error=error)
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(who.queue.newly_failed) for who in (store, other) * 4]
            found = [error for some in asked for error in some.result(60)]
        assert sorted(found, key=int) == [str(n) for n in range(40) if n % 4]
        assert store.queue.newly_failed() == []
        store.queue.submit("tune", "late")
        held = _leased(store.queue.lease("w", 60.0))
        assert store.queue.newly_failed() == []
        assert store.queue.finish(held.id, "w", held.token, error="late")
        assert other.queue.newly_failed() == ["late"]


def test_text_that_a_database_cannot_hold(queue: Operations) -> None:
    for bad in ("\0", "\ud800"):
        for arguments in ((bad, "{}"), ("tune", bad), ("tune", "{}", bad)):
            with pytest.raises(ValueError, match="NUL or a lone surrogate"):
                queue.submit(*arguments)
    job = queue.submit("tune", "{}")
    held = _leased(queue.lease("w", 10.0))
    assert _leased(queue.progress(job.id, "w", held.token, "a\0b")).progress == "a\ufffdb"
    assert queue.finish(job.id, "w", held.token, error="\ud800")


@pytest.mark.sweep(0.5)
def test_processes_lose_no_job_and_do_none_twice(store: Store, url: str, worker: Worker) -> None:
    count, processes = (500, 4) if WHOLE else (300, 3)
    jobs = [store.queue.submit("tune", str(n)) for n in range(count)]
    workers = [worker("drain", url, f"w{n}") for n in range(processes)]
    for process in workers:
        assert _line(process) == "ready"
    for process in workers:
        _tell(process)
    outputs = [process.communicate(timeout=60)[0].split() for process in workers]
    assert [process.returncode for process in workers] == [0] * processes
    done = Counter(payload for output in outputs for payload in output)
    assert done == Counter(str(n) for n in range(count))
    assert sum(1 for output in outputs if output) > 1, "one process did everything: nothing was tested"
    assert store.queue.counts()["done"] == count
    final = _leased(store.queue.operation(jobs[7].id))
    assert (final.token, final.attempt) == (1, 1)
    assert final.result == f"{final.owner}: 7"


@pytest.mark.sweep(0.5)
def test_a_killed_worker_loses_its_job_to_another(store: Store, url: str, worker: Worker) -> None:
    job = store.queue.submit("tune", "1")
    killed = worker("hold", url, "w1")
    assert _line(killed) == f"{job.id} 1"
    killed.kill()
    assert killed.wait() == -9
    again: Operation | None = None
    for _ in range(200):
        again = store.queue.lease("w2", 60.0)
        if again is not None:
            break
        time.sleep(0.02)
    assert again is not None
    assert (again.id, again.token, again.attempt) == (job.id, 2, 2)
    assert store.queue.finish(job.id, "w2", 2, result="right")


@pytest.mark.sweep(0.5)
def test_a_stale_process_writes_nothing(store: Store, url: str, worker: Worker) -> None:
    job = store.queue.submit("tune", "1")
    stale = worker("hold", url, "w1")
    assert _line(stale) == f"{job.id} 1"
    again: Operation | None = None
    while again is None:
        again = store.queue.lease("w2", 60.0)
        time.sleep(0.02)
    _tell(stale)
    assert _line(stale) == "False False False"
    after = _leased(store.queue.operation(job.id))
    assert (after.owner, after.progress, after.result, after.state) == ("w2", "", None, "running")


@pytest.mark.sweep(0.5)
def test_acknowledged_rows_survive_a_kill(store: Store, url: str, worker: Worker) -> None:
    for turn in range(3 if WHOLE else 2):
        process = worker("write", url, f"f{turn}")
        lines: list[str] = []
        while len(lines) < 40:
            lines.append(_line(process))
        process.kill()
        assert process.stdout is not None
        lines += process.stdout.read().split("\n")[:-1]
        assert process.wait() == -9
        acknowledged = {int(line) for line in lines}
        stored = {
            int(t.measurement.schedule) for t in store.trials.trials("s", "d") if t.measurement.family == f"f{turn}"
        }
        assert acknowledged <= stored
        assert len(stored - acknowledged) <= 1, "committed, but killed before it could say so"
