"""Every table and every column that a request reads, damaged in every way: what does not verify is a miss, and told;
never a fault of the server, never a hit whose parts are not there."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Measurement, Status
from service.jobs import PLAN, PlanJob
from service.version import VERSION
from tests.support.service_app import Running, running, wire
from tests.support.stored_plans import BINARY, DEVICE, chain, sha, store_plan
from tests.support.whole import some
from tuning_db.models import Base
from tuning_db.requests import Conditions, RequestKey

KEY = graph_key(chain())
FAILED = ("exp", "log")  # the graph whose search failed before
SEARCHED = 9  # size of the one that is being searched
CACHE = {"graphs", "requests", "plans", "binaries", "sources", "plan_binaries", "plan_sources", "failures"}
QUEUE = {"operations", "batches", "batch_items"}
# What a row is found by: where that is damaged, there is no row, and nobody who could tell.
FOUND_BY = {("requests", name) for name in ("graph_key", "device_key", "tenant", "generator", "wire_version")}


def flipped(value: Any) -> Any:
    """The value with one bit flipped, in the middle of a text or of bytes; a float with its sign changed."""
    if isinstance(value, bytes) and value:
        at = len(value) // 2
        return value[:at] + bytes([value[at] ^ 0x04]) + value[at + 1 :]
    if isinstance(value, str) and value:
        at = len(value) // 2
        return value[:at] + chr(ord(value[at]) ^ 0x04) + value[at + 1 :]
    if isinstance(value, int):
        return value ^ 0x04
    return -value if isinstance(value, float) else value


def truncated(value: Any) -> Any:
    return value[: len(value) // 2] if isinstance(value, str | bytes) else value


def foreign(value: Any) -> Any:
    """A value of another type: SQLite holds anything in any column."""
    return 2**40 if isinstance(value, str | bytes) else "text"


def undecodable(value: Any) -> Any:
    """Bytes that are no UTF-8, in a column of text."""
    return b"\xff\xfe\x80" if isinstance(value, str | bytes) else value


DAMAGES: dict[str, Callable[[Any], Any]] = {
    "flipped": flipped,
    "truncated": truncated,
    "foreign": foreign,
    "undecodable": undecodable,
    "huge": lambda value: type(value)(2**62) if isinstance(value, int | float) else value,
    "null": lambda value: None,
}


@dataclass(frozen=True)
class Kept:
    """A service over a database with rows in every table, and the addresses of what is in it. rows: as they were."""

    service: Running
    file: Path
    plan_key: str
    operation: str
    batch: str
    rows: dict[str, list[tuple[Any, ...]]]

    def restore(self) -> None:
        """Restores all rows, and makes the store forget which plans it has verified."""
        with closing(sqlite3.connect(self.file)) as raw:
            for table, rows in self.rows.items():
                raw.execute(f"DELETE FROM {table}")
                if rows:
                    raw.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            raw.commit()
        self.service.store.plans._verified._found.clear()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("kept")
    file = folder / "fuseplan.db"
    with running(folder) as service:
        plan_key = store_plan(service.store, chain())
        store = service.store
        store.segments.put(KEY, "a segment")
        store.trials.record([measurement()], VERSION)
        store.seal()
        failing = RequestKey(graph_key(chain(ops=FAILED)), DEVICE.class_key)
        store.failures.put(failing, Conditions.of_device(DEVICE, VERSION), 1000.0, "no kernel passed")
        job = PlanJob(graph_key=KEY, target="cpu", seconds=1.0, numerics="reassociate").model_dump_json()
        operation = store.queue.submit(PLAN, job)
        leased = store.queue.lease("somebody", 1000.0)
        assert leased is not None
        store.queue.finish(leased.id, "somebody", leased.token, result=f'{{"plan_key": "{plan_key}"}}')
        lines = json.dumps({"custom_id": "a", "graph": wire()}) + "\n"
        headers = {"Content-Type": "application/x-ndjson"}
        batch = service.client.post("/v1/batches", content=lines, headers=headers)
        assert (batch.status_code, batch.json()["counts"]["done"]) == (201, 1), batch.text
        assert service.client.post("/v1/plans:resolve", json={"graph": wire(SEARCHED)}).status_code == 202
        service.client.post("/v1/plans:resolve", json={"graph": wire()})
        store.plans.flush_hits()
        with closing(sqlite3.connect(file)) as raw:
            raw.execute("PRAGMA writable_schema=ON")
            raw.execute("UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '')")
            (version,) = raw.execute("PRAGMA schema_version").fetchone()
            raw.execute(f"PRAGMA schema_version = {version + 1}")  # for connections that are open
            raw.commit()
            rows = {t.name: raw.execute(f"SELECT * FROM {t.name}").fetchall() for t in Base.metadata.sorted_tables}
        yield Kept(service, file, plan_key, operation.id, batch.json()["id"], rows)


def measurement() -> Measurement:
    return Measurement(
        segment_key=sha("a segment"),
        device_key=DEVICE.class_key,
        family="pointwise",
        schedule="pointwise{lanes=8}",
        status=Status.ok,
        samples_us=(1.0, 2.0),
        max_rel_error=0.0,
        compile_seconds=0.1,
        binary="",
    )


def change(file: Path, statement: str, values: tuple[Any, ...] = ()) -> None:
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("PRAGMA foreign_keys=OFF")
        raw.execute("PRAGMA ignore_check_constraints=ON")
        raw.execute(statement, values)
        raw.commit()


def damaged(file: Path, table: str, column: str | None, damage: str) -> bool:
    """Damages all rows of a table, one column of them, or (None) all of them by deletion. False: nothing to change."""
    if column is None:
        change(file, f"DELETE FROM {table}")
        return True
    with closing(sqlite3.connect(file)) as raw:
        rows = raw.execute(f"SELECT rowid, {column} FROM {table} ORDER BY rowid").fetchall()
    for rowid, value in rows:
        worse = DAMAGES[damage](value)
        if value is None or (worse == value and type(worse) is type(value)):
            return False
        try:
            change(file, f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (worse, rowid))
        except sqlite3.IntegrityError:  # the number of a row is a number, whatever the file says
            return False
    return bool(rows)


def look(kept: Kept, table: str = "", *, tells: bool) -> list[str]:
    """Faults in the service's answers over this database, a line each. table: leaves out requests that do not read it.
    tells: where a plan is no answer, the service has to report it."""
    client, wrong, before = kept.service.client, list[str](), told(kept.service)

    def ask(*paths: str) -> None:
        for path in paths:
            response = client.get(path)
            if response.status_code >= 500:
                wrong.append(f"{path}: {response.status_code} {response.text[:200]}")

    def resolve(**body: Any) -> Any:
        response = client.post("/v1/plans:resolve", json=body)
        if response.status_code >= 500 and response.json()["type"] != "/errors/tuning-failed":
            wrong.append(f"resolve: {response.status_code} {response.text[:200]}")
        return response

    if table not in QUEUE:
        answers = [resolve(graph_key=KEY), resolve(graph=wire())]
        for answer in answers:
            wrong += parts(client, answer.json()) if answer.status_code == 200 else ()
        if tells and answers[-1].status_code != 200 and told(kept.service) == before:
            wrong.append("a miss, and nobody is told")
        resolve(graph=wire(ops=FAILED))
        plan = f"/v1/plans/{kept.plan_key}"
        ask("/v1/plans", plan, f"{plan}/source", f"/v1/graphs/{KEY}", "/v1/devices", f"/plans/{kept.plan_key}")
    if table not in CACHE:
        resolve(graph=wire(SEARCHED))
        batch = f"/v1/batches/{kept.batch}"
        ask(f"/v1/operations/{kept.operation}", batch, f"{batch}/results", f"{batch}/errors")
    ask("/", "/readyz")
    return wrong


def parts(client: TestClient, answer: dict[str, Any]) -> Iterator[str]:
    """Parts of an answered plan that the service does not hand out (graph, sources, binaries), a line each."""
    plan_key = answer["plan_key"]
    paths = [f"/v1/plans/{plan_key}", f"/v1/graphs/{answer['graph_key']}"]
    for i, step in enumerate(answer["plan"]["steps"]):
        paths += [f"/v1/plans/{plan_key}/source?step={i}", f"/v1/binaries/{step['binary']}"]
    for path in paths:
        response = client.get(path)
        if response.status_code != 200:
            yield f"a hit, and {path} is {response.status_code}"


def told(service: Running) -> int:
    """Damaged rows, as the metrics have them."""
    text = service.client.get("/metrics").text
    return sum(int(float(n)) for n in re.findall(r"^fuseplan_damaged_rows\{.*\} (\S+)", text, re.MULTILINE))


CASES = [
    (table.name, column, damage)
    for table in Base.metadata.sorted_tables
    for column, damages in [(None, ["deleted"]), *((c.name, list(DAMAGES)) for c in table.columns)]
    for damage in damages
]


def is_found_by(table: str, column: str | None) -> bool:
    columns = Base.metadata.tables[table].columns
    return column is None or columns[column].primary_key or (table, column) in FOUND_BY


def test_the_whole_database_answers(kept: Kept) -> None:
    kept.restore()
    answer = kept.service.client.post("/v1/plans:resolve", json={"graph": wire()})
    assert (answer.status_code, answer.json()["cache"]) == (200, "hit")
    assert look(kept, tells=True) == []


@pytest.mark.parametrize("table", sorted({table for table, _, _ in CASES}))
@pytest.mark.sweep(0.35)
def test_damage(kept: Kept, table: str) -> None:
    found: list[str] = []
    for _, column, damage in some((case for case in CASES if case[0] == table), 18, table):
        kept.restore()
        if damaged(kept.file, table, column, damage):
            faults = look(kept, table, tells=not is_found_by(table, column))
            found += [f"{column or 'row'} {damage}: {wrong}" for wrong in faults]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("statement", "path"),
    [
        ("UPDATE sources SET text = text || ' '", "/v1/plans/{plan}/source"),
        ("DELETE FROM sources", "/v1/plans/{plan}/source"),
        ("DELETE FROM binaries", "/v1/binaries/{binary}"),
        ("UPDATE binaries SET content = NULL", "/v1/binaries/{binary}"),
        ("UPDATE graphs SET text = text || ' '", "/v1/graphs/{graph}"),
    ],
)
@pytest.mark.parametrize("links", ["", "DELETE FROM plan_sources", "DELETE FROM plan_binaries"])
def test_damage_to_what_was_answered_before(kept: Kept, statement: str, path: str, links: str) -> None:
    """It is found when it is asked for: from then on it is a miss, until the plan is stored again."""
    kept.restore()
    client, body = kept.service.client, {"graph_key": KEY}
    assert client.post("/v1/plans:resolve", json=body).json()["cache"] == "hit"
    for change_ in (statement, links):
        if change_:
            change(kept.file, change_)
    where = path.format(plan=kept.plan_key, binary=sha(BINARY), graph=KEY)
    assert client.get(where).status_code == 404
    assert client.post("/v1/plans:resolve", json=body).status_code in (202, 404), "the graph itself may be asked for"
    store_plan(kept.service.store, chain())
    assert client.post("/v1/plans:resolve", json=body).json()["cache"] == "hit"
    assert client.get(where).status_code == 200
