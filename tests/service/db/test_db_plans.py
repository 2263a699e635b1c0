"""Plans: what is stored comes back, a change in any part of a key is a miss, and lists page without gaps."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import text

from fusion_ir.records import WIRE_VERSION, Buffer
from tests.service.db.samples import Samples, sha
from tests.support.stored_plans import store_alike
from tuning_db.engine import Database
from tuning_db.page_tokens import Position
from tuning_db.plan_lists import PlanFilter
from tuning_db.reading.graphs import Names
from tuning_db.requests import Conditions, RequestKey
from tuning_db.store import Store


def test_a_stored_plan_comes_back(store: Store, samples: Samples) -> None:
    plan = samples.plan()
    assert store.plans.resolve(samples.request()) is None
    key = samples.put(store)
    found = store.plans.resolve(samples.request())
    assert found is not None
    assert (found.plan_key, found.state, found.body) == (key, "measured", plan.model_dump_json().encode())
    assert key == plan.plan_key == sha(found.body)
    assert found.plan() == plan
    assert store.plans.plan(key) == found.body
    assert store.plans.binary(sha(samples.binary())) == samples.binary()
    assert store.plans.source(sha(samples.source())) == samples.source()
    graph = store.graphs.graph(samples.graph_key())
    assert graph is not None
    assert (graph.text, graph.names, graph.nodes, graph.ops) == (samples.graph(), samples.names, 2, ("exp",))


def test_which_requests_a_plan_answers(store: Store, samples: Samples) -> None:
    """Looking at an answer serves nobody: no hit."""
    key = samples.put(store)
    exact = samples.request(numerics="approximate", tenant="other")
    assert store.plans.answer(exact) is None
    store.plans.put(exact, samples.plan(), "predicted", {}, {})
    samples.put(store, 1)
    assert sorted(store.plans.asked(key), key=lambda r: r.tenant) == [samples.request(), exact]
    assert store.plans.asked(sha("nothing")) == []
    found = store.plans.answer(exact, Conditions("other", "other", "other"))
    assert found is not None
    assert (found.plan_key, found.state) == (key, "predicted")
    stale = store.plans.answer(samples.request(), Conditions("other", "other", "other"))
    assert stale is not None
    assert stale.state == "stale"
    store.plans.flush_hits()
    summary = store.plans.summary(key)
    assert summary is not None
    assert summary.hits == 0
    assert store.plans.resolve(exact) is not None
    store.plans.flush_hits()
    summary = store.plans.summary(key)
    assert summary is not None
    assert summary.hits == 1


def test_what_is_not_there_is_none(store: Store, samples: Samples) -> None:
    nothing = sha("nothing")
    assert store.plans.plan(nothing) is store.plans.binary(nothing) is store.plans.source(nothing) is None
    assert store.graphs.graph(nothing) is None
    assert store.plans.summary(nothing) is None
    assert not store.plans.evict(nothing)
    assert not store.plans.mark(samples.request(), "failed")
    assert store.plans.plans().items == []


@pytest.mark.parametrize(
    "changed",
    [
        {"graph_key": sha("other")},
        {"device_key": "cpu-0000000000000000"},
        {"numerics": "exact"},
        {"tenant": "other"},
        {"generator": "2"},
        {"wire_version": WIRE_VERSION + 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_part_of_a_request_key_counts(store: Store, samples: Samples, changed: dict[str, object]) -> None:
    samples.put(store)
    assert store.plans.resolve(samples.request()) is not None
    assert store.plans.resolve(samples.request(**changed)) is None


def test_every_correctness_part_of_a_device_is_in_its_class(samples: Samples) -> None:
    changes: list[dict[str, object]] = [{"arch": "aarch64"}, {"features": ("avx2",)}, {"target": "cuda"}, {"units": 3}]
    keys = {samples.device.model_copy(update=change).class_key for change in changes}
    assert len(keys | {samples.device.class_key}) == len(changes) + 1
    same = samples.device.model_copy(update={"driver": "2", "toolchain": "g++ 13"})
    assert same.class_key == samples.device.class_key


@pytest.mark.parametrize("changed", ["driver", "toolchain", "version"])
def test_a_changed_performance_part_makes_a_measured_plan_stale(store: Store, samples: Samples, changed: str) -> None:
    key = samples.put(store)
    then = Conditions.of_plan(samples.plan())
    now = replace(then, **{changed: "other"})

    def state(conditions: Conditions | None) -> str:
        found = store.plans.resolve(samples.request(), conditions)
        assert found is not None
        assert found.plan_key == key
        return found.state

    assert (state(None), state(then), state(now)) == ("measured", "measured", "stale")
    store.plans.flush_hits()
    assert state(then) == "stale", "the reader that noticed wrote it down"
    summary = store.plans.summary(key)
    assert summary is not None
    assert summary.state == "stale"
    assert store.plans.mark(samples.request(), "measured", now)
    assert (state(now), state(then)) == ("measured", "stale")


def test_a_plan_that_failed_its_verification_is_a_miss(store: Store, samples: Samples) -> None:
    samples.put(store)
    assert store.plans.mark(samples.request(), "failed")
    assert store.plans.resolve(samples.request()) is None
    samples.put(store)
    assert store.plans.resolve(samples.request()) is not None
    with pytest.raises(ValueError, match="must be one of measured"):
        store.plans.mark(samples.request(), "best")  # pyright: ignore[reportArgumentType]


def test_a_better_plan_replaces_the_answer_and_keeps_the_old_body(store: Store, samples: Samples) -> None:
    old = samples.put(store, family="naive")
    store.plans.resolve(samples.request())
    new = samples.put(store)
    found = store.plans.resolve(samples.request())
    assert found is not None
    assert found.plan_key == new != old
    assert store.plans.plan(old) is not None
    store.plans.flush_hits()
    assert [(p.plan_key, p.hits) for p in store.plans.plans().items] == [(new, 2)]
    everything = {p.plan_key: p.state for p in store.plans.plans(PlanFilter(superseded=True)).items}
    assert everything == {new: "measured", old: None}


def test_a_plan_for_another_request_is_refused(store: Store, samples: Samples) -> None:
    plan, binaries = samples.plan(), {sha(samples.binary()): samples.binary()}
    with pytest.raises(ValueError, match="put_graph comes first"):
        store.plans.put(samples.request(), plan, "measured", binaries, {})
    store.graphs.put(samples.graph_key(), samples.graph(), samples.names)
    for changed, message in (
        ({"graph_key": sha("other")}, "graph .* was asked for"),
        ({"device_key": "cpu-0"}, "device cpu-0 was asked for"),
        ({"wire_version": WIRE_VERSION + 1}, "wire version"),
        ({"numerics": "exact"}, "reassociate are looser than exact"),
        ({"numerics": "sloppy"}, "looser than sloppy"),
    ):
        with pytest.raises(ValueError, match=message):
            store.plans.put(samples.request(**changed), plan, "measured", binaries, {})
    with pytest.raises(ValueError, match="neither given nor stored"):
        store.plans.put(samples.request(), plan, "measured", {}, {})
    with pytest.raises(ValueError, match="content hashes to"):
        store.plans.put(samples.request(), plan, "measured", {sha(samples.binary()): b"other"}, {})
    with pytest.raises(ValueError, match="state must be one of"):
        store.plans.put(samples.request(), plan, "fast", binaries, {})  # pyright: ignore[reportArgumentType]
    assert store.plans.plans(PlanFilter(superseded=True)).items == []
    assert store.plans.binary(sha(samples.binary())) is None, "a refused plan leaves nothing behind"
    assert store.plans.put(samples.request(numerics="approximate"), plan, "predicted", binaries, {}) == plan.plan_key


def test_a_limit_of_memory_is_part_of_what_is_asked(store: Store, samples: Samples) -> None:
    """A plan answers every request whose limit it keeps to, whatever it was searched for."""
    plan = samples.plan().model_copy(update={"buffers": (Buffer(bytes=600), Buffer(bytes=400))})
    binaries = {sha(samples.binary()): samples.binary()}
    store.graphs.put(samples.graph_key(), samples.graph(), samples.names)
    with pytest.raises(ValueError, match="needs 1000 bytes of temporaries, and at most 999 were asked for"):
        store.plans.put(samples.request(memory_bytes=999), plan, "measured", binaries, {})
    limited = samples.request(memory_bytes=1000)
    assert store.plans.put(limited, plan, "measured", binaries, {}) == plan.plan_key
    assert store.plans.asked(plan.plan_key) == [limited]
    assert store.plans.resolve(limited) is not None
    for memory_bytes, due in ((None, True), (1000, False), (1001, True)):
        found = store.plans.resolve(samples.request(memory_bytes=memory_bytes))
        assert found is not None
        assert (found.plan_key, found.due) == (plan.plan_key, due), "a search with more room may find a faster one"
    assert store.plans.resolve(samples.request(memory_bytes=999)) is None
    store.plans.put(samples.request(), plan, "measured", binaries, {})
    for memory_bytes, fits in ((1, False), (999, False), (1000, True), (1001, True), (None, True)):
        found = store.plans.resolve(samples.request(memory_bytes=memory_bytes))
        assert (found is not None) == fits, memory_bytes
    smaller = plan.model_copy(update={"buffers": ()})
    store.plans.put(samples.request(memory_bytes=999), smaller, "measured", binaries, {})
    own = store.plans.resolve(samples.request(memory_bytes=999))
    assert own is not None
    assert own.plan_key == smaller.plan_key


def test_requests_without_a_limit_keep_their_keys() -> None:
    """A request without a memory limit has the digest that older databases, from before there were limits, hold."""
    request = RequestKey("a" * 64, "b" * 64)
    assert request.digest == "9b31c2263d28f1e0011116a09cba943cde628951bfc5b206afc21a6922337bd6"
    assert request.digest != RequestKey("a" * 64, "b" * 64, memory_bytes=1).digest


def test_graph_text_must_hash_to_its_key_and_names_may_change(store: Store, samples: Samples) -> None:
    with pytest.raises(ValueError, match="hashes to"):
        store.graphs.put(samples.graph_key(1), samples.graph(0), samples.names)
    strange = Names(("a'; DROP TABLE graphs; --", "\0\ud800\n"), ("ß\U0001f600",))
    for names in (samples.names, strange, strange):
        store.graphs.put(samples.graph_key(), samples.graph(), names)
        graph = store.graphs.graph(samples.graph_key())
        assert graph is not None
        assert graph.names == names


def test_eviction_takes_what_only_this_plan_needs(store: Store, samples: Samples) -> None:
    first, second = samples.put(store, 0, binary=7), samples.put(store, 1, binary=7)
    alone = samples.put(store, 2)
    assert store.plans.evict(first)
    assert store.plans.plan(first) is None
    assert store.plans.resolve(samples.request(0)) is None
    assert store.plans.resolve(samples.request(1)) is not None
    assert store.plans.binary(sha(samples.binary(7))) == samples.binary(7), "the second plan needs it"
    assert store.plans.source(sha(samples.source(7))) == samples.source(7)
    assert store.plans.evict(second)
    assert store.plans.binary(sha(samples.binary(7))) is None
    assert store.plans.source(sha(samples.source(7))) is None
    assert store.plans.binary(sha(samples.binary(2))) is not None
    assert not store.plans.evict(first)
    assert [p.plan_key for p in store.plans.plans().items] == [alone]


def test_hits_are_counted_in_memory_and_added_up(store: Store, url: str, samples: Samples) -> None:
    key = samples.put(store)

    def hits() -> tuple[int, bool]:
        summary = store.plans.summary(key)
        assert summary is not None
        return summary.hits, summary.last_hit is not None

    for _ in range(3):
        store.plans.resolve(samples.request())
    store.plans.resolve(samples.request(1))
    store.plans.flush_hits()
    assert hits() == (3, True)
    with Store(url) as other:
        for _ in range(4):
            other.plans.resolve(samples.request())
    assert hits() == (7, True), "closing a store writes its counts"


def test_hits_that_could_not_be_written_are_kept(store: Store, url: str, samples: Samples) -> None:
    key = samples.put(store)
    store.plans.resolve(samples.request())
    database = Database(url)
    for old, new in (("requests", "elsewhere"), ("elsewhere", "requests")):
        with database.write() as connection:
            connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))
        store.plans.flush_hits()
    database.close()
    summary = store.plans.summary(key)
    assert summary is not None
    assert summary.hits == 1


def test_the_thread_writes_hits_by_itself(sqlite_url: str, samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuning_db.hits.FLUSH_SECONDS", 0.01)
    with Store(sqlite_url) as store:
        key = samples.put(store)
        store.plans.resolve(samples.request())
        waited = threading.Event()
        for _ in range(1000):
            summary = store.plans.summary(key)
            if summary is not None and summary.hits:
                return
            waited.wait(0.01)
    raise AssertionError("the count was not written within ten seconds")


def test_a_list_shows_what_the_plan_says(store: Store, samples: Samples) -> None:
    key, plan = samples.put(store), samples.plan()
    (line,) = store.plans.plans().items
    assert line == store.plans.summary(key)
    for name in ("time_us", "spread", "unfused_us", "lower_bound_us", "copy_us", "search_gap", "graph_key", "numerics"):
        assert getattr(line, name) == getattr(plan, name)
    assert (line.plan_key, line.steps, line.families, line.dtypes) == (key, 1, ("pointwise",), ("f32",))
    assert (line.device, line.target, line.state, line.hits) == ("Test CPU", "cpu", "measured", 0)
    assert line.speed_up == 2.0


def test_filters(store: Store, samples: Samples) -> None:
    exp, tanh = samples.put(store, 0), samples.put(store, 1, op="tanh", family="naive")

    def shown(**chosen: str) -> set[str]:
        return {p.plan_key for p in store.plans.plans(PlanFilter(**chosen)).items}

    assert shown() == {exp, tanh}
    assert shown(op="exp") == {exp}
    assert shown(op="tan") == shown(op="%") == shown(op="_") == shown(op="x p") == set()
    assert shown(family="naive") == {tanh}
    assert shown(family="naive", op="exp") == set()
    assert shown(device="cpu") == shown(device="Test CPU") == shown(device=samples.device.class_key) == {exp, tanh}
    assert shown(device="cuda") == set()
    assert shown(graph=samples.plan().graph_key) == {exp}
    assert shown(graph="0" * 64) == set()
    assert shown(tenant="") == {exp, tanh}
    assert shown(tenant="someone") == set()


def test_paging_shows_every_plan_once_while_plans_arrive(store: Store, samples: Samples) -> None:
    keys = [samples.put(store, n) for n in range(7)]
    seen: list[str] = []
    token: str | None = None
    for n in range(4):
        page = store.plans.plans(page_token=token, limit=2)
        seen += [p.plan_key for p in page.items]
        token = page.next_page_token
        samples.put(store, 100 + n)
    assert token is None
    assert seen == keys[::-1]


def test_pages_part_plans_of_the_same_moment(
    sqlite_url: str, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuning_db.plan_bodies.time.time", lambda: 1000.0)
    with Store(sqlite_url) as store:
        keys = {samples.put(store, n) for n in range(5)}
        seen: list[str] = []
        token: str | None = None
        while True:
            page = store.plans.plans(page_token=token, limit=2)
            seen += [p.plan_key for p in page.items]
            token = page.next_page_token
            if token is None:
                break
    assert len(seen) == 5
    assert set(seen) == keys


def test_bad_page_tokens_are_refused(store: Store, samples: Samples) -> None:
    for n in range(3):
        samples.put(store, n)
    token = store.plans.plans(limit=1).next_page_token
    assert token is not None
    with pytest.raises(ValueError, match="other filters"):
        store.plans.plans(PlanFilter(op="exp"), page_token=token)
    forged = [Position(float("nan"), "ab").token(PlanFilter()), Position(1.0, "'; --").token(PlanFilter())]
    for bad in (
        "",
        "!",
        "é",
        "\ud800",
        token[:-3],
        token + "AAAA",
        "WzEsMl0",
        "bnVsbA",
        "W1tbW1tb",
        "A" * 1000,
        *forged,
    ):
        with pytest.raises(ValueError, match="page token"):
            store.plans.plans(page_token=bad)
    for limit in (0, -1, 1001):
        with pytest.raises(ValueError, match="limit must be"):
            store.plans.plans(limit=limit)


def test_many_threads_share_a_store(store: Store, samples: Samples) -> None:
    plans = [samples.put(store, n) for n in range(4)]
    wrong: list[object] = []

    def reader(n: int) -> None:
        try:
            for turn in range(25):
                found = store.plans.resolve(samples.request((n + turn) % 4))
                if found is None or found.plan_key != plans[(n + turn) % 4]:
                    wrong.append(found)
                store.trials.record([samples.measurement(f"thread {n} turn {turn}", 1.0)])
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=reader, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    store.plans.flush_hits()
    assert sum(p.hits for p in store.plans.plans().items) == 8 * 25
    assert len(store.trials.trials(sha("segment"), samples.device.class_key)) == 8 * 25


def test_keys_by_their_beginnings(store: Store) -> None:
    """Plan keys are found by their first 4 to 64 digits, by the index of either database; wildcards are refused."""
    beginning, keys = store_alike(store)
    assert store.plans.keys(beginning) == keys
    assert store.plans.keys(beginning, 1) == keys[:1]
    for key in keys:
        assert store.plans.keys(key) == store.plans.keys(key[:40]) == [key]
    assert store.plans.keys("f" * 64) == store.plans.keys("0123456789") == []
    wild = ("%%%%", "____", f"{beginning}%", f"{beginning}\n")
    for prefix in (*wild, beginning[:3], beginning + "F", "", "a" * 65):
        with pytest.raises(ValueError, match="expected 4 to 64 hexadecimal digits"):
            store.plans.keys(prefix)
