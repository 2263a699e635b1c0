"""The queue as the list of plans shows it: operations that run, that wait in turn, or that ended without a plan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.api.operations import object_in
from service.wording import formatting
from service.wording.failures import problem_in
from service.wording.queue_turns import job_of, left_seconds, turns
from tuning_db.operation import Operation

FAILED_SECONDS = 86400.0  # that failures are shown for


@dataclass(frozen=True)
class QueueRow:
    """One operation that waits or runs. names: of its graph's tensors; left: how long it still
    takes at most, or when it starts at the latest."""

    running: bool
    id: str
    short: str
    names: str
    left: str
    text: str


@dataclass(frozen=True)
class FailedRow:
    """One operation that ended without a plan: the problem that it ended with."""

    id: str
    short: str
    names: str
    title: str
    uri: str
    detail: str
    age: str


@dataclass(frozen=True)
class Queue:
    """Rows of operations that run, then of those that wait, in turn. counts: numbers of both, in words. more: waiting
    operations that are not shown."""

    rows: Sequence[QueueRow]
    counts: str
    more: int


def queue(
    running: Sequence[Operation],
    waiting: Sequence[Operation],
    all_waiting: int,
    now: float,
    names_of: Callable[[str], str] = lambda _: "",
) -> Queue:
    """The queue. waiting: the first ones of `all_waiting`; now: in seconds since 1970; names_of: what the tensors of a
    graph are called, by its key."""
    all_waiting = max(all_waiting, len(waiting))
    counts = [f"{len(running)} running"] if running else []
    counts += [f"{all_waiting:,} waiting"] if all_waiting else []
    starts = [None] * len(running) + turns(running, waiting, now)
    each = zip((*running, *waiting), starts, strict=True)
    rows = [_queue_row(operation, now, names_of, in_s) for operation, in_s in each]
    return Queue(rows, ", ".join(counts), all_waiting - len(waiting))


def failed(operations: Sequence[Operation], now: float, names_of: Callable[[str], str]) -> list[FailedRow]:
    """Operations that failed within FAILED_SECONDS, the newest first."""
    rows: list[FailedRow] = []
    for operation in operations:
        ended = operation.finished or operation.created
        if now - ended > FAILED_SECONDS:
            continue
        job, found = job_of(operation), problem_in(operation.error)
        short, names = (job.graph_key[:10], names_of(job.graph_key)) if job else (operation.kind, "")
        age = formatting.age(ended, now)
        rows.append(FailedRow(operation.id, short, names, found.title, found.type, found.detail, age))
    return rows


def _queue_row(operation: Operation, now: float, names_of: Callable[[str], str], starts_s: float | None) -> QueueRow:
    """ "cpu, phase segments, budget 30 s, running for 6 s, 37 kernels measured, best so far 2.87 ms"."""
    running, job = operation.state == "running", job_of(operation)
    progress = object_in(operation.progress) or {}
    parts = [f"for {job.target}"] if job else []
    parts += [f"phase {progress['phase']}"] if running and progress.get("phase") else []
    parts += [f"budget {job.seconds:g} s"] if job else []
    since = operation.started if running and operation.started is not None else operation.created
    parts.append(f"{'running' if running else 'waiting'} for {max(1, int(now - since))} s")
    if running and progress.get("measured"):
        parts.append(f"{formatting.count(progress['measured'], 'kernel')} measured")
    if running and progress.get("best_us"):
        parts.append(f"best so far {formatting.duration(progress['best_us'])}")
    left = "cancelling" if operation.cancel_requested else _left(operation, now) if running else _start(starts_s)
    short, names = (job.graph_key[:10], names_of(job.graph_key)) if job else (operation.kind, "")
    return QueueRow(running, operation.id, short, names, left, ", ".join(parts))


def _left(operation: Operation, now: float) -> str:
    """ "at most 24 s left", of a search that ends when its budget does, or before; what it checks and times then comes
    on top."""
    left_s = left_seconds(operation, now)
    if left_s is None:
        return ""
    return f"at most {max(1, round(left_s))} s left" if left_s > 0 else f"{max(1, round(-left_s))} s over its budget"


def _start(seconds: float | None) -> str:
    """ "starts in at most 30 s", of what waits behind searches that end with their budgets."""
    return "" if seconds is None else f"starts in at most {max(1, round(seconds))} s"
