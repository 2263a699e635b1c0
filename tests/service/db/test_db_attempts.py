"""Lost workers are counted by operation, however far they got; after each, the operation waits while others go on."""

import pytest

from tests.service.db.samples import Samples
from tuning_db.batches import NewItem, Work
from tuning_db.failures import FailureKey
from tuning_db.operation import Operation
from tuning_db.operations import BACK_OFF_SECONDS, MAX_ATTEMPTS
from tuning_db.requests import Conditions
from tuning_db.store import Store

LEASE_SECONDS = 10.0
NOW, LATER = Conditions("", "g++ 12", "1"), Conditions("", "g++ 13", "1")


def taken(store: Store) -> Operation:
    found = store.queue.lease("worker", LEASE_SECONDS)
    assert found is not None
    return found


@pytest.mark.parametrize("told", [True, False])
def test_what_kills_its_workers_is_given_up_however_far_they_got(url: str, told: bool) -> None:
    """told: whoever started the worker says that it is dead; else its lease runs out."""
    clock = [1000.0]
    with Store(url, clock=lambda: clock[0]) as store:
        operation = store.queue.submit("plan", "{}")
        for attempt in range(1, MAX_ATTEMPTS + 1):
            held = taken(store)
            assert (held.id, held.attempt) == (operation.id, attempt)
            store.queue.progress(held.id, "worker", held.token, '{"measured": 7}')
            if told:
                assert [lost.id for lost in store.queue.abandon("worker")] == [operation.id]
            else:
                clock[0] += LEASE_SECONDS + 0.5
                assert store.queue.lease("other", LEASE_SECONDS) is None
            if attempt < MAX_ATTEMPTS:
                waiting = store.queue.operation(operation.id)
                assert waiting is not None
                since = clock[0] if told else held.lease_until
                assert (waiting.state, waiting.not_before) == ("queued", since + BACK_OFF_SECONDS[attempt - 1])
                assert store.queue.lease("worker", LEASE_SECONDS) is None
                clock[0] = waiting.not_before
        found = store.queue.operation(operation.id)
        assert found is not None
        assert found.state == "failed"
        assert f"{MAX_ATTEMPTS} workers" in (found.error or "")


def test_others_go_on_while_one_waits(url: str) -> None:
    clock = [1000.0]
    with Store(url, clock=lambda: clock[0]) as store:
        poison, sound = store.queue.submit("plan", "poison", priority=5), store.queue.submit("plan", "sound")
        assert taken(store).id == poison.id
        store.queue.abandon("worker")
        held = taken(store)
        assert held.id == sound.id
        assert store.queue.finish(held.id, "worker", held.token, result="done")
        clock[0] += BACK_OFF_SECONDS[0]
        assert taken(store).id == poison.id


def test_what_is_given_back_is_no_loss(url: str) -> None:
    clock = [1000.0]
    with Store(url, clock=lambda: clock[0]) as store:
        store.queue.submit("plan", "{}")
        for _ in range(5 * MAX_ATTEMPTS):
            held = taken(store)
            assert held.attempt == 1
            assert store.queue.release(held.id, "worker", held.token)


def test_only_what_a_dead_worker_held_is_taken_from_it(url: str) -> None:
    with Store(url) as store:
        for n in range(4):
            store.queue.submit("plan", str(n))
        first, second, third = taken(store), taken(store), store.queue.lease("other", LEASE_SECONDS)
        assert third is not None
        assert store.queue.finish(first.id, "worker", first.token, result="done")
        assert [lost.id for lost in store.queue.abandon("worker")] == [second.id]
        assert store.queue.abandon("worker") == []
        assert not store.queue.finish(second.id, "worker", second.token, result="late")
        assert store.queue.finish(third.id, "other", third.token, result="done")


def test_what_was_cancelled_ends_with_its_worker(url: str) -> None:
    with Store(url) as store:
        operation = store.queue.submit("plan", "{}")
        taken(store)
        store.queue.cancel(operation.id)
        store.queue.abandon("worker")
        found = store.queue.operation(operation.id)
        assert found is not None
        assert found.state == "cancelled"


def lose(store: Store, clock: list[float]) -> None:
    """The workers of what waits, until it is given up."""
    for _ in range(MAX_ATTEMPTS):
        taken(store)
        store.queue.abandon("worker")
        clock[0] += max(BACK_OFF_SECONDS)


@pytest.mark.parametrize("batch", [False, True])
def test_what_was_given_up_is_a_failed_search(url: str, samples: Samples, batch: bool) -> None:
    """Else every request for it begins anew, and costs as many workers."""
    clock, request = [1000.0], samples.request()
    with Store(url, clock=lambda: clock[0]) as store:
        failing = FailureKey(request, NOW, 30.0)
        if batch:
            work = Work("plan", "{}", request.digest, failing=failing)
            store.batches.submit([NewItem("a", samples.graph_key(), work)], [], "0" * 64)
        else:
            store.queue.submit("plan", "{}", request.digest, failing=failing)
        lose(store, clock)
        found = store.failures.failure(request, NOW, 30.0)
        assert found is not None
        assert found.error.startswith(f"given up: {MAX_ATTEMPTS} workers took it and were lost")
        assert found.created == clock[0] - max(BACK_OFF_SECONDS)
        assert store.failures.failure(request, NOW, 31.0) is None, "with more seconds it is tried again"
        assert store.failures.failure(request, LATER, 30.0) is None, "as under other conditions"
        assert store.failures.failure(samples.request(1), NOW, 30.0) is None
        samples.put(store)
        assert store.failures.failure(request, NOW, 30.0) is None


def test_what_was_not_given_up_is_no_failed_search(url: str, samples: Samples) -> None:
    clock, request = [1000.0], samples.request()
    with Store(url, clock=lambda: clock[0]) as store:
        for n in range(4):
            operation = store.queue.submit("plan", "{}", request.digest, failing=FailureKey(request, NOW, 30.0))
            for _ in range(MAX_ATTEMPTS - 1):
                taken(store)
                store.queue.abandon("worker")
                clock[0] += max(BACK_OFF_SECONDS)
            held = taken(store)
            if n == 0:
                store.queue.cancel(operation.id)
                store.queue.abandon("worker")
            elif n == 1:
                store.queue.finish(held.id, "worker", held.token, result="{}")
            elif n == 2:
                store.queue.finish(held.id, "worker", held.token, error="no disk space")
            else:
                store.queue.release(held.id, "worker", held.token)
            assert store.failures.failure(request, NOW, 0.0) is None
