"""Latest times at which waiting operations of the queue start and running ones end, by the budgets of searches."""

import math
from collections import Counter
from collections.abc import Sequence

from pydantic import ValidationError

from service.jobs import PLAN, PlanJob
from tuning_db.operation import Operation

MOST_RETRY_SECONDS = 60  # that a client is told to stay away: searches may end before their budgets do
LOOKED_AT = 64  # of those that run, and of those that wait


def job_of(operation: Operation) -> PlanJob | None:
    """The payload of a `plan` operation; None for another kind, and where it is damaged: its worker will say so."""
    try:
        return PlanJob.model_validate_json(operation.payload) if operation.kind == PLAN else None
    except ValidationError:
        return None


def left_seconds(operation: Operation, now: float) -> float | None:
    """How much of its budget a search that runs still has, negative beyond it; now: in seconds since 1970."""
    job = job_of(operation)
    begun = operation.created if operation.started is None else operation.started
    return None if job is None else job.seconds - (now - begun)


def turns(running: Sequence[Operation], waiting: Sequence[Operation], now: float) -> list[float | None]:
    """Most seconds until each of `waiting`, in turn, starts, if searches end with their budgets.

    The workers that have its device, as many as operations run for it, share the work for that device before it: what
    is left of the running searches, and the budgets of those that wait before it. None where nothing runs for the
    device, or something is beyond its budget.
    """
    ahead: dict[str | None, float] = {}
    for operation in running:
        left = left_seconds(operation, now)
        left = math.nan if left is None or left < 0 else left
        ahead[operation.device_key] = ahead.get(operation.device_key, 0.0) + left
    workers = Counter(operation.device_key for operation in running)
    found: list[float | None] = []
    for operation in waiting:
        device = operation.device_key
        work = ahead.get(device, math.nan)
        found.append(None if math.isnan(work) else work / workers[device])
        job = job_of(operation)
        ahead[device] = work + (math.nan if job is None else job.seconds)
    return found


def retry_seconds(operation: Operation, running: Sequence[Operation], waiting: Sequence[Operation], now: float) -> int:
    """Seconds for the `Retry-After` of an operation that waits behind others: those until it starts at the latest, 1 to
    MOST_RETRY_SECONDS."""
    for other, seconds in zip(waiting, turns(running, waiting, now), strict=True):
        if other.id == operation.id:
            return 1 if seconds is None else max(1, min(MOST_RETRY_SECONDS, math.ceil(seconds)))
    return MOST_RETRY_SECONDS if len(waiting) >= LOOKED_AT else 1
