"""The queue as the list of plans shows it: what runs, then what waits, in turn."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from service import formatting
from service.api.operations import object_in
from service.jobs import PLAN, PlanJob
from tuning_db import Operation


@dataclass(frozen=True)
class QueueRow:
    """One operation that waits or runs."""

    running: bool
    short: str
    text: str


@dataclass(frozen=True)
class Queue:
    """What runs, then what waits, in turn; how many of each there are in all, in words; more: that are not shown."""

    rows: Sequence[QueueRow]
    counts: str
    more: int


def queue(running: Sequence[Operation], waiting: Sequence[Operation], all_waiting: int, now: float) -> Queue:
    """The queue. waiting: the first ones of `all_waiting`; now: in seconds since 1970."""
    all_waiting = max(all_waiting, len(waiting))
    counts = [f"{len(running)} running"] if running else []
    counts += [f"{all_waiting:,} waiting"] if all_waiting else []
    rows = [_queue_row(operation, now) for operation in (*running, *waiting)]
    return Queue(rows, ", ".join(counts), all_waiting - len(waiting))


def _queue_row(operation: Operation, now: float) -> QueueRow:
    """ "phase segments, budget 30 s, running for 6 s, 37 kernels measured, best so far 2.87 ms"."""
    running, job = operation.state == "running", _job(operation)
    progress = object_in(operation.progress) or {}
    parts = [f"phase {progress['phase']}"] if running and progress.get("phase") else []
    parts += [f"budget {job.seconds:g} s"] if job else []
    since = operation.started if running and operation.started is not None else operation.created
    parts.append(f"{'running' if running else 'waiting'} for {max(1, int(now - since))} s")
    if running and progress.get("measured"):
        parts.append(f"{formatting.count(progress['measured'], 'kernel')} measured")
    if running and progress.get("best_us"):
        parts.append(f"best so far {formatting.duration(progress['best_us'])}")
    parts += ["cancelling"] if operation.cancel_requested else []
    return QueueRow(running, job.graph_key[:10] if job else operation.kind, ", ".join(parts))


def _job(operation: Operation) -> PlanJob | None:
    """What an operation plans, None for another kind, and where it is damaged: its worker will say so."""
    try:
        return PlanJob.model_validate_json(operation.payload) if operation.kind == PLAN else None
    except ValidationError:
        return None
