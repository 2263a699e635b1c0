"""The best stored plan answers, whatever it was searched for; searches that were cut short; failures that are known."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import text

from fusion_ir.records import NUMERICS, Buffer, Plan, Search
from tests.service.db.samples import Samples, sha
from tests.support.whole import in_turn
from tuning_db.engine import Database
from tuning_db.requests import WHOLE, Conditions, RequestKey, Searched
from tuning_db.states import PlanState
from tuning_db.store import Store

NOW = Conditions("", "g++ 12", "0.1.0")
LATER = replace(NOW, version="0.2.0")
CUT = Searched(30.0, "its 30 s were over")


def plan_of(
    samples: Samples,
    time_us: float | None,
    numerics: str = "reassociate",
    temporary_bytes: int = 0,
    version: str = "0.1.0",
    spread: float = 0.001,
    predicted_us: float | None = None,
) -> Plan:
    buffers = (Buffer(bytes=temporary_bytes),) if temporary_bytes else ()
    values = {"time_us": time_us, "numerics": numerics, "buffers": buffers, "version": version, "spread": spread}
    return samples.plan().model_copy(update=values | {"predicted_us": predicted_us})


def put(
    store: Store,
    samples: Samples,
    request: RequestKey,
    plan: Plan,
    searched: Searched = WHOLE,
    only_better: bool = True,
    state: PlanState | None = None,
) -> str:
    store.graphs.put(samples.graph_key(), samples.graph(), samples.names)
    binaries = {sha(samples.binary()): samples.binary()}
    state = state or ("predicted" if plan.time_us is None else "measured")
    return store.plans.put(request, plan, state, binaries, {}, searched, only_better=only_better)


def test_a_stricter_plan_that_is_faster_is_the_answer(store: Store, samples: Samples) -> None:
    default, exact = samples.request(), samples.request(numerics="exact")
    put(store, samples, default, plan_of(samples, 15_960.0))
    fast = plan_of(samples, 8_520.0, "exact")
    put(store, samples, exact, fast)
    found = store.plans.resolve(default, NOW, 30.0)
    assert found is not None
    assert (found.plan_key, found.state, found.due, found.request) == (fast.plan_key, "measured", False, exact)
    store.plans.flush_hits()
    assert {p.plan_key: p.hits for p in store.plans.plans().items}[fast.plan_key] == 1


def test_a_stricter_plan_alone_answers_until_a_looser_search_was_made(store: Store, samples: Samples) -> None:
    exact = plan_of(samples, 10.0, "exact")
    put(store, samples, samples.request(numerics="exact"), exact)
    found = store.plans.resolve(samples.request(), NOW, 30.0)
    assert found is not None
    assert (found.plan_key, found.state, found.due) == (exact.plan_key, "measured", True)
    slower = plan_of(samples, 12.0)
    assert put(store, samples, samples.request(), slower) == exact.plan_key
    assert store.plans.plan(slower.plan_key) is None, "a plan that is no answer is not kept"
    found = store.plans.resolve(samples.request(), NOW, 30.0)
    assert found is not None
    assert (found.plan_key, found.due) == (exact.plan_key, False)


def test_a_looser_plan_that_uses_no_freedom_answers_the_stricter_request(store: Store, samples: Samples) -> None:
    put(store, samples, samples.request(numerics="approximate"), plan_of(samples, 10.0, "exact"))
    for numerics in NUMERICS:
        found = store.plans.resolve(samples.request(numerics=numerics), NOW, 30.0)
        assert found is not None
        assert not found.due


def test_a_search_that_was_cut_short_is_due_for_whoever_has_more_time(store: Store, samples: Samples) -> None:
    plan, request = plan_of(samples, 10.0), samples.request()
    put(store, samples, request, plan, Searched(4.0, "the search was interrupted"))
    for seconds, due in ((0.0, False), (4.0, False), (4.1, True), (30.0, True)):
        found = store.plans.resolve(request, NOW, seconds)
        assert found is not None
        assert (found.state, found.due) == ("measured", due)
        assert found.cut_short == "the search was interrupted"
    summary = store.plans.summary(plan.plan_key)
    assert summary is not None
    assert summary.cut_short == "the search was interrupted"


def test_a_longer_search_that_finds_nothing_better_ends_the_asking(store: Store, samples: Samples) -> None:
    """After such a search the stored plan is not due any more; otherwise every request would search again, for ever."""
    first, request = plan_of(samples, 10.0), samples.request()
    put(store, samples, request, first, Searched(4.0, "interrupted"))
    assert put(store, samples, request, plan_of(samples, 20.0), CUT) == first.plan_key
    found = store.plans.resolve(request, NOW, 30.0)
    assert found is not None
    assert (found.plan_key, found.due, found.cut_short) == (first.plan_key, False, CUT.cut_short)
    assert put(store, samples, request, plan_of(samples, 30.0)) == first.plan_key
    found = store.plans.resolve(request, NOW, 1e6)
    assert found is not None
    assert (found.due, found.cut_short) == (False, None)


@pytest.mark.parametrize("searched", [WHOLE, CUT])
@pytest.mark.parametrize(
    ("old", "old_spread", "new", "new_spread", "replaced"),
    [
        (10.0, 0.001, 9.0, 0.001, True),
        (10.0, 0.001, 9.9, 0.001, True),
        (10.0, 0.001, 10.5, 0.001, True),
        (10.0, 0.2, 9.0, 0.001, True),
        (10.0, 0.61, 12.0, 0.02, True),
        (10.0, 0.61, 17.0, 0.02, False),
        (10.0, 0.001, 9.0, 0.2, False),
        (10.0, 0.001, 7.0, 0.2, True),
        (10.0, 9.0, 29.0, 9.0, True),
        (10.0, 9.0, 31.0, 9.0, False),
        (10.0, 0.001, 11.0, 0.001, False),
        (None, 0.0, 11.0, 0.001, True),
        (10.0, 0.001, None, 0.0, False),
    ],
)
@pytest.mark.sweep(0.4)
def test_what_a_search_found_replaces_unless_it_is_slower_beyond_noise(
    store: Store,
    samples: Samples,
    searched: Searched,
    old: float | None,
    old_spread: float,
    new: float | None,
    new_spread: float,
    replaced: bool,
) -> None:
    first, second = plan_of(samples, old, spread=old_spread), plan_of(samples, new, spread=new_spread)
    put(store, samples, samples.request(), first)
    assert put(store, samples, samples.request(), second, searched) == (second if replaced else first).plan_key


def test_under_new_conditions_a_whole_search_replaces_and_a_short_one_only_by_time(
    store: Store, samples: Samples
) -> None:
    request, old = samples.request(), plan_of(samples, 10.0)
    put(store, samples, request, old)
    assert put(store, samples, request, plan_of(samples, 12.0, version="0.2.0"), CUT) == old.plan_key
    found = store.plans.resolve(request, LATER, 30.0)
    assert found is not None
    assert (found.plan_key, found.state, found.due) == (old.plan_key, "stale", False), "30 s were not enough"
    found = store.plans.resolve(request, LATER, 31.0)
    assert found is not None
    assert found.due
    store.plans.flush_hits()
    new = plan_of(samples, 12.0, version="0.2.0")
    assert put(store, samples, request, new) == new.plan_key
    found = store.plans.resolve(request, LATER, 1e6)
    assert found is not None
    assert (found.plan_key, found.state, found.due) == (new.plan_key, "measured", False)


def test_a_prediction_is_refined_by_a_whole_search_alone(store: Store, samples: Samples) -> None:
    request = samples.request()
    slow, fast = (plan_of(samples, None, predicted_us=us) for us in (9.0, 5.0))
    assert put(store, samples, request, fast) == fast.plan_key
    assert put(store, samples, request, slow, CUT) == fast.plan_key
    assert put(store, samples, request, slow) == slow.plan_key
    assert put(store, samples, request, fast, CUT) == fast.plan_key


def test_what_is_damaged_is_no_answer_and_the_next_best_is(store: Store, url: str, samples: Samples) -> None:
    best, second = plan_of(samples, 5.0, "exact"), plan_of(samples, 7.0)
    put(store, samples, samples.request(), second)
    put(store, samples, samples.request(numerics="exact"), best)
    database = Database(url)
    for change in ("tenant = tenant, takes_us = 1.0", "looseness = 0, temporary_bytes = 1", "had_s = 1.0"):
        with database.write() as connection:
            where = {"key": samples.request(numerics="exact").digest}
            connection.execute(text(f"UPDATE requests SET {change} WHERE key = :key"), where)
        found = store.plans.resolve(samples.request(), NOW)
        assert found is not None
        assert found.plan_key == second.plan_key
        put(store, samples, samples.request(numerics="exact"), best, only_better=False)
    with database.write() as connection:
        connection.execute(text("UPDATE plans SET body = 'x' WHERE plan_key = :key"), {"key": best.plan_key})
    found = store.plans.resolve(samples.request(), NOW)
    assert found is not None
    assert found.plan_key == second.plan_key
    worse = plan_of(samples, 6.0)
    assert put(store, samples, samples.request(), worse) == worse.plan_key, "what cannot be read keeps nobody away"
    with database.write() as connection:  # a row of another tenant's, by its columns alone
        where = {"key": samples.request().digest}
        connection.execute(text("UPDATE requests SET tenant = 'other' WHERE key = :key"), where)
    database.close()
    assert store.plans.resolve(samples.request(tenant="other"), NOW) is None


def test_a_failure_is_known_until_something_changes(store: Store, url: str, samples: Samples) -> None:
    request = samples.request()
    assert store.failures.failure(request, NOW, 1.0) is None
    store.failures.put(request, NOW, 30.0, "\0 why")
    known = store.failures.failure(request, NOW, 30.0)
    assert known is not None
    assert known.error == "� why"
    changed = [("driver", "2"), ("toolchain", "g++ 13"), ("version", "0.2.0")]
    assert all(store.failures.failure(request, replace(NOW, **{name: value}), 30.0) is None for name, value in changed)
    assert store.failures.failure(request, NOW, 31.0) is None
    assert store.failures.failure(samples.request(numerics="exact"), NOW, 1.0) is None
    store.failures.put(request, LATER, 5.0, "again")
    assert store.failures.failure(request, NOW, 1.0) is None
    assert store.failures.failure(request, LATER, 5.0) is not None
    database = Database(url)
    with database.write() as connection:
        connection.execute(text("UPDATE failures SET had_s = 1000"))
    assert store.failures.failure(request, LATER, 5.0) is None
    database.close()
    store.failures.put(request, NOW, 30.0, "why")
    put(store, samples, request, plan_of(samples, 1.0))
    assert store.failures.failure(request, NOW, 1.0) is None, "a plan was found after all"
    store.failures.put(request, NOW, 30.0, "why")
    assert store.failures.forget(request)
    assert not store.failures.forget(request)


def test_no_search_is_due_that_is_known_to_fail(store: Store, samples: Samples) -> None:
    put(store, samples, samples.request(numerics="exact"), plan_of(samples, 10.0, "exact"))
    store.failures.put(samples.request(), NOW, 30.0, "why")
    for seconds, due in ((30.0, False), (31.0, True)):
        found = store.plans.resolve(samples.request(), NOW, seconds)
        assert found is not None
        assert found.due == due


# Any sequence of stores against a model that looks at every stored answer.


@dataclass
class Stored:
    request: RequestKey
    plan: Plan
    state: str
    searched_under: Conditions
    searched: Searched


class Model:
    """A model of the database that answers as `resolve` has to, by definition."""

    def __init__(self) -> None:
        self.rows: dict[RequestKey, Stored] = {}

    def admitted(self, request: RequestKey, now: Conditions) -> list[Stored]:
        def place(s: Stored) -> tuple[object, ...]:
            current = s.plan.time_us is not None and Conditions.of_plan(s.plan) == now
            took = s.plan.time_us if s.plan.time_us is not None else s.plan.predicted_us
            return (
                0 if current else 1 if s.plan.time_us is not None else 2,
                took,
                s.request != request,
                s.request.digest,
            )

        return sorted((s for s in self.rows.values() if admits(request, s.plan)), key=place)

    def due(self, request: RequestKey, now: Conditions, seconds: float) -> bool:
        for s in self.rows.values():
            looser = NUMERICS.index(s.request.numerics) >= NUMERICS.index(request.numerics)
            most = s.request.memory_bytes
            wider = looser and (most is None or (request.memory_bytes is not None and request.memory_bytes <= most))
            same = s.request == request or (wider and admits(request, s.plan))
            if same and s.searched_under == now and (s.searched.had_s is None or seconds <= s.searched.had_s):
                return False
        return True


def admits(request: RequestKey, plan: Plan) -> bool:
    fits = request.memory_bytes is None or plan.temporary_bytes <= request.memory_bytes
    return fits and NUMERICS.index(plan.numerics) <= NUMERICS.index(request.numerics)


@pytest.mark.soak
@pytest.mark.parametrize("seed", in_turn(range(4), 1, "stores"))
def test_any_sequence_of_stores_gives_the_best_admissible_plan(store: Store, samples: Samples, seed: int) -> None:
    rng = random.Random(seed)
    limits: Sequence[int | None] = (None, 100, 200)
    requests = [samples.request(numerics=n, memory_bytes=m) for n, m in itertools.product(NUMERICS, limits)]
    model = Model()
    for step in range(40):
        request, now = rng.choice(requests), LATER if step > 20 else NOW
        looseness = rng.randint(0, NUMERICS.index(request.numerics))
        room = 300 if request.memory_bytes is None else request.memory_bytes
        bytes_ = rng.choice([b for b in (0, 50, 100, 150, 200, 300) if b <= room])
        time_us = None if rng.random() < 0.2 else float(rng.randint(1, 40))
        plan = plan_of(samples, time_us, NUMERICS[looseness], bytes_, now.version, predicted_us=float(step))
        plan = plan.model_copy(update={"search": Search(seconds=float(step), candidates=1, measured=1, complete=True)})
        searched = rng.choice([WHOLE, Searched(5.0, "cut"), Searched(10.0, "cut")])
        before = next(iter(model.admitted(request, now)), None)
        key = put(store, samples, request, plan, searched)
        if key == plan.plan_key:
            answer = Stored(request, plan, "measured", now, searched)
            assert before is None or plan.time_us is not None or before.plan.time_us is None
            if before is not None and before.plan.time_us is not None and plan.time_us is not None:
                same = Conditions.of_plan(before.plan) == now
                noise = 1.062 if same and before.request == request else 1.0
                assert plan.time_us <= noise * before.plan.time_us or not (same or searched.cut_short)
        else:
            assert before is not None
            assert key == before.plan.plan_key
            assert plan.time_us is None or before.plan.time_us is not None
            if plan.time_us is not None and before.plan.time_us is not None:
                assert plan.time_us >= 0.97 * before.plan.time_us
            answer = Stored(request, before.plan, "measured", now, searched)
        model.rows[request] = answer
        for asked in rng.sample(requests, 4):
            seconds = rng.choice([0.0, 5.0, 7.0, 20.0])
            found, expected = store.plans.answer(asked, now, seconds), model.admitted(asked, now)
            if not expected:
                assert found is None
                continue
            assert found is not None
            assert found.plan_key == expected[0].plan.plan_key
            assert found.due == model.due(asked, now, seconds)
