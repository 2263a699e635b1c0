"""A worker: takes operations from the queue and does them, in a process of its own (`python -m service.worker`).

While one runs, a thread renews its lease. A worker that loses its lease drops the work at the search's next step; one
whose operation is cancelled ends the search there, and where something was measured keeps the best plan so far, for
whoever asks next. SIGTERM ends it at once and gives the operation back.
"""

import argparse
import json
import logging
import os
import secrets
import signal
import sys
import threading
import time
from dataclasses import asdict
from types import FrameType

from pydantic import ValidationError

from codegen.devices.detection import DeviceError
from codegen.devices.quarantine import DeviceQuarantined
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import CompilerMissing
from scheduler.budget import Budget, Event, RequestError
from scheduler.no_plan import NoPlan
from service.errors import problem
from service.jobs import PLAN, PlanJob, PlanResult, worker_name, worker_token
from service.planning import planner
from service.planning.devices_here import DevicesHere
from service.planning.plan_request import PlanRequest
from service.planning.planner import FailedBefore, PlanningError, failed_search
from service.process import logs
from service.process.parent import end_with
from service.settings import Settings, load
from tuning_db.errors import DatabaseError
from tuning_db.operation import Operation
from tuning_db.store import Store

log = logging.getLogger("fuseplan.worker")

IDLE_SECONDS = (0.05, 0.5)  # first and longest pause between looks at an empty queue
PROGRESS_SECONDS = 0.3
OUTAGE_SECONDS = 5.0  # pause after the database did not answer


class Dropped(Exception):
    """The work is not to be finished: another worker has it, or it was cancelled with nothing measured yet."""


class Lease:
    """An operation held by this worker: renewed from a thread, checked and reported on by `progress`."""

    def __init__(self, store: Store, operation: Operation, owner: str, seconds: float) -> None:
        self._store, self._operation, self._owner, self._seconds = store, operation, owner, seconds
        self._over = threading.Event()
        self._reported = 0.0
        self._measured = 0
        self.lost = self.cancelled = False
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> "Lease":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def progress(self, event: Event) -> None:
        """Writes how far the search is: at once when the first kernels are measured, and at most every
        PROGRESS_SECONDS. Raises as `check` does."""
        self.check()
        begun = event.measured > 0 and self._measured == 0
        if begun or time.monotonic() - self._reported >= PROGRESS_SECONDS:
            self._reported = time.monotonic()
            held = self._operation.id, self._owner, self._operation.token
            self._measured = event.measured
            self._note(self._store.queue.progress(*held, json.dumps(asdict(event))))
            self.check()

    def check(self) -> None:
        """Where the work is not wanted any more, raises KeyboardInterrupt, which ends a search with the best so far; or
        Dropped where that would be nobody's, or a mere prediction."""
        if self.lost or (self.cancelled and not self._measured):
            raise Dropped
        if self.cancelled:
            raise KeyboardInterrupt

    def _renew(self) -> None:
        while not self._over.wait(self._seconds / 3):
            try:
                held = self._store.queue.renew(self._operation.id, self._owner, self._operation.token, self._seconds)
            except DatabaseError as error:  # the next attempt may still be in time
                log.warning("the lease of %s was not renewed: %s", self._operation.id, error)
                continue
            self._note(held)

    def _note(self, held: Operation | None) -> None:
        if held is None:
            self.lost = True
        elif held.cancel_requested:
            self.cancelled = True


class Worker:
    """Takes one operation after another, of those for which this machine has the device. `owner`: its name in the
    queue."""

    def __init__(self, settings: Settings, store: Store, owner: str | None = None) -> None:
        self._settings, self._store = settings, store
        self._owner = owner or worker_name(os.getpid(), worker_token())
        self._cache = ObjectCache(settings.cache, store.seal())
        self._devices = DevicesHere(self._cache)

    def run(self) -> None:
        """Until an exception (SystemExit on SIGTERM, and when the parent ends) ends it."""
        pause, longest = IDLE_SECONDS
        while True:
            try:
                busy = self.step()
            except DatabaseError as error:
                log.error("%s", error)
                time.sleep(OUTAGE_SECONDS)
                continue
            pause = IDLE_SECONDS[0] if busy else min(longest, 1.5 * pause)
            if not busy:
                time.sleep(pause)

    def step(self) -> bool:
        """Does the next operation; False where there is none."""
        operation = self._lease()
        if operation is None:
            return False
        log.info("operation %s, attempt %d", operation.id, operation.attempt)
        held = (operation.id, self._owner, operation.token)
        lease = Lease(self._store, operation, self._owner, self._settings.lease_seconds)
        try:
            with lease:
                result = self._plan(operation, lease)
        except (Dropped, SystemExit, KeyboardInterrupt) as error:
            if lease.cancelled and not isinstance(error, SystemExit):
                self._store.queue.finish(*held, cancelled=True)
                log.info("operation %s was cancelled", operation.id)
            elif isinstance(error, Dropped):
                log.info("operation %s was taken by another worker", operation.id)
            else:
                self._store.queue.release(*held)
                raise
        except DatabaseError:
            raise  # the lease runs out by itself
        except Exception as error:
            self._store.queue.finish(*held, error=_explain(operation, error))
        else:
            self._store.queue.finish(*held, result=result.model_dump_json())
        return True

    def _lease(self) -> Operation | None:
        """The next operation for a device of this machine, None where there is none."""
        seconds = self._settings.lease_seconds
        operation = self._store.queue.lease(self._owner, seconds, (PLAN,), self._devices.classes)
        if operation is None and self._devices.look(self._store.queue.waiting_devices((PLAN,), self._devices.known)):
            operation = self._store.queue.lease(self._owner, seconds, (PLAN,), self._devices.classes)
        return operation

    def _plan(self, operation: Operation, lease: Lease) -> PlanResult:
        job = PlanJob.model_validate_json(operation.payload)
        stored = self._store.graphs.graph(job.graph_key)
        if stored is None:
            raise PlanningError("the graph is not stored any more")
        sampler = job.sampler or self._settings.sampler_names[0]
        answer = planner.plan_stored_graph(
            stored.named().graph,
            PlanRequest(
                self._devices.device(operation.device_key, job.target),
                job.graph_key,
                Budget(job.seconds, memory_bytes=job.memory_bytes, sampler=sampler),
                job.numerics,
            ),
            self._store,
            self._cache,
            lease.progress,
            again=job.again,
            cancel_counts=True,
        )
        lease.check()
        return PlanResult(plan_key=answer.plan_key, cache=answer.cache, state=answer.state)


def _explain(operation: Operation, error: Exception) -> str:
    """The problem document that the operation ends with."""
    if isinstance(error, DeviceError | CompilerMissing):
        document = problem("no-device", str(error))
    elif isinstance(error, DeviceQuarantined):
        document = problem("device-quarantined", str(error))
    elif isinstance(error, FailedBefore):
        document = error.problem
    elif isinstance(error, NoPlan):
        document = failed_search(error)
    elif isinstance(error, PlanningError | RequestError):
        document = problem("tuning-failed", str(error))
    else:
        incident = secrets.token_hex(6)
        payload = "unreadable payload" if isinstance(error, ValidationError) else operation.payload
        log.error("incident %s, operation %s (%s)", incident, operation.id, payload, exc_info=error)
        document = problem(
            "tuning-failed", f"The search failed with a fault of its own; the log has incident {incident}."
        )
    return document.model_dump_json()


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(arguments: list[str] | None = None) -> int:
    """Runs a worker with the settings of the environment. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m service.worker", description="Takes operations from the queue and does them."
    )
    parser.add_argument("--parent", type=int, help="process id without which this worker ends")
    parser.add_argument("--token", help="the end of this worker's name in the queue, by which its parent knows it")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminate)
    if options.parent is not None:
        end_with(options.parent)
    settings = load()
    logs.configure(settings.log_level)
    try:
        with Store(settings.db) as store:
            Worker(settings, store, worker_name(os.getpid(), options.token or worker_token())).run()
    except DatabaseError as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
