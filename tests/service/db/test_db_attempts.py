"""Attempts are counted from the last one that got somewhere: only what never does is given up."""

from tuning_db import MAX_ATTEMPTS, Operation, Store


def lost(store: Store, clock: list[float], advanced: bool) -> Operation | None:
    """A worker takes the operation, says how far it is, and is never heard of again."""
    taken = store.lease("worker", 10.0)
    if taken is not None:
        store.progress(taken.id, "worker", taken.token, "measured", advanced=advanced)
        clock[0] += 11.0
    return taken


def test_an_operation_survives_any_number_of_workers_that_got_somewhere(url: str) -> None:
    clock = [1000.0]
    with Store(url, clock=lambda: clock[0]) as store:
        operation = store.submit("plan", "{}")
        for _ in range(5 * MAX_ATTEMPTS):
            assert lost(store, clock, advanced=True) is not None
        taken = store.lease("worker", 10.0)
        assert taken is not None
        assert store.finish(operation.id, "worker", taken.token, result="done")


def test_attempts_that_get_nowhere_are_counted_from_the_last_that_did(url: str) -> None:
    clock = [1000.0]
    with Store(url, clock=lambda: clock[0]) as store:
        operation = store.submit("plan", "{}")
        assert lost(store, clock, advanced=True) is not None
        for attempt in range(2, MAX_ATTEMPTS + 1):
            taken = lost(store, clock, advanced=False)
            assert taken is not None
            assert taken.attempt == attempt
        assert store.lease("worker", 10.0) is None
        found = store.operation(operation.id)
        assert found is not None
        assert found.state == "failed"
