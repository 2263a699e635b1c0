"""Hits that sqlite3 alone reads: what `Store.plans.resolve` gives, or nothing; nothing is done that a store
would not."""

import random
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import structlog
from sqlalchemy import text

from fusion_ir.records import NUMERICS
from tests.service.db.samples import Samples
from tests.service.db.test_db_answers import CUT, LATER, NOW, plan_of, put
from tests.support.whole import WHOLE as WHOLE_RUN
from tests.support.whole import seed
from tuning_db import schema
from tuning_db.engine import Database
from tuning_db.errors import DatabaseError
from tuning_db.reading.sqlite_hits import SqliteHits
from tuning_db.requests import WHOLE, Conditions, RequestKey, Resolved
from tuning_db.revisions import revisions
from tuning_db.store import Store

DATABASES = 60 if WHOLE_RUN else 10
SECONDS = (0.0, 10.0, 30.0, 60.0)
DAMAGE = (
    "UPDATE plans SET body = substr(body, 2)",
    "UPDATE graphs SET text = text || ' '",
    "UPDATE graphs SET names = 7",
    "DELETE FROM graphs",
    "UPDATE binaries SET content = 'text'",
    "DELETE FROM binaries",
    "UPDATE sources SET text = 'void k() {}'",
    "UPDATE requests SET takes_us = 'soon'",
    "UPDATE requests SET looseness = looseness + 1",
    "UPDATE requests SET state = 'best'",
    "UPDATE requests SET plan_key = 5",
)


def read(url: str, request: RequestKey, now: Conditions = NOW, seconds: float = 0.0) -> Resolved | None:
    """The answer of SqliteHits, which logs of damage nothing, but that a hit could not be counted."""
    with structlog.testing.capture_logs() as logs:
        hits = SqliteHits.opened(url)
        if hits is None:
            return None
        with hits:
            found = hits.resolve(request, now, seconds)
    assert {line["event"] for line in logs} <= {"hits were not written"}
    return found


def counted(url: str) -> list[tuple[str, int, float | None]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return connection.execute("SELECT key, hits, last_hit FROM requests ORDER BY key").fetchall()


@pytest.mark.soak
def test_it_gives_what_a_store_gives_or_nothing(tmp_path: Path, samples: Samples) -> None:
    """Random databases: plans of all numerics, with and without temporaries, times and limits, some searches cut
    short, some answers marked, some rows damaged."""
    drawn = random.Random(seed())
    plain = other = 0
    for n in range(DATABASES):
        url = f"sqlite:///{tmp_path / f'{n}.db'}"
        limits = [None, *(drawn.choice((0, 100, 1000)) for _ in range(2))]
        requests = [samples.request(numerics=c, memory_bytes=m) for c in NUMERICS for m in limits]
        with Store(url) as store:
            store.seal()
            for request in drawn.sample(requests, drawn.randint(1, 4)):
                numerics = drawn.choice([c for c in NUMERICS if request.admits(NUMERICS.index(c), 0)])
                bytes_ = drawn.choice((0, 64)) if request.memory_bytes is None else 0
                time_us = drawn.choice((None, 1.0, 2.0, 3.0))
                plan = plan_of(samples, time_us, numerics, bytes_, drawn.choice((NOW, NOW, LATER)).version)
                put(store, samples, request, plan, drawn.choice((WHOLE, WHOLE, CUT)), only_better=drawn.random() < 0.5)
                if drawn.random() < 0.2:
                    store.plans.mark(request, drawn.choice(("stale", "failed", "measured")), NOW)
        damage = drawn.choice([*DAMAGE, *[None] * len(DAMAGE)])
        if damage:
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
                connection.execute(damage)
                connection.commit()
        for request in requests:
            now, seconds = drawn.choice((NOW, LATER)), drawn.choice(SECONDS)
            before = counted(url)
            found = read(url, request, now, seconds)
            after = counted(url)
            with Store(url) as store, structlog.testing.capture_logs() as logs:
                expected = store.plans.resolve(request, now, seconds)
            if found is None:
                assert after == before
                assert expected is None or expected.due or expected.state == "stale" or logs
                other += 1
            else:
                assert found == expected
                assert [row[:2] for row in counted(url)] == [
                    (key, hits + 2 * (key == found.request.digest)) for key, hits, _ in before
                ]
                plain += 1
    if WHOLE_RUN:  # of 20 databases, four in a thousand times no more than three answers are plain
        assert plain > DATABASES // 6
    assert other > DATABASES


def test_the_last_hit_is_the_latest(sqlite_url: str, samples: Samples) -> None:
    with Store(sqlite_url) as store:
        store.seal()
        put(store, samples, samples.request(), plan_of(samples, 1.0))
    for at, expected in ((50.0, 50.0), (40.0, 50.0), (60.0, 60.0)):
        hits = SqliteHits.opened(sqlite_url)
        assert hits is not None
        with hits:
            assert hits.resolve(samples.request(), NOW, 0.0, partial(float, at)) is not None
        assert counted(sqlite_url)[0][2] == expected


def test_a_failure_that_settles_a_request_is_left_to_a_store(sqlite_url: str, samples: Samples) -> None:
    with Store(sqlite_url) as store:
        store.seal()
        put(store, samples, samples.request(), plan_of(samples, 1.0), CUT)
        store.failures.put(samples.request(), NOW, 60.0, "{}")
        assert read(sqlite_url, samples.request(), NOW, 60.0) is None
        found = store.plans.resolve(samples.request(), NOW, 60.0)
        assert found is not None and not found.due


def test_only_a_whole_file_of_this_version_is_opened(tmp_path: Path, samples: Samples) -> None:
    path = tmp_path / "plans.db"
    url = f"sqlite:///{path}"
    assert SqliteHits.opened(url) is None
    assert not path.exists(), "looking for hits makes no file"
    with Store(url) as store:
        samples.put(store)
        assert SqliteHits.opened(url) is None, "it has no seal yet"
        seal = store.seal()
    opened = SqliteHits.opened(url)
    assert opened is not None
    with opened:
        assert (opened.place, opened.seal) == (str(path), seal)
    for other in (f"{url}?mode=ro", f"sqlite+pysqlite:///{path}", "postgresql:///plans", "sqlite://", "plans.db", ""):
        assert SqliteHits.opened(other) is None, other
    for damage in ("UPDATE seals SET secret = 'short'", "UPDATE alembic_version SET version_num = '9999'"):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(damage)
            connection.commit()
        assert SqliteHits.opened(url) is None
        if "seals" in damage:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("UPDATE seals SET secret = ?", (seal,))
                connection.commit()
    path.write_bytes(b"no database" * 1000)
    assert SqliteHits.opened(url) is None
    path.write_bytes(b"")
    assert SqliteHits.opened(url) is None


def test_an_older_file_is_left_to_the_store_that_upgrades_it(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    schema.prepare(database, upgrade=False, target=revisions()[-2])
    database.close()
    assert SqliteHits.opened(sqlite_url) is None


def test_a_file_that_others_can_write_is_refused(sqlite_url: str, samples: Samples) -> None:
    with Store(sqlite_url) as store:
        samples.put(store)
        store.seal()
    Path(sqlite_url.removeprefix("sqlite:///")).parent.chmod(0o777)
    with pytest.raises(DatabaseError, match="cannot be trusted"):
        SqliteHits.opened(sqlite_url)


@pytest.mark.soak
def test_random_damage_never_gives_a_wrong_answer(tmp_path: Path, samples: Samples) -> None:
    path = tmp_path / "whole.db"
    with Store(f"sqlite:///{path}") as store:
        keys = [samples.put(store, n) for n in range(4)]
        store.seal()
    whole = path.read_bytes()
    drawn = random.Random(seed())
    right = nothing = 0
    for turn in range(100 if WHOLE_RUN else 40):
        damaged = bytearray(whole)
        for _ in range(drawn.choice((1, 20, 200))):
            damaged[drawn.randrange(len(damaged))] ^= 1 << drawn.randrange(8)
        copy = tmp_path / f"damaged{turn}.db"
        copy.write_bytes(damaged)
        for n, key in enumerate(keys):
            found = read(f"sqlite:///{copy}", samples.request(n), replace(NOW, toolchain="g++ 12"))
            assert found is None or (found.plan_key == key and found.plan() == samples.plan(n))
            right, nothing = right + (found is not None), nothing + (found is None)
        with suppress(FileNotFoundError):
            copy.unlink()
    assert right > 10
    assert nothing > 2


def test_a_file_is_opened_while_another_process_writes(sqlite_url: str, samples: Samples) -> None:
    with Store(sqlite_url) as store:
        store.seal()
        put(store, samples, samples.request(), plan_of(samples, 1.0))
    database = Database(sqlite_url)
    with database.write() as connection:
        connection.execute(text("UPDATE requests SET hits = hits + 1"))
        hits = SqliteHits.opened(sqlite_url)
        assert hits is not None, "reading waits for nobody"
        hits.__exit__(None, None, None)
    database.close()
    assert read(sqlite_url, samples.request()) is not None
    assert counted(sqlite_url)[0][1] == 2
