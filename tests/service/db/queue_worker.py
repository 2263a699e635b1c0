"""A process of its own for the tests: `queue_worker.py MODE URL OWNER`. It prints what the database acknowledged."""

import sys

from fusion_ir.records import Measurement, Status
from tuning_db.store import Store


def drain(store: Store, owner: str) -> None:
    """Leases and finishes jobs until none waits; prints each job's payload after its result was accepted."""
    print("ready", flush=True)
    sys.stdin.readline()
    while (job := store.queue.lease(owner, 60.0)) is not None:
        if store.queue.finish(job.id, owner, job.token, result=f"{owner}: {job.payload}"):
            print(job.payload, flush=True)


def hold(store: Store, owner: str) -> None:
    """Leases one job for a short time, prints it, and after a line on stdin tries to renew and to finish it."""
    job = store.queue.lease(owner, 0.3)
    assert job is not None
    print(job.id, job.token, flush=True)
    sys.stdin.readline()
    renewed = store.queue.renew(job.id, owner, job.token, 60.0)
    progressed = store.queue.progress(job.id, owner, job.token, "late")
    finished = store.queue.finish(job.id, owner, job.token, result="late")
    print(renewed is not None, progressed is not None, finished, flush=True)


def write(store: Store, owner: str) -> None:
    """Records measurements one by one, printing each number after it was committed, until killed."""
    for n in range(1_000_000):
        row = Measurement(segment_key="s", device_key="d", family=owner, schedule=str(n), status=Status.crashed)
        store.trials.record([row])
        print(n, flush=True)


def submit(store: Store, owner: str) -> None:
    """Adds a job, and ends as the last one that has the database open, as far as it can see."""
    store.queue.submit("tune", owner)


def main() -> None:
    mode, url, owner = sys.argv[1:]
    if mode == "create":  # wait for the start signal before the database is opened at all
        print("ready", flush=True)
        sys.stdin.readline()
    with Store(url) as store:
        if mode == "create":
            print(store.revision(), flush=True)
        else:
            {"drain": drain, "hold": hold, "write": write, "submit": submit}[mode](store, owner)


if __name__ == "__main__":
    main()
