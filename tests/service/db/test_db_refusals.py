"""Refusals of plans: kept, bounded, damaged, gone with the plan; and what one that says "wrong" does to answers."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from tests.service.db.samples import Samples, sha
from tuning_db import refusals
from tuning_db.engine import Database
from tuning_db.refusals import MOST_KEPT, WHYS, Refusal
from tuning_db.store import Store

SLOWER = Refusal("a" * 32, "slower", "on a busy machine", 120.5, 80.25)


def run(url: str, statement: str) -> None:
    database = Database(url)
    with database.write() as connection:
        assert connection.execute(text(statement)).rowcount > 0
    database.close()


def test_refusals_are_kept_and_one_that_is_sent_twice_counts_once(store: Store, samples: Samples) -> None:
    key, other = samples.put(store), samples.put(store, 1)
    assert store.refusals.of(key) == []
    assert store.refusals.put(key, SLOWER) is True
    assert store.refusals.put(key, replace(SLOWER, detail="again")) is False
    assert store.refusals.put(other, Refusal("a" * 32, "unusable")) is True
    (found,) = store.refusals.of(key)
    assert replace(found, created=0.0) == SLOWER
    assert found.created > 1e9
    assert [r.why for r in store.refusals.of(other)] == ["unusable"]
    assert store.refusals.put(sha("no plan"), SLOWER) is None


def test_the_newest_come_first_and_old_ones_go(store: Store, samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    key = samples.put(store)
    for i in range(MOST_KEPT + 5):
        monkeypatch.setattr(refusals.time, "time", lambda i=i: 1e9 + i)
        assert store.refusals.put(key, Refusal(f"{i:032x}", "unusable", str(i)))
    assert [r.detail for r in store.refusals.of(key)] == [str(i) for i in range(MOST_KEPT + 4, 4, -1)]


@pytest.mark.parametrize("why", WHYS)
def test_a_wrong_plan_answers_nothing_any_more_and_others_do(store: Store, samples: Samples, why: str) -> None:
    key, other = samples.put(store), samples.put(store, 1)
    assert store.refusals.put(key, replace(SLOWER, why=why))  # type: ignore[arg-type]
    answered, summary = store.plans.resolve(samples.request()), store.plans.summary(key)
    assert summary is not None
    assert (answered is None, summary.state) == ((True, "failed") if why == "wrong" else (False, "measured"))
    assert store.plans.resolve(samples.request(1)) is not None
    assert store.plans.plan(key) is not None, "it is there to be looked at"
    assert other != key


def test_a_plan_that_was_made_again_is_not_failed_by_a_refusal_that_comes_twice(store: Store, samples: Samples) -> None:
    key = samples.put(store)
    wrong = Refusal("b" * 32, "wrong")
    store.refusals.put(key, wrong)
    assert samples.put(store) == key
    assert store.plans.resolve(samples.request()) is not None
    store.refusals.put(key, wrong)
    assert store.plans.resolve(samples.request()) is not None
    store.refusals.put(key, replace(wrong, id="c" * 32))
    assert store.plans.resolve(samples.request()) is None


def test_refusals_go_with_their_plan(store: Store, samples: Samples) -> None:
    key, other = samples.put(store), samples.put(store, 1)
    for plan in (key, other):
        store.refusals.put(plan, SLOWER)
    assert store.plans.evict(key)
    assert store.refusals.of(key) == []
    assert len(store.refusals.of(other)) == 1


@pytest.mark.parametrize(
    "change",
    ["why = 'unusable'", "why = 'great'", "detail = ''", "took_us = 1.0", "instead_us = NULL", "checksum = ''"],
)
def test_damaged_rows_are_left_out(store: Store, url: str, samples: Samples, change: str) -> None:
    key = samples.put(store)
    store.refusals.put(key, SLOWER)
    run(url, f"UPDATE refusals SET {change}")
    assert store.refusals.of(key) == []


def test_texts_that_a_database_cannot_hold_are_kept_as_far_as_it_can(store: Store, samples: Samples) -> None:
    key = samples.put(store)
    store.refusals.put(key, Refusal("d" * 32, "unusable", "a\0b\ud800c"))
    (found,) = store.refusals.of(key)
    assert found.detail == "a\ufffdb?c"
