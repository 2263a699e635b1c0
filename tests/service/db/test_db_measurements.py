"""Measurements, the segments that they are of, and devices."""

import json
import time

from sqlalchemy import text

from fusion_ir.records import CompileReport, Measurement, Moment, Status, Surroundings
from tests.service.db.samples import Samples, sha
from tuning_db import schema
from tuning_db.checks import checksum
from tuning_db.engine import Database
from tuning_db.measurements import Trial
from tuning_db.requests import Conditions
from tuning_db.store import Store


def conditioned(samples: Samples, **changed: object) -> Measurement:
    """A row with every condition."""
    moment = Moment(clock_mhz=(2596.126, 2600.0), load=0.1 + 0.2, runnable=3)
    surroundings = Surroundings(
        start=moment, end=Moment(throttled=("power cap",)), seconds=0.1, cpus=(0, 1), steal_ms=0.0,
        huge_pages="madvise", ceilings=samples.ceilings,
    )  # fmt: skip
    values: dict[str, object] = {
        "warm_us": 0.7, "input_sets": 17, "report": CompileReport(code_bytes=1323, frame_bytes=8),
        "surroundings": surroundings, "toolchain": "g++ 12.2", "driver": "CUDA 13.0",
    }  # fmt: skip
    return samples.measurement("c", 1.0, **values | changed)


def test_measurements_come_back_as_they_went_in(store: Store, samples: Samples) -> None:
    rows = [
        samples.measurement("a", 0.1 + 0.2, 1e-300, 3.0),
        samples.measurement(
            "b", status=Status.compile_failed, detail="error: \u20ac 'x'\n", max_rel_error=None, binary=""
        ),
        samples.measurement("c", status=Status.wrong_result, max_rel_error=1e300, race="0123"),
        conditioned(samples),
    ]
    store.trials.record(rows, "0.1.0")
    assert [t.measurement for t in store.trials.trials(sha("segment"), samples.device.class_key)] == rows
    assert store.trials.trials(sha("segment"), "cpu-other") == []
    assert store.trials.trials(sha("other"), samples.device.class_key) == []
    store.trials.record([])


def test_every_try_is_kept(store: Store, samples: Samples) -> None:
    first, again = samples.measurement("a", 1.0), samples.measurement("a", 3.0)
    elsewhere = samples.measurement("a", 2.0, device_key="cpu-other")
    before = time.time()
    store.trials.record([first, elsewhere], "0.1.0")
    store.trials.record([again], "0.2.0")
    trials = store.trials.trials(sha("segment"))
    assert [(t.measurement, t.version) for t in trials] == [(first, "0.1.0"), (elsewhere, "0.1.0"), (again, "0.2.0")]
    assert all(before <= t.created <= time.time() for t in trials)
    assert [t.measurement for t in store.trials.trials(sha("segment"), samples.device.class_key)] == [first, again]


def test_rows_of_before_there_were_races(url: str, samples: Samples) -> None:
    """Their checksums know of none."""
    row = samples.measurement("a", 1.0)
    with Store(url) as store:
        store.trials.record([row])
    database = Database(url)
    values = ("a", "ok", json.dumps(row.samples_us), row.max_rel_error, row.detail, row.compile_seconds, row.binary, "")
    old = checksum(row.segment_key, row.device_key, row.family, row.schedule, *values[1:])
    with database.write() as connection:
        connection.execute(text("UPDATE measurements SET checksum = :old"), {"old": old})
    database.close()
    with Store(url) as store:
        assert [t.measurement for t in store.trials.trials(sha("segment"))] == [row]


def test_rows_of_before_conditions_were_kept(url: str, samples: Samples) -> None:
    """Written at the revision before, with the checksum of that time; read back after the migration."""
    row = samples.measurement("a", 1.0, 2.0, race="0123")
    database = Database(url)
    schema.prepare(database, upgrade=False, target="0003")
    values = {
        "segment_key": row.segment_key, "device_key": row.device_key, "family": row.family, "schedule": "a",
        "status": "ok", "samples_us": json.dumps(row.samples_us), "max_rel_error": row.max_rel_error,
        "detail": row.detail, "compile_seconds": row.compile_seconds, "binary": row.binary, "version": "0.1.0",
        "race": "0123",
    }  # fmt: skip
    values |= {"checksum": checksum(*values.values()), "median_us": row.time_us, "created": 5.0}
    names = ", ".join(f'"{name}"' for name in values)  # binary is a word of PostgreSQL's
    statement = f"INSERT INTO measurements ({names}) VALUES ({', '.join(f':{name}' for name in values)})"
    with database.write() as connection:
        connection.execute(text(statement), values)
    database.close()
    with Store(url, upgrade=True) as store:
        (old,) = store.trials.trials(sha("segment"))
        assert (old.measurement, old.version, old.created) == (row, "0.1.0", 5.0)
        assert (old.measurement.report, old.measurement.warm_us, old.measurement.toolchain) == (None, None, "")
        full = conditioned(samples)
        store.trials.record([full], "0.2.0")
        found = store.trials.trials(sha("segment"))
        assert [t.measurement for t in found] == [row, full]
        assert found[1].conditions == Conditions("CUDA 13.0", "g++ 12.2", "0.2.0")


def test_a_damaged_condition_is_noticed(store: Store, url: str, samples: Samples) -> None:
    """Also where the damage makes the row look like one of before there were conditions."""
    database = Database(url)
    for column, damaged in (
        ("surroundings", "''"), ("report", "'{}'"), ("toolchain", "''"), ("driver", "'g++ 12'"),
        ("origin", "'imported'"), ("warm_us", "NULL"), ("input_sets", "3"),
    ):  # fmt: skip
        segment = sha(column)
        store.trials.record([conditioned(samples, segment_key=segment)])
        assert len(store.trials.trials(segment)) == 1
        with database.write() as connection:
            connection.execute(
                text(f"UPDATE measurements SET {column} = {damaged} WHERE segment_key = :key"), {"key": segment}
            )
        assert store.trials.trials(segment) == [], column
    database.close()


def test_trials_of_another_database_come_once(store: Store, samples: Samples) -> None:
    own, foreign = samples.measurement("a", 1.0), samples.measurement("a", 2.0, detail="with\0zero")
    store.trials.record([own], "0.1.0")
    (here,) = store.trials.trials(sha("segment"))
    there = [Trial(foreign, "0.3.0", 7.5), Trial(conditioned(samples, device_key="cpu-other"), "0.3.0", 8.5)]
    assert store.trials.add([here, *there, there[0]]) == 2
    assert store.trials.add([here, *there]) == 0
    first, *imported = store.trials.trials(sha("segment"))
    assert first == here
    assert [(t.measurement.origin, t.version, t.created) for t in imported] == [
        ("imported", "0.3.0", 7.5),
        ("imported", "0.3.0", 8.5),
    ]
    assert imported[1].measurement == there[1].measurement.model_copy(update={"origin": "imported"})
    assert store.trials.add(imported) == 0, "what was imported and exported again"
    assert store.trials.add([Trial(foreign, "0.3.0", 7.6)]) == 1, "a later try"


def test_segments_of_graphs(store: Store) -> None:
    for graph, segment in (("a", "one"), ("b", "one"), ("a", "two"), ("a", "one")):
        store.segments.put(sha(graph), segment)
    assert store.segments.of(sha("a")) == sorted((sha("one"), sha("two")))
    assert store.segments.of(sha("b")) == [sha("one")]
    assert store.segments.of(sha("c")) == []
    assert store.segments.segment(sha("one")) == "one"
    assert store.segments.segment(sha("three")) is None


def test_compiler_output_of_any_kind_can_be_stored(store: Store, samples: Samples) -> None:
    noise = b"\xff\xfe\0 oops \xf0\x9f".decode("utf-8", "surrogateescape")
    store.trials.record([samples.measurement("a", status=Status.crashed, detail=noise)])
    (row,) = store.trials.trials(sha("segment"), samples.device.class_key)
    assert row.measurement.detail == "??\ufffd oops ??"


def test_devices(store: Store, samples: Samples) -> None:
    store.devices.put(samples.device)
    (first,) = store.devices.devices()
    assert (first.class_key, first.device) == (samples.device.class_key, samples.device)
    store.devices.put(samples.device.model_copy(update={"ceilings": samples.ceilings}))
    store.devices.put(samples.device.model_copy(update={"driver": "2"}))
    other = samples.device.model_copy(update={"units": 64})
    store.devices.put(other)
    last, updated = store.devices.devices()
    assert last.device == other
    assert updated.device == samples.device.model_copy(update={"driver": "2", "ceilings": samples.ceilings})
    assert updated.first_seen == first.first_seen
    assert updated.last_seen > first.last_seen
