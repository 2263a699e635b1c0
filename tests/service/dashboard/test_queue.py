"""The queue on the list of plans: what runs comes first, all that waits is counted, budgets and phases are told."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fusion_ir.keys.graph_key import graph_key
from fusion_ir.text.printing import print_graph
from service.dashboard import routes
from service.dashboard.queue_view import FAILED_SECONDS, failed, queue
from service.errors import PROBLEM_TYPES, problem
from service.jobs import PLAN, PlanJob
from service.wording.queue_turns import MOST_RETRY_SECONDS, turns
from tests.support.service_app import Running, running, wire
from tests.support.stored_plans import chain, sha, store_plan
from tests.support.strict_page import page
from tuning_db.operation import Operation, OperationState
from tuning_db.reading.graphs import Names


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as started:
        yield started


def submit(service: Running, number: int, seconds: float, priority: int = 0) -> str:
    """The beginning of the key of the graph that is to be planned."""
    key = sha(f"graph {number}")
    job = PlanJob(graph_key=key, target="cpu", seconds=seconds, numerics="reassociate")
    service.store.queue.submit(PLAN, job.model_dump_json(), None, priority=priority)
    return key[:10]


def lease(service: Running, phase: str, measured: int, best_us: float | None) -> None:
    held = service.store.queue.lease("worker", 60.0)
    assert held is not None
    text = json.dumps({"phase": phase, "measured": measured, "best_us": best_us, "seconds": 1.0})
    assert service.store.queue.progress(held.id, "worker", held.token, text) is not None


def test_what_runs_is_shown_however_much_waits(service: Running) -> None:
    first = submit(service, 0, 30.0)
    lease(service, "segments", 37, 2870.0)
    waiting = [submit(service, i, 3.5) for i in range(1, routes.QUEUE_ROWS + 6)]
    text = page(service, "/").text
    assert f"1 running, {len(waiting)} waiting" in text
    assert re.search(rf"Planning {first} at most \d+ s left for cpu, phase segments, budget 30 s, running for", text)
    assert "37 kernels measured, best so far 2.87 ms" in text
    assert text.index("Planning") < text.index("Waiting")
    assert text.count("budget 3.5") == routes.QUEUE_ROWS
    assert "and 5 more waiting" in text


def test_what_waits_is_shown_in_turn(service: Running) -> None:
    keys = [submit(service, i, 3.0) for i in range(routes.QUEUE_ROWS + 2)]
    urgent = submit(service, 99, 3.0, priority=1)
    text = page(service, "/").text
    assert "running" not in text.partition("In the queue")[2].partition("Waiting")[0]
    shown = [urgent, *keys[: routes.QUEUE_ROWS - 1]]
    assert [key for _, key in sorted((text.index(key), key) for key in shown)] == shown
    assert keys[-1] not in text


def test_while_the_first_search_runs_the_list_does_not_say_that_there_is_nothing(service: Running) -> None:
    submit(service, 0, 30.0)
    lease(service, "candidates", 0, None)
    text = page(service, "/").text
    assert "No plans yet" not in text
    assert "The first plan is on its way" in text
    store_plan(service.store, chain())
    assert "on its way" not in page(service, "/").text


def test_an_operation_that_cannot_be_read_is_shown_as_far_as_it_goes(service: Running) -> None:
    service.store.queue.submit(PLAN, "no JSON", None)
    assert "Waiting plan waiting for" in page(service, "/").text


def test_the_queue_says_what_is_planned_and_how_long_still(service: Running) -> None:
    graph, names = chain(3), Names(("query",), ("rotated",))
    service.store.graphs.put(graph_key(graph), print_graph(graph), names)
    job = PlanJob(graph_key=graph_key(graph), target="h200", seconds=30.0, numerics="reassociate")
    service.store.queue.submit(PLAN, job.model_dump_json(), None)
    lease(service, "segments", 0, None)
    [operation] = service.store.queue.operations(("running",))
    shown = page(service, "/")
    assert f"/v1/operations/{operation.id}" in shown.links
    assert re.search(r"query f32\[3\] → rotated at most \d+ s left for h200, phase segments", shown.text)
    assert "queue" in shown.ids, "what is shown anew while something is in it"
    started = operation.started or 0.0
    left = [queue([operation], (), 0, started + had_s).rows[0].left for had_s in (6.2, 29.9, 33.0)]
    assert left == ["at most 24 s left", "at most 1 s left", "3 s over its budget"]


def test_what_ended_without_a_plan_is_shown_with_its_problem(service: Running) -> None:
    short = submit(service, 0, 3.0)
    held = service.store.queue.lease("worker", 60.0)
    assert held is not None
    error = problem("kernels-disagree", "node %3: expected 1, got 2").model_dump_json()
    assert service.store.queue.finish(held.id, "worker", held.token, error=error)
    shown = page(service, "/")
    assert "Ended without a plan" in shown.text
    assert f"failed {short} {PROBLEM_TYPES['kernels-disagree'].title} just now node %3: expected 1, got 2" in shown.text
    assert "/errors/kernels-disagree" in shown.links
    [operation] = service.store.queue.operations(("failed",))
    assert failed([operation], (operation.finished or 0.0) + FAILED_SECONDS + 1, str) == []


def test_the_script_shows_the_queue_as_it_changes(service: Running) -> None:
    assert "data-live" not in service.client.get("/").text, "nothing can change"
    submit(service, 0, 3.0)
    assert '<div id="queue" data-live>' in service.client.get("/").text
    script = service.client.get("/static/page.js").text
    for name in ("queue", "list"):
        assert f'"{name}"' in script
        assert name in page(service, "/").ids


def test_what_waits_says_when_it_starts_at_the_latest(service: Running) -> None:
    for number in range(4):
        submit(service, number, 30.0)
    first, *_ = service.store.queue.waiting()
    assert queue((), service.store.queue.waiting(), 4, first.created).rows[0].left == "", "nothing runs: nobody knows"
    lease(service, "segments", 0, None)
    [running_], waiting = service.store.queue.operations(("running",)), service.store.queue.waiting()
    began = running_.started or 0.0
    assert [row.left for row in queue([running_], waiting, 3, began + 10).rows] == [
        "at most 20 s left", "starts in at most 20 s", "starts in at most 50 s", "starts in at most 80 s",
    ]  # fmt: skip
    late = queue([running_], waiting, 3, began + 31).rows
    assert [row.left for row in late] == ["1 s over its budget", "", "", ""]
    two = [running_, replace(running_, id="other")]
    assert queue(two, waiting[:1], 1, began + 10).rows[2].left == "starts in at most 20 s", "two workers share 40 s"
    assert "starts in at most" in page(service, "/").text


def test_work_for_another_device_is_nobodys_turn() -> None:
    def operation(device: str, seconds: float, started: float | None) -> Operation:
        job = PlanJob(graph_key="0" * 64, target="cpu", seconds=seconds, numerics="reassociate")
        state: OperationState = "queued" if started is None else "running"
        return Operation(
            "id", PLAN, job.model_dump_json(), None, device, state, 0, "", 0, 0.0, 0, 0.0, False, "", None, None, 0.0,
            started, None,
        )  # fmt: skip

    running_ = [operation("a", 30.0, 0.0), operation("a", 30.0, 10.0), operation("b", 100.0, 0.0)]
    waiting = [
        operation("a", 20.0, None),
        operation("b", 1.0, None),
        operation("c", 1.0, None),
        operation("a", 1.0, None),
    ]
    assert turns(running_, waiting, 10.0) == [25.0, 90.0, None, 35.0]


def test_who_waits_behind_others_is_told_when_to_come_back(service: Running) -> None:
    keys = [service.client.post("/v1/plans:resolve", json={"graph": wire(n), "seconds": 20}) for n in (8, 9, 10)]
    assert [answer.headers["retry-after"] for answer in keys] == ["1", "1", "1"], "nothing runs"
    lease(service, "segments", 0, None)
    told = [int(service.client.get(answer.headers["location"]).headers["retry-after"]) for answer in keys]
    assert (told[0], 15 <= told[1] <= 20, 35 <= told[2] <= 40) == (1, True, True), told
    last = service.client.post("/v1/plans:resolve", json={"graph": wire(11), "seconds": 20})
    assert 55 <= int(last.headers["retry-after"]) <= MOST_RETRY_SECONDS
    later = service.client.post("/v1/plans:resolve", json={"graph": wire(12), "seconds": 20})
    assert int(later.headers["retry-after"]) == MOST_RETRY_SECONDS


def test_a_search_that_begins_anew_has_its_whole_budget(service: Running) -> None:
    submit(service, 0, 300.0)
    lease(service, "segments", 37, 2870.0)
    [before] = service.store.queue.operations(("running",))
    assert service.store.queue.release(before.id, "worker", before.token)
    time.sleep(0.01)
    again = service.store.queue.lease("worker", 60.0)
    assert again is not None
    assert again.started is not None
    assert before.started is not None
    assert again.started > before.started
    [row] = queue([again], (), 0, again.started).rows
    assert row.left == "at most 300 s left"
    assert "37 kernels" not in row.text, "of the attempt before"
