"""Processes that read: right answers, limits of time, memory and queue, and an end of theirs that costs one body."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from service.api.readers import LaneLimits, Read, Readers
from service.api.reading import read_body
from service.errors import ApiError
from tests.support.service_app import readers as shared
from tests.support.service_app import wire

ANY = 2**62
SMALL = json.dumps({"graph": wire(), "seconds": 2.5, "memory_bytes": 99, "sampler": "tpe"}).encode()


def large(nodes: int) -> bytes:
    return json.dumps({"graph": wire(ops=("exp", "neg") * (nodes // 2))}).encode()


@pytest.fixture
def short() -> Iterator[Readers]:
    """Readers that have 50 ms for a body, and few places for those that wait."""
    found = Readers((LaneLimits(ANY, 0.05),), waiting=4)
    yield found
    found.close()


def problem(future: "Future[Any]") -> ApiError:
    error = future.exception(60)
    assert isinstance(error, ApiError)
    return error


def test_what_a_process_reads_is_what_we_read() -> None:
    _, read = shared().submit(SMALL).result(60)
    ask = read_body(SMALL)
    assert isinstance(read, Read)
    assert ask.named is not None
    assert (read.graph_key, read.seconds, read.memory_bytes, read.sampler) == (ask.graph_key, 2.5, 99, "tpe")
    assert (read.target, read.numerics) == (None, "reassociate")
    assert (read.parsed_names().inputs, read.parsed_names().outputs) == (("x",), ("y",))


def test_problems_come_through() -> None:
    error = problem(shared().submit(b'{"graph": {}}'))
    with pytest.raises(ApiError) as expected:
        read_body(b'{"graph": {}}')
    shown = (expected.value.slug, expected.value.detail, expected.value.place)
    assert (error.slug, error.detail, error.place) == shown


def test_lines_of_batches() -> None:
    line = json.dumps({"custom_id": "a", "graph": wire()}).encode()
    custom_id, read = shared().read_line(line, 3, {"seconds": 4.0})
    assert custom_id == "a"
    assert isinstance(read, Read)
    assert read.seconds == 4.0
    custom_id, error = shared().read_line(b'{"custom_id": "b", "graph": {}}', 4, {})
    assert (custom_id, getattr(error, "slug", "")) == ("b", "bad-graph")
    with pytest.raises(ApiError, match="custom_id") as found:
        shared().read_line(b"{}", 5, {})
    assert (found.value.slug, found.value.place) == ("bad-batch", "5")


@pytest.mark.turn("readers that end")
def test_too_much_time_ends_the_body_alone(short: Readers) -> None:
    first = short.submit(large(19_000))
    second = short.submit(SMALL)
    error = problem(first)
    assert (error.slug, error.status) == ("too-much-to-read", 422)
    assert isinstance(second.result(60)[1], Read)


@pytest.mark.turn("readers that end")
def test_too_much_memory_ends_the_body_alone() -> None:
    readers = Readers((LaneLimits(ANY, 60.0),), memory_bytes=8 * 2**20)
    try:
        assert problem(readers.submit(large(19_000))).slug == "too-much-to-read"
        assert isinstance(readers.submit(SMALL).result(60)[1], Read)
    finally:
        readers.close()


@pytest.mark.turn("readers that end")
def test_a_full_queue_refuses_at_once(short: Readers) -> None:
    held: list[Any] = []
    with pytest.raises(ApiError) as found:
        held.extend(short.submit(large(2_000)) for _ in range(50))
    assert (found.value.slug, found.value.status) == ("too-many-bodies", 429)
    assert int(found.value.headers["Retry-After"]) > 0
    for future in held:
        future.exception(60)
    assert isinstance(short.submit(SMALL).result(60)[1], Read)


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.mark.turn("readers that end")
def test_somebody_ends_the_processes_and_others_begin(short: Readers) -> None:
    assert isinstance(short.submit(SMALL).result(60)[1], Read)
    for whole in (False, True):  # a reader, then what readers come from, too
        (source,) = [c for c in children(os.getpid()) if b"reader_process" in Path(f"/proc/{c}/cmdline").read_bytes()
                     and c != shared_source()]  # fmt: skip
        for process in [*children(source), *([source] if whole else [])]:
            os.kill(process, signal.SIGKILL)
        assert isinstance(short.submit(SMALL).result(60)[1], Read)


def shared_source() -> int | None:
    """The process behind the readers that all tests share, where it has begun."""
    process = shared()._source._process
    return None if process is None else process.pid


@pytest.mark.turn("readers that end")
def test_a_reader_that_has_grown_makes_room() -> None:
    readers = Readers((LaneLimits(ANY, 60.0),))
    try:
        readers.submit(SMALL).result(60)
        lane = readers._lanes[0]
        before = lane._reader
        readers.submit(large(19_000)).result(60)
        readers.submit(SMALL).result(60)
        grown = lane._reader is not before
        assert before is not None
        assert grown
    finally:
        readers.close()


@pytest.mark.turn("readers that end")
def test_the_end_of_readers_answers_those_who_wait() -> None:
    readers = Readers((LaneLimits(ANY, 60.0),))
    waiting = [readers.submit(large(19_000)) for _ in range(4)]
    readers.close()
    assert all(future.done() for future in waiting)
