"""From the lines of a batch to its items: read, checked, looked up. Stores nothing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codegen.devices import DeviceError
from fusion_ir.text import print_graph
from service.api.batch_models import CUSTOM_ID
from service.api.context import Context
from service.api.reading import Ask, check_seconds, read_members, read_object
from service.errors import ApiError, problem
from service.jobs import PLAN, PlanJob, PlanResult
from tuning_db import Conditions, Ending, Names, NewGraph, NewItem, RequestKey, Work

_CUSTOM_ID = re.compile(CUSTOM_ID)
_DIGITS = re.compile(r"1:([0-9]+)")


@dataclass(frozen=True)
class Lines:
    """What a batch consists of: its items, in order, and the graphs that came with them."""

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
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        if len(items) == ctx.settings.max_batch_items:
            limit = f"{ctx.settings.max_batch_items} items (setting max_batch_items)"
            raise ApiError("bad-batch", f"A batch has at most {limit}.", str(number))
        custom_id, members = _members(number, line)
        if custom_id in seen:
            raise ApiError("bad-batch", f"The custom_id was that of line {seen[custom_id]}, too.", str(number))
        seen[custom_id] = number
        try:
            ask = read_members({**defaults, **members})
            items.append(_item(ctx, custom_id, ask))
        except ApiError as error:
            document = problem(error.slug, error.detail, error.place, error.status)
            items.append(NewItem(custom_id, None, Ending("failed", error=document.model_dump_json())))
            continue
        if ask.named is not None and ask.graph_key not in graphs:
            names = Names(ask.named.input_names, ask.named.output_names)
            graphs[ask.graph_key] = NewGraph(ask.graph_key, print_graph(ask.named.graph), names)
    if not items:
        raise ApiError("bad-batch", "The batch has no lines.", "1")
    return Lines(items, list(graphs.values()))


def _members(number: int, line: bytes) -> tuple[str, dict[str, Any]]:
    """The line's custom_id, and its other members. Raises ApiError."""
    try:
        members = dict(read_object(line))
    except ApiError as error:
        column = _DIGITS.fullmatch(error.place or "")
        raise ApiError("bad-batch", error.detail, f"{number}:{column[1]}" if column else str(number)) from error
    custom_id = members.pop("custom_id", None)
    if not isinstance(custom_id, str) or not _CUSTOM_ID.fullmatch(custom_id):
        expected = "a custom_id of 1 to 512 characters, without control characters"
        raise ApiError("bad-batch", f"Expected {expected}.", str(number))
    return custom_id, members


def _item(ctx: Context, custom_id: str, ask: Ask) -> NewItem:
    """The item, done where there is a plan for it. Raises ApiError."""
    target, seconds = ask.request.target or ctx.settings.target, ask.request.seconds
    check_seconds(ctx.settings, seconds, "/seconds")
    if ask.named is None and ctx.store.graph(ask.graph_key) is None:
        raise ApiError("unknown-graph", "No graph with this key is stored.", "/graph_key")
    try:
        device = ctx.devices.detect(target)
    except DeviceError as error:
        raise ApiError("no-device", str(error), "/target") from error
    memory_bytes = ask.request.memory_bytes
    key = RequestKey(ask.graph_key, device.class_key, ask.request.numerics, memory_bytes=memory_bytes)
    found = ctx.store.resolve(key, Conditions.of_device(device, ctx.version))
    if found is not None and found.state != "stale":
        ctx.metrics.resolves.labels("hit").inc()
        result = PlanResult(plan_key=found.plan_key, cache="hit", state=found.state)
        return NewItem(custom_id, ask.graph_key, Ending("done", result=result.model_dump_json()))
    ctx.metrics.resolves.labels("miss").inc()
    job = PlanJob(
        graph_key=ask.graph_key,
        target=target,
        seconds=seconds or ctx.settings.default_seconds,
        numerics=ask.request.numerics,
        memory_bytes=memory_bytes,
    )
    return NewItem(custom_id, ask.graph_key, Work(PLAN, job.model_dump_json(), key.digest))
