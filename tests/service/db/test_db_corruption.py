"""Damaged rows: a miss and a line in the log, never a wrong answer and never an error."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
import structlog
from sqlalchemy import text

from tests.service.db.samples import Samples, sha
from tests.support.whole import WHOLE, seed
from tuning_db.engine import Database
from tuning_db.errors import DatabaseError
from tuning_db.lately_verified import SECONDS
from tuning_db.store import Store


def _run(url: str, statement: str, **values: object) -> None:
    database = Database(url)
    with database.write() as connection:
        assert connection.execute(text(statement), values).rowcount > 0
    database.close()


def _flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


def test_flipped_plan_body(store: Store, url: str, samples: Samples) -> None:
    key = samples.put(store)
    body = store.plans.plan(key)
    assert body is not None
    for at in (0, len(body) // 2, len(body) - 1):
        _run(url, "UPDATE plans SET body = :body", body=_flipped(body, at))
        with structlog.testing.capture_logs() as logs:
            assert store.plans.resolve(samples.request()) is None
            assert store.plans.plan(key) is None
        assert [(line["table"], line["key"]) for line in logs] == [("plans", key)] * 2
    assert samples.put(store) == key, "storing it again mends it"
    assert store.plans.plan(key) == body


@pytest.mark.parametrize(
    "change",
    [
        "plan_key = :other",  # another plan, whole and valid, but not the answer
        "state = 'measured'",
        "state = 'best', checksum = checksum",
        "conditions = '{}'",
        "checksum = ''",
    ],
)
def test_changed_pointer(store: Store, url: str, samples: Samples, change: str) -> None:
    samples.put(store)
    store.plans.mark(samples.request(), "predicted")
    values = {"other": samples.put(store, 1)} if ":other" in change else {}
    assert store.plans.resolve(samples.request()) is not None
    _run(url, f"UPDATE requests SET {change} WHERE key = :key", key=samples.request().digest, **values)
    with structlog.testing.capture_logs() as logs:
        assert store.plans.resolve(samples.request()) is None
    assert logs[0]["table"] == "requests"


def test_flipped_binary(store: Store, url: str, samples: Samples) -> None:
    samples.put(store)
    key = sha(samples.binary())
    database = Database(url)
    (stored,) = database.rows(text("SELECT content FROM binaries").columns())  # pyright: ignore
    database.close()
    content = bytes(stored[0])
    for at in range(0, len(content), 7):
        _run(url, "UPDATE binaries SET content = :content", content=_flipped(content, at))
        assert store.plans.binary(key) in (None, samples.binary())  # bits of zlib's header that mean nothing may differ
    _run(url, "UPDATE binaries SET content = :content", content=content[: len(content) // 2])
    assert store.plans.binary(key) is None
    _run(url, "UPDATE binaries SET content = :content", content=content)
    for size in (0, 1, -1, 2**62):
        _run(url, "UPDATE binaries SET size = :size", size=size)
        assert store.plans.binary(key) in (None, samples.binary())
    samples.put(store)
    assert store.plans.binary(key) == samples.binary()


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("UPDATE plans SET time_us = 0.5", lambda s, store: store.plans.summary(s.plan().plan_key)),
        ("UPDATE plans SET families = ' naive '", lambda s, store: store.plans.plans().items or None),
        (
            "UPDATE devices SET record = replace(record, 'avx2', 'avx9')",
            lambda s, store: store.devices.devices() or None,
        ),
        (
            "UPDATE measurements SET samples_us = '[0.001]'",
            lambda s, store: store.trials.trials(sha("segment"), s.device.class_key) or None,
        ),
        (
            "UPDATE measurements SET status = 'ok', schedule = 'pointwise{vec=16}'",
            lambda s, store: store.trials.trials(sha("segment"), s.device.class_key) or None,
        ),
    ],
)
def test_other_damaged_rows(
    store: Store, url: str, samples: Samples, change: str, read: Callable[[Samples, Store], object]
) -> None:
    samples.put(store)
    store.trials.record([samples.measurement("pointwise{vec=8}", 1.0)])
    assert read(samples, store) is not None
    _run(url, change)
    with structlog.testing.capture_logs() as logs:
        assert read(samples, store) is None
    assert logs
    assert store.plans.resolve(samples.request()) is not None


def test_values_of_the_wrong_type(sqlite_url: str, samples: Samples) -> None:
    """SQLite puts anything into any column; `bytes(2**33)` would be eight gigabytes of zeros."""
    for value in (2**33, 1.5, None, "text"):
        with Store(sqlite_url) as store:
            key = samples.put(store)
            with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw:
                raw.execute("PRAGMA ignore_check_constraints=ON")
                raw.execute("PRAGMA writable_schema=ON")
                raw.execute("UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '')")
                raw.commit()
            with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw:
                raw.execute("UPDATE plans SET body = ?", (value,))
                raw.execute("UPDATE binaries SET content = ?", (value,))
                raw.execute("UPDATE sources SET text = ?", (value,))
                raw.execute("UPDATE graphs SET names = ?", (value,))
                raw.commit()
            assert store.plans.resolve(samples.request()) is None
            assert store.plans.plan(key) is None
            assert store.plans.binary(sha(samples.binary())) is None
            assert store.plans.source(sha(samples.source())) is None
            assert store.graphs.graph(samples.graph_key()) is None


def test_a_row_that_no_update_reaches_is_a_miss(
    tmp_path: Path, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of a damaged file may lead to a row that is found and not changed: no answer is asked for for ever."""
    with Store(f"sqlite:///{tmp_path / 'whole.db'}") as store:
        samples.put(store, 0)
        monkeypatch.setattr(type(store.plans), "_has_parts", lambda *_: False)
        monkeypatch.setattr(type(store.plans), "_distrust", lambda *_: 1)
        assert store.plans.resolve(samples.request(0)) is None


@pytest.mark.soak
def test_random_damage_to_the_file_never_gives_a_wrong_answer(tmp_path: Path, samples: Samples) -> None:
    path = tmp_path / "whole.db"
    with Store(f"sqlite:///{path}") as store:
        keys = [samples.put(store, n) for n in range(4)]
        store.trials.record([samples.measurement(f"schedule {n}", float(n + 1)) for n in range(20)])
    whole = path.read_bytes()
    generator, turns = random.Random(5 if WHOLE else seed()), 100 if WHOLE else 35
    answers = {"right": 0, "missing": 0, "refused": 0}
    for turn in range(turns):
        damaged = bytearray(whole)
        for _ in range(generator.choice((1, 20, 200))):
            damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        copy = tmp_path / f"damaged{turn}.db"
        copy.write_bytes(damaged)
        try:
            with Store(f"sqlite:///{copy}") as store:
                for n, key in enumerate(keys):
                    found = store.plans.resolve(samples.request(n))
                    assert found is None or (found.plan_key == key and found.plan() == samples.plan(n))
                    answers["missing" if found is None else "right"] += 1
                    assert store.plans.binary(sha(samples.binary(n))) in (None, samples.binary(n))
                    assert store.plans.source(sha(samples.source(n))) in (None, samples.source(n))
                    graph = store.graphs.graph(samples.graph_key(n))
                    assert graph is None or (graph.text, graph.names) == (samples.graph(n), samples.names)
                measured = {f"schedule {n}": float(n + 1) for n in range(20)}
                for row in (t.measurement for t in store.trials.trials(sha("segment"), samples.device.class_key)):
                    assert row == samples.measurement(row.schedule, measured[row.schedule])
                for line in store.plans.plans().items:
                    assert line.time_us == samples.plan(keys.index(line.plan_key)).time_us
        except DatabaseError:
            answers["refused"] += 1
        with suppress(FileNotFoundError):
            copy.unlink()
    assert answers["right"] > turns // 5
    assert answers["missing"] + answers["refused"] > turns // 20


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("table", ["binaries", "sources"])
def test_a_plan_whose_part_is_damaged_is_a_miss(
    store: Store, url: str, samples: Samples, table: str, known: bool
) -> None:
    """known: a process that answered with it before finds out when the binary or the source is read."""
    samples.put(store)
    other = samples.put(store, 1)
    if known:
        assert store.plans.resolve(samples.request()) is not None
    before = store.damaged().get(table, 0)
    part, column = (samples.binary(), "content") if table == "binaries" else (samples.source(), "text")
    read = store.plans.binary if table == "binaries" else store.plans.source
    _run(url, f"UPDATE {table} SET {column} = 'x' WHERE sha256 = :key", key=sha(part))
    if known:
        assert read(sha(part)) is None
    for _ in range(2):
        assert store.plans.resolve(samples.request()) is None
    assert store.damaged()[table] > before
    found = store.plans.resolve(samples.request(1))
    assert found is not None
    assert found.plan_key == other
    samples.put(store)
    assert store.plans.resolve(samples.request()) is not None
    assert read(sha(part)) == part
    assert read(sha("nothing")) is None, "what no plan needs is just not there"


def test_damage_that_nobody_reads_is_found_within_a_minute(url: str, samples: Samples) -> None:
    now = 1e9
    with Store(url, clock=lambda: now) as store:
        samples.put(store)
        assert store.plans.resolve(samples.request()) is not None
        _run(url, "UPDATE sources SET text = 'x'")
        assert store.plans.resolve(samples.request()) is not None, "not looked at at every hit"
        now += SECONDS
        assert store.plans.resolve(samples.request()) is None


def test_a_plan_that_was_stored_without_its_source_answers(store: Store, samples: Samples) -> None:
    """A search whose cache folder lost it: that is no damage."""
    store.graphs.put(samples.graph_key(), samples.graph(), samples.names)
    binaries = {sha(samples.binary()): samples.binary()}
    store.plans.put(samples.request(), samples.plan(), "measured", binaries, {})
    assert store.plans.resolve(samples.request()) is not None


def test_damaged_links_are_mended(store: Store, url: str, samples: Samples) -> None:
    """A plan is linked to what it needs and to nothing else, whatever was there."""
    samples.put(store)
    samples.put(store, 1)
    for table, other in (("plan_binaries", samples.binary(1)), ("plan_sources", samples.source(1))):
        statement = f"UPDATE {table} SET sha256 = :other WHERE plan_key = :plan"
        _run(url, statement, other=sha(other), plan=samples.plan().plan_key)
    samples.put(store)
    _run(url, "UPDATE sources SET text = 'x' WHERE sha256 = :key", key=sha(samples.source(1)))
    assert store.plans.source(sha(samples.source(1))) is None
    assert store.plans.resolve(samples.request()) is not None, "it has nothing to do with that source"
    assert store.plans.resolve(samples.request(1)) is None


def test_a_damaged_operation_holds_up_nobody(sqlite_url: str) -> None:
    """Workers ask for the next one again and again: it is removed, told, and whoever waits for it is told."""
    with Store(sqlite_url) as store:
        damaged, next_ = store.queue.submit("plan", "first", priority=1), store.queue.submit("plan", "second")
        _run(sqlite_url, "UPDATE operations SET created = 'x', attempt = 'y' WHERE id = :id", id=damaged.id)
        before = store.damaged().get("operations", 0)
        assert store.queue.operation(damaged.id) is None
        leased = [store.queue.lease("worker", 60.0) for _ in range(3)]
        assert [o.id for o in leased if o is not None] == [next_.id]
        assert store.damaged()["operations"] > before
        assert store.queue.counts()["running"] == 1


def test_another_plan_answers_instead_of_one_whose_binary_is_damaged(store: Store, url: str, samples: Samples) -> None:
    samples.put(store)
    fast = samples.plan(binary=7).model_copy(update={"time_us": 0.5, "numerics": "exact"})
    binaries = {sha(samples.binary(7)): samples.binary(7)}
    store.plans.put(samples.request(numerics="exact"), fast, "measured", binaries, {})
    _run(url, "UPDATE binaries SET size = 3 WHERE sha256 = :key", key=sha(samples.binary(7)))
    found = store.plans.resolve(samples.request())
    assert found is not None
    assert found.plan_key == samples.plan().plan_key


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        "text = replace(text, 'exp', 'log')",
        "text = 'no graph'",
        "text = (SELECT text FROM graphs WHERE key = :other)",  # whole and valid, but not the one
        "names = replace(names, 'x', 'z')",
        "nodes = nodes + 1",
        "checksum = ''",
    ],
)
def test_a_plan_whose_graph_is_damaged_is_a_miss(
    store: Store, url: str, samples: Samples, change: str, known: bool
) -> None:
    """known: a process that answered with it before finds out when the graph is read."""
    key = samples.put(store)
    other = samples.put(store, 1)
    if known:
        assert store.plans.resolve(samples.request()) is not None
    values = {"other": samples.graph_key(1)} if ":other" in change else {}
    _run(url, f"UPDATE graphs SET {change} WHERE key = :key", key=samples.graph_key(), **values)
    before = store.damaged().get("graphs", 0)
    if known:
        assert store.graphs.graph(samples.graph_key()) is None
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            assert store.plans.resolve(samples.request()) is None
    assert {(line["table"], line["key"]) for line in logs} == {("graphs", samples.graph_key())}
    assert store.damaged()["graphs"] > before
    found = store.plans.resolve(samples.request(1))
    assert found is not None
    assert found.plan_key == other
    store.graphs.put(samples.graph_key(), samples.graph(), samples.names)
    found = store.plans.resolve(samples.request())
    assert found is not None, "the plan was right, and answers again"
    assert found.plan_key == key
    assert store.graphs.graph(samples.graph_key()) is not None
