"""Opening databases: new, old, newer, foreign, unwritable, and by several processes at once."""

import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, text

from fusion_ir.records import Buffer, Reason
from tests.service.db.samples import Samples, sha
from tests.support.whole import WHOLE
from tuning_db import schema
from tuning_db.checks import checksum
from tuning_db.content import put_content
from tuning_db.devices import put_device
from tuning_db.engine import Database
from tuning_db.errors import DatabaseError
from tuning_db.graphs import NewGraph, put_graphs
from tuning_db.models import Base, PlanRow
from tuning_db.requests import Conditions
from tuning_db.revisions import revisions
from tuning_db.store import Store

NEWEST = revisions()[-1]


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def _old(url: str, samples: Samples) -> None:
    """A database at the first revision, with a row in it."""
    database = Database(url)
    schema.prepare(database, upgrade=False, target=revisions()[0])
    row = {"key": sha("old"), "text": "old", "device": samples.device.class_key}
    with database.write() as connection:
        connection.execute(text("INSERT INTO sources (sha256, text) VALUES (:key, :text)"), row)
    database.close()


def test_migrations_build_what_the_models_say(store: Store, url: str) -> None:
    database = Database(url)
    with database.write() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        tables = set(Base.metadata.tables)
    database.close()
    assert tables >= {"graphs", "devices", "requests", "plans", "binaries", "sources", "measurements", "operations"}
    assert store.revision() == revisions()[-1]
    assert store.upgrade() == revisions()[-1]
    store.ping()


def test_reopening_keeps_everything(url: str, samples: Samples) -> None:
    with Store(url) as store:
        key = samples.put(store)
    with Store(url) as store:
        assert store.plans.plan(key) is not None


def test_sqlite_is_set_up_for_many_processes(sqlite_url: str) -> None:
    with Store(sqlite_url):
        database = Database(sqlite_url)
        with database.write() as connection:
            answers = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            ]
        database.close()
    assert answers == ["wal", 1, 1, 30_000]


def test_folders_are_made(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'a' / 'b%20c' / 'plans.db'}") as store:
        assert Path(store.place).exists()


def test_a_newer_schema_is_refused(store: Store, url: str) -> None:
    database = Database(url)
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999_future'"))
    database.close()
    for upgrade in (False, True):
        with pytest.raises(DatabaseError, match=rf"9999_future.*knows up to {NEWEST}.*install that version") as caught:
            Store(url, upgrade=upgrade)
        assert store.place in str(caught.value)


def test_an_older_sqlite_file_is_upgraded_after_a_copy(sqlite_url: str, samples: Samples) -> None:
    assert schema.revision_of(sqlite_url) is None
    _old(sqlite_url, samples)
    assert schema.revision_of(sqlite_url) == "0001"
    with Store(sqlite_url) as store:
        assert store.revision() == revisions()[-1]
        assert store.plans.source(sha("old")) == "old"
        store.queue.submit("tune", "{}")
    (copy,) = _path(sqlite_url).parent.glob("*.backup")
    assert copy.name.startswith("fuseplan.db.0001.")
    with closing(sqlite3.connect(copy)) as backup:
        assert backup.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
        assert backup.execute("SELECT text FROM sources").fetchall() == [("old",)]
    with Store(sqlite_url):
        pass
    assert len(list(_path(sqlite_url).parent.glob("*.backup"))) == 1, "nothing to upgrade, nothing to copy"


def test_answers_of_before_keep_answering(url: str, samples: Samples) -> None:
    """Revision 6 had no copies of what a plan takes and needs, and checksums without them; an interrupted search was
    known by a reason in its plan, and stored as stale where nothing was timed."""
    before = revisions()[5]
    interrupted = (Reason(kind="cap", text="the search was interrupted"),)
    plans = {
        samples.request(): samples.plan().model_copy(update={"buffers": (Buffer(bytes=100),)}),
        samples.request(1): samples.plan(1).model_copy(update={"reasons": interrupted}),
        samples.request(2): samples.plan(2).model_copy(
            update={"reasons": interrupted, "time_us": None, "predicted_us": 3.0}
        ),
        samples.request(3): samples.plan(3),
    }
    database = Database(url)
    schema.prepare(database, upgrade=False, target=before)
    with database.write() as connection:
        put_graphs(
            database, connection, [NewGraph(samples.graph_key(n), samples.graph(n), samples.names) for n in range(4)]
        )
        put_device(database, connection, samples.device)
        put_content(database, connection, {sha(samples.binary(n)): samples.binary(n) for n in range(4)}, {})
        for n, (request, plan) in enumerate(plans.items()):
            row = {"plan_key": plan.plan_key, "body": plan.model_dump_json().encode(), "created": 1.0}
            row |= {"graph_key": plan.graph_key, "device_key": plan.device.class_key, "numerics": plan.numerics}
            row |= {
                "time_us": plan.time_us,
                "lower_bound_us": plan.lower_bound_us,
                "steps": 1,
                "families": "",
                "dtypes": "",
            }
            connection.execute(insert(PlanRow).values(**row, checksum=""))
            state, conditions = "stale" if plan.time_us is None else "measured", Conditions.of_plan(plan).json()
            check = checksum(request.digest, plan.plan_key, state, conditions) if n < 3 else "damaged"
            asked = {name: getattr(request, name) for name in ("graph_key", "device_key", "numerics", "tenant")}
            asked |= {"generator": request.generator, "wire_version": request.wire_version, "hits": 5, "created": 1.0}
            names = {"key": request.digest, "plan_key": plan.plan_key, "state": state, "conditions": conditions}
            connection.execute(
                text(
                    "INSERT INTO requests (key, graph_key, device_key, numerics, tenant, generator, wire_version,"
                    " plan_key, state, conditions, checksum, hits, created) VALUES (:key, :graph_key, :device_key,"
                    " :numerics, :tenant, :generator, :wire_version, :plan_key, :state, :conditions, :checksum, :hits,"
                    " :created)"
                ),
                asked | names | {"checksum": check},
            )
    database.close()
    now = Conditions.of_plan(samples.plan())
    with Store(url, upgrade=True) as store:
        found = {n: store.plans.resolve(samples.request(n), now, 30.0) for n in range(4)}
        assert [None if f is None else (f.state, f.due) for f in found.values()] == [
            ("measured", False),
            ("measured", True),
            ("predicted", True),
            None,
        ]
        fits = {m: store.plans.answer(samples.request(memory_bytes=m), now) is not None for m in (99, 100)}
        assert fits == {99: False, 100: True}


def test_operations_that_failed_before_are_not_counted_now(url: str) -> None:
    """Up to revision 10 nobody counted them."""
    database = Database(url)
    schema.prepare(database, upgrade=False, target="0010")
    row = (
        "INSERT INTO operations (id, kind, payload, state, priority, owner, token, lease_until, attempt,"
        " cancel_requested, progress, error, created)"
        " VALUES (:id, 'plan', '', :state, 0, 'w', 1, 1e12, 1, false, '', :error, 1)"
    )
    with database.write() as connection:
        for state in ("failed", "running"):
            connection.execute(text(row), {"id": state, "state": state, "error": "before"})
    database.close()
    with Store(url, upgrade=True) as store:
        assert store.queue.newly_failed() == []
        assert store.queue.finish("running", "w", 1, error="now")
        assert store.queue.newly_failed() == ["now"]


def test_an_upgrade_that_fails_leaves_the_old_tables(
    sqlite_url: str, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    _old(sqlite_url, samples)

    def fails(path: Path, held: str) -> Path:
        raise DatabaseError("no space for the copy")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "_back_up", fails)
        with pytest.raises(DatabaseError, match="no space"):
            Store(sqlite_url)
    with closing(sqlite3.connect(_path(sqlite_url))) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
        assert raw.execute("SELECT name FROM sqlite_schema WHERE name = 'operations'").fetchall() == []


def test_an_older_postgresql_database_is_upgraded_only_when_told(postgres_url: str, samples: Samples) -> None:
    _old(postgres_url, samples)
    with pytest.raises(DatabaseError, match=rf"0001.*needs {NEWEST}.*fuseplan db upgrade"):
        Store(postgres_url)
    with Store(postgres_url, upgrade=True) as store:
        assert store.revision() == NEWEST
        assert store.plans.source(sha("old")) == "old"
    Store(postgres_url).close()


def test_another_programs_database_is_refused(sqlite_url: str) -> None:
    with closing(sqlite3.connect(_path(sqlite_url))) as raw:
        raw.execute("CREATE TABLE bookmarks (id)")
        raw.commit()
    with pytest.raises(DatabaseError, match=r"another program.*bookmarks"):
        Store(sqlite_url)


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "plans.db", tmp_path, Path("/proc/fuseplan/plans.db"), Path("/dev/full/x")):
        with pytest.raises(DatabaseError) as caught:
            Store(f"sqlite:///{path}")
        assert f"{path} cannot be written" in str(caught.value)


@pytest.mark.parametrize("content", [b"hello, this is a letter\n" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(DatabaseError, match=str(path)):
        Store(f"sqlite:///{path}")
    assert path.read_bytes() == content


def test_an_address_that_is_none() -> None:
    for url, message in (
        ("plans.db", "expected sqlite:///PATH"),
        ("", "expected sqlite:///PATH"),
        ("mysql://user:secret@host/db", "got mysql"),
        ("sqlite://", "expected a file"),
        ("sqlite:///:memory:", "expected a file"),
        ("sqlite:///x?mode=memory", "expected a file"),
    ):
        with pytest.raises(DatabaseError, match=message) as caught:
            Store(url)
        assert "secret" not in str(caught.value)


def test_a_server_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError) as caught:
        Store(f"postgresql://me:secret@/fuseplan?host={tmp_path}")
    assert str(tmp_path) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_database_that_goes_away_is_an_error_not_a_miss(store: Store, url: str, samples: Samples) -> None:
    samples.put(store)
    database = Database(url)
    with database.write() as connection:
        connection.execute(text("ALTER TABLE requests RENAME TO elsewhere"))
    database.close()
    with pytest.raises(DatabaseError):
        store.plans.resolve(samples.request())


@pytest.mark.sweep(0.5)
def test_processes_that_create_one_database_at_once(url: str, worker: Callable[..., "subprocess.Popen[str]"]) -> None:
    processes = [worker("create", url, "") for _ in range(4 if WHOLE else 3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, f"{NEWEST}\n")


def test_opening_a_database_twice_leaves_the_locks_of_the_first(
    sqlite_url: str, worker: Callable[..., "subprocess.Popen[str]"]
) -> None:
    """Else the next process to end takes itself for the last one, and removes the log that the first still writes."""
    with Store(sqlite_url) as store:
        store.queue.submit("tune", "before")
        Store(sqlite_url).close()
        for n in range(2):
            assert worker("submit", sqlite_url, f"elsewhere {n}").wait(60) == 0
            store.queue.submit("tune", f"here {n}")
        here = {job.payload for job in store.queue.operations()}
        assert here == {"before", "elsewhere 0", "here 0", "elsewhere 1", "here 1"}
        with closing(sqlite3.connect(_path(sqlite_url))) as other:
            assert other.execute("SELECT count(*) FROM operations").fetchone() == (5,)


def test_migrations_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("sqlite:///relative.db") as store:
        assert store.place == str(tmp_path / "relative.db")
        assert Path(store.place).exists()
