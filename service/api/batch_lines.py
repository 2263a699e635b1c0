"""From the lines of a batch to its items: read, checked, looked up. Stores nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from codegen.devices.detection import DeviceError
from service.api.context import Context
from service.api.readers import Read
from service.api.reading import check_device, check_sampler, check_seconds
from service.errors import ApiError, problem
from service.jobs import PLAN, PlanJob, PlanResult
from service.wording.failures import failed_before
from tuning_db.batch_endings import Ending
from tuning_db.batches import NewItem, Work
from tuning_db.failures import FailureKey
from tuning_db.graphs import NewGraph
from tuning_db.requests import Conditions, RequestKey

BLANK_LINES = 1000  # between the items of a batch, at most


@dataclass(frozen=True)
class Lines:
    """The items of a batch, in order, and the graphs that came with them, each once."""

    items: list[NewItem]
    graphs: list[NewGraph]


def read_lines(ctx: Context, body: bytes, defaults: Mapping[str, Any]) -> Lines:
    """The items in the lines of `body`. Blocks: for a large body, call it in a thread.

    A line whose request is bad becomes an item that failed. Raises ApiError `bad-batch` for a line that is no JSON
    object with a custom_id of its own, naming it: then the sender could not be told which item failed.
    defaults: members for the requests that lack them.
    """
    items: list[NewItem] = []
    graphs: dict[str, NewGraph] = {}
    seen: dict[str, int] = {}
    for number, line in _lines(body, ctx.settings.max_batch_items + BLANK_LINES):
        if len(items) == ctx.settings.max_batch_items:
            limit = f"{ctx.settings.max_batch_items} items (setting max_batch_items)"
            raise ApiError("bad-batch", f"A batch has at most {limit}.", str(number))
        custom_id, read = ctx.readers.read_line(line, number, defaults)
        if custom_id in seen:
            raise ApiError("bad-batch", f"The custom_id was that of line {seen[custom_id]}, too.", str(number))
        seen[custom_id] = number
        try:
            if isinstance(read, ApiError):
                raise read
            items.append(_item(ctx, custom_id, read))
        except ApiError as error:
            document = problem(error.slug, error.detail, error.place, error.status)
            items.append(NewItem(custom_id, None, Ending("failed", error=document.model_dump_json())))
            continue
        if read.text is not None and read.graph_key not in graphs:
            graphs[read.graph_key] = NewGraph(read.graph_key, read.text.decode(), read.parsed_names())
    if not items:
        raise ApiError("bad-batch", "The batch has no lines.", "1")
    return Lines(items, list(graphs.values()))


def _lines(body: bytes, most: int) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers, from 1. Raises ApiError where there are more than `most` in all."""
    number, begin = 0, 0
    while begin < len(body):
        number += 1
        if number > most:
            raise ApiError("bad-batch", f"A batch has at most {most} lines, blank ones included.", str(number))
        end = body.find(b"\n", begin)
        end = len(body) if end < 0 else end
        line = body[begin:end]
        begin = end + 1
        if line.strip():
            yield number, line


def _item(ctx: Context, custom_id: str, ask: Read) -> NewItem:
    """The item for a request: done where a stored plan answers it, failed where a search for it failed before, else
    work for the queue. Raises ApiError."""
    target, seconds = ask.target or ctx.settings.target, ask.seconds
    check_seconds(ctx.settings, seconds, "/seconds")
    check_sampler(ctx.settings, ask.sampler, "/sampler")
    if ask.text is None and ctx.store.graphs.graph(ask.graph_key) is None:
        raise ApiError("unknown-graph", "No graph with this key is stored.", "/graph_key")
    try:
        device = ctx.devices.detect(target)
    except DeviceError as error:
        raise ApiError("no-device", str(error), "/target") from error
    check_device(device, ask.device_key, "/device_key")
    memory_bytes = ask.memory_bytes
    key = RequestKey(ask.graph_key, device.class_key, ask.numerics, memory_bytes=memory_bytes)
    now, seconds = Conditions.of_device(device, ctx.version), seconds or ctx.settings.default_seconds
    found = ctx.store.plans.resolve(key, now, seconds)
    if found is not None and not found.due:
        ctx.metrics.resolves.labels("hit").inc()
        result = PlanResult(plan_key=found.plan_key, cache="hit", state=found.state)
        return NewItem(custom_id, ask.graph_key, Ending("done", result=result.model_dump_json()))
    ctx.metrics.resolves.labels("miss").inc()
    before = failed_before(ctx.store, key, now, seconds)
    if before is not None:
        return NewItem(custom_id, ask.graph_key, Ending("failed", error=before.model_dump_json()))
    job = PlanJob(
        graph_key=ask.graph_key,
        target=target,
        seconds=seconds,
        numerics=ask.numerics,
        memory_bytes=memory_bytes,
        sampler=ask.sampler,
    )
    failing = FailureKey(key, now, seconds)
    return NewItem(custom_id, ask.graph_key, Work(PLAN, job.model_dump_json(), key.digest, key.device_key, failing))
