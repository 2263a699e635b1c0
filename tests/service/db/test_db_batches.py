"""Batches, on both databases: stored whole or not at all, ended with their operations, cancelled without harm."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from fusion_ir.keys.graph_key import graph_key
from fusion_ir.text.printing import print_graph
from tests.service.db.test_db_queue import Clock
from tests.support.stored_plans import chain, sha
from tuning_db.batch_endings import Ending
from tuning_db.batches import Batch, NewItem, Work
from tuning_db.errors import KeyReused, QueueFull
from tuning_db.graphs import NewGraph
from tuning_db.operation import Operation
from tuning_db.operations import MAX_ATTEMPTS
from tuning_db.reading.graphs import Names
from tuning_db.store import Store

GRAPH = NewGraph(graph_key(chain()), print_graph(chain()), Names(("x",), ("y",)))
HIT = Ending("done", result="hit")
BAD = Ending("failed", error="bad graph")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(url: str, clock: Clock) -> Iterator[Store]:
    with Store(url, clock=clock) as store:
        yield store


def item(name: str, outcome: str | Ending) -> NewItem:
    """An item; as text, `outcome` is what it needs."""
    return NewItem(name, GRAPH.graph_key, Work("plan", outcome, outcome) if isinstance(outcome, str) else outcome)


def submit(store: Store, *outcomes: str | Ending, key: str | None = None, limit: int | None = None) -> Batch:
    items = [item(f"i{n}", outcome) for n, outcome in enumerate(outcomes)]
    return store.batches.submit(items, [GRAPH], sha(repr(outcomes)), idempotency_key=key, limit=limit)


def now(store: Store, batch: Batch) -> Batch:
    return found(store, batch.id)


def states(store: Store, batch: Batch) -> str:
    """The first letter of every item's state."""
    return "".join(i.state[0] for i in store.batches.items(batch.id))


def lease(store: Store, owner: str = "w") -> Operation:
    held = store.queue.lease(owner, 10.0)
    assert held is not None
    return held


def finish(store: Store, result: str | None = "r", error: str | None = None) -> str:
    held = lease(store)
    assert store.queue.finish(held.id, "w", held.token, result=result, error=error)
    return held.payload


def test_the_life_of_a_batch(queue: Store, clock: Clock) -> None:
    batch = submit(queue, "a", HIT, "b", "a", BAD)
    assert (batch.state, batch.items, batch.created, batch.finished) == ("running", 5, 1000.0, None)
    assert batch.counts == {"queued": 3, "running": 0, "done": 1, "failed": 1, "cancelled": 0}
    assert queue.queue.counts()["queued"] == 2, "equal requests share an operation"
    stored = queue.graphs.graph(GRAPH.graph_key)
    assert stored is not None and stored.names == GRAPH.names
    held = lease(queue)
    assert (held.payload, states(queue, batch)) == ("a", "rdqrf"), "in the order of the lines"
    queue.queue.progress(held.id, "w", held.token, "half")
    assert [i.progress for i in queue.batches.items(batch.id, ["running"])] == ["half", "half"]
    assert queue.queue.finish(held.id, "w", held.token, result="plan a")
    assert (now(queue, batch).state, states(queue, batch)) == ("running", "ddqdf")
    clock.now = 1005.0
    finish(queue, None, "no plan")
    ended = now(queue, batch)
    assert (ended.state, ended.finished, states(queue, batch)) == ("done", 1005.0, "ddfdf")
    listed = queue.batches.ended(batch.id)
    assert [(i.event, i.custom_id, i.result, i.error) for i in listed] == [
        (1, "i1", "hit", None),
        (2, "i4", None, "bad graph"),
        (3, "i0", "plan a", None),
        (4, "i3", "plan a", None),
        (5, "i2", None, "no plan"),
    ]
    assert queue.batches.ended(batch.id, after=3) == listed[3:]
    assert [i.custom_id for i in queue.batches.items(batch.id, ["failed"])] == ["i2", "i4"]
    assert [i.custom_id for i in queue.batches.items(batch.id, after=1, limit=2)] == ["i2", "i3"]


def test_results_outlive_the_operations(queue: Store, clock: Clock) -> None:
    batch = submit(queue, "a")
    finish(queue)
    clock.now += 100
    assert queue.queue.forget(1.0) == 1
    assert [i.result for i in queue.batches.items(batch.id, ["done"])] == ["r"]


def test_a_batch_of_answers_is_done_at_once(queue: Store) -> None:
    batch = submit(queue, HIT, BAD)
    assert (batch.state, batch.finished) == ("done", 1000.0)
    assert queue.queue.operations() == []


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "at least one"),
        ([item("i", "a"), item("i", "b")], "'i'"),
        ([item("a\0", "a")], "custom_id"),
        ([item("i", "a"), item("j", "\ud800")], "payload"),
    ],
)
def test_a_refused_batch_leaves_nothing(queue: Store, items: Sequence[NewItem], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        queue.batches.submit(items, [GRAPH], sha("p"))
    assert nothing(queue)


def test_a_graph_that_is_not_what_its_key_says_leaves_nothing(queue: Store) -> None:
    with pytest.raises(ValueError, match="hashes to"):
        queue.batches.submit([item("i", "a")], [GRAPH, NewGraph(sha("x"), GRAPH.text, GRAPH.names)], sha("p"))
    assert nothing(queue)


def nothing(store: Store) -> bool:
    is_empty = not store.batches.batches().items and not store.queue.operations()
    return is_empty and store.graphs.graph(GRAPH.graph_key) is None


def test_the_queue_of_batches_is_bounded_and_leaves_room_for_others(queue: Store) -> None:
    submit(queue, "a", "b", limit=2)
    with pytest.raises(QueueFull):
        submit(queue, "a", "c", limit=2)
    assert len(queue.queue.operations()) == 2
    submit(queue, "b", "a", limit=2)
    assert queue.queue.submit("plan", "d", "d", limit=1).state == "queued", "batches do not fill the queue for others"
    with pytest.raises(QueueFull):
        queue.queue.submit("plan", "e", "e", limit=1)


def test_interactive_requests_come_first_and_lift_what_they_join(queue: Store) -> None:
    batch = submit(queue, "a", "b", "c")
    queue.queue.submit("plan", "x", "x")
    queue.queue.submit("plan", "b", "b")
    assert [finish(queue) for _ in range(4)] == ["x", "b", "a", "c"]
    assert now(queue, batch).state == "done"


def test_one_operation_ends_items_of_several_batches(queue: Store, clock: Clock) -> None:
    first = submit(queue, "a", "b")
    clock.now += 1
    second = submit(queue, "c", "a")
    assert finish(queue) == "a"
    assert (states(queue, first), states(queue, second)) == ("dq", "qd")


def test_the_same_key_finds_the_same_batch(queue: Store) -> None:
    first = submit(queue, "a", key="k")
    finish(queue)
    again = submit(queue, "a", key="k")
    assert (again.id, again.state) == (first.id, "done")
    assert queue.batches.find("k", first.payload) == again
    assert queue.batches.find("other", first.payload) is None
    assert submit(queue, "a").id != first.id
    with pytest.raises(KeyReused, match=first.id):
        submit(queue, "b", key="k")
    with pytest.raises(KeyReused):
        queue.batches.find("k", sha("else"))
    assert len(queue.batches.batches().items) == 2


def test_cancelling_spares_what_others_wait_for(queue: Store, clock: Clock) -> None:
    batch = submit(queue, "running", "mine", "shared", "asked", HIT)
    clock.now += 1
    other = submit(queue, "shared", "theirs")
    queue.queue.submit("plan", "asked", "asked")
    asked = lease(queue)
    running = lease(queue)
    assert (asked.payload, running.payload) == ("asked", "running")
    cancelled = queue.batches.cancel(batch.id)
    assert cancelled is not None
    assert (cancelled.state, states(queue, batch)) == ("cancelled", "ccccd")
    left = {o.payload: (o.state, o.cancel_requested) for o in queue.queue.operations()}
    assert left == {
        "running": ("running", True),
        "mine": ("cancelled", True),
        "shared": ("queued", False),
        "asked": ("running", False),
        "theirs": ("queued", False),
    }
    assert queue.queue.finish(running.id, "w", running.token, cancelled=True)
    assert queue.queue.finish(asked.id, "w", asked.token, result="r")
    assert states(queue, batch) == "ccccd", "what has ended stays as it is"
    assert [finish(queue), finish(queue)] == ["shared", "theirs"]
    assert (now(queue, other).state, states(queue, other)) == ("done", "dd")
    assert queue.batches.cancel(other.id) == now(queue, other)
    assert queue.batches.cancel("unknown") is None


def test_the_last_batch_that_waits_takes_the_operation_with_it(queue: Store) -> None:
    first, second = submit(queue, "a"), submit(queue, "a")
    queue.batches.cancel(first.id)
    assert queue.queue.counts()["queued"] == 1
    queue.batches.cancel(second.id)
    assert queue.queue.counts()["queued"] == 0
    third = submit(queue, "a")
    assert states(queue, third) == "q", "and a later one starts anew"


def test_cancelling_an_operation_ends_its_items(queue: Store) -> None:
    batch = submit(queue, "a", "b")
    held = lease(queue)
    queue.queue.cancel(held.id)
    assert states(queue, batch) == "rq"
    waiting = queue.batches.items(batch.id)[1].operation_id
    assert waiting is not None
    queue.queue.cancel(waiting)
    queue.queue.cancel(waiting)
    assert states(queue, batch) == "rc"
    queue.queue.finish(held.id, "w", held.token, cancelled=True)
    assert (states(queue, batch), now(queue, batch).state) == ("cc", "done"), "nobody cancelled the batch itself"


def test_a_worker_that_is_lost_for_good_ends_its_item(queue: Store, clock: Clock) -> None:
    batch, other = submit(queue, "a", "b"), submit(queue, "a")
    for attempt in range(MAX_ATTEMPTS):
        assert lease(queue, f"w{attempt}").payload == "a"
        clock.now += 21
    assert finish(queue) == "b"
    assert (states(queue, batch), states(queue, other)) == ("fd", "f")
    assert "given up" in (queue.batches.items(batch.id)[0].error or "")
    assert now(queue, batch).finished == clock.now


def test_a_lost_worker_of_a_cancelled_operation(queue: Store, clock: Clock) -> None:
    batch = submit(queue, "a")
    queue.queue.cancel(lease(queue).id)
    clock.now += 11
    assert queue.queue.lease("w2", 10.0) is None
    assert states(queue, batch) == "c"


def test_a_stale_worker_ends_no_item(queue: Store, clock: Clock) -> None:
    batch = submit(queue, "a")
    stale = lease(queue, "w1")
    clock.now += 11
    fresh = lease(queue, "w2")
    assert not queue.queue.finish(stale.id, "w1", stale.token, result="late")
    assert states(queue, batch) == "r"
    assert queue.queue.finish(fresh.id, "w2", fresh.token, result="right")
    assert [i.result for i in queue.batches.items(batch.id)] == ["right"]


def test_pages_newest_first(queue: Store, clock: Clock) -> None:
    ids: list[str] = []
    for n in range(5):
        clock.now += n // 2  # some at the same moment
        ids.append(submit(queue, "a", HIT).id)
    listed: list[Batch] = []
    token: str | None = None
    while True:
        page = queue.batches.batches(token, 2)
        listed += page.items
        token = page.next_page_token
        if token is None:
            break
    assert sorted(b.id for b in listed) == sorted(ids)
    assert [b.created for b in listed] == sorted((b.created for b in listed), reverse=True)
    assert all(sum(b.counts.values()) == 2 for b in listed)
    with pytest.raises(ValueError, match="page token"):
        queue.batches.batches("x")


def test_what_graphs_have_in_common(queue: Store) -> None:
    graphs = [chain(8), chain(9), chain(10)]
    new = [NewGraph(graph_key(g), print_graph(g), Names(("x",), ("y",))) for g in graphs]
    for graph, segment in zip(new, ("one", "two", "three"), strict=True):
        queue.segments.put(graph.graph_key, segment)
    queue.segments.put(new[0].graph_key, "shared")
    for _ in range(2):
        queue.segments.note(new[1].graph_key, sha("shared"))
        queue.segments.note(new[2].graph_key, sha("never stored"))
    items = [NewItem(str(n), g.graph_key, HIT) for n, g in enumerate((new[0], new[1], new[0]))]
    batch = queue.batches.submit([*items, NewItem("bad", None, BAD)], new, sha("p"))
    sharing = queue.batches.sharing(batch.id)
    assert (sharing.used, sharing.distinct) == (4, 3)
    assert queue.batches.sharing("unknown").used == 0


@pytest.mark.sweep(0.5)
def test_submitting_finishing_and_cancelling_at_once_loses_no_item(store: Store) -> None:
    """Neither by a deadlock, nor between the look at an operation and its end."""
    over = threading.Event()

    def submits(seed: int) -> list[str]:
        draw = random.Random(seed)
        batches = [submit(store, *draw.sample("abcdefgh", 6)) for _ in range(15)]
        for batch in batches[::4]:
            store.batches.cancel(batch.id)
        return [batch.id for batch in batches]

    def works(owner: str) -> int:
        done = 0
        while not over.is_set():
            held = store.queue.lease(owner, 60.0)
            if held is None:
                time.sleep(0.001)
            else:
                outcome = {"cancelled": True} if held.cancel_requested else {"result": "r"}
                done += store.queue.finish(held.id, owner, held.token, **outcome)  # type: ignore[arg-type]
        return done

    with ThreadPoolExecutor(7) as pool:
        workers = [pool.submit(works, f"w{n}") for n in range(3)]
        ids = [id for submitter in [pool.submit(submits, n) for n in range(4)] for id in submitter.result(60)]
        waited(lambda: all(found(store, id).finished is not None for id in ids))
        over.set()
        assert sum(worker.result(60) for worker in workers) > 0
    for id in ids:
        assert sum(found(store, id).counts.values()) == 6
        assert [i.event for i in store.batches.ended(id)] == [1, 2, 3, 4, 5, 6]


def found(store: Store, id: str) -> Batch:
    batch = store.batches.batch(id)
    assert batch is not None
    return batch


def waited(holds: Callable[[], bool]) -> None:
    """Returns once it holds."""
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("has waited long enough")
