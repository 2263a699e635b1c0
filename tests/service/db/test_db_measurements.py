"""Measurements, the segments that they are of, and devices."""

import json
import time

from sqlalchemy import text

from fusion_ir.records import Status
from tests.service.db.samples import Samples, sha
from tuning_db import Store
from tuning_db.checks import checksum
from tuning_db.engine import Database


def test_measurements_come_back_as_they_went_in(store: Store, samples: Samples) -> None:
    rows = [
        samples.measurement("a", 0.1 + 0.2, 1e-300, 3.0),
        samples.measurement(
            "b", status=Status.compile_failed, detail="error: \u20ac 'x'\n", max_rel_error=None, binary=""
        ),
        samples.measurement("c", status=Status.wrong_result, max_rel_error=1e300, race="0123"),
    ]
    store.record(rows, "0.1.0")
    assert [t.measurement for t in store.trials(sha("segment"), samples.device.class_key)] == rows
    assert store.trials(sha("segment"), "cpu-other") == []
    assert store.trials(sha("other"), samples.device.class_key) == []
    store.record([])


def test_every_try_is_kept(store: Store, samples: Samples) -> None:
    first, again = samples.measurement("a", 1.0), samples.measurement("a", 3.0)
    elsewhere = samples.measurement("a", 2.0, device_key="cpu-other")
    before = time.time()
    store.record([first, elsewhere], "0.1.0")
    store.record([again], "0.2.0")
    trials = store.trials(sha("segment"))
    assert [(t.measurement, t.version) for t in trials] == [(first, "0.1.0"), (elsewhere, "0.1.0"), (again, "0.2.0")]
    assert all(before <= t.created <= time.time() for t in trials)
    assert [t.measurement for t in store.trials(sha("segment"), samples.device.class_key)] == [first, again]


def test_rows_of_before_there_were_races(url: str, samples: Samples) -> None:
    """Their checksums know of none."""
    row = samples.measurement("a", 1.0)
    with Store(url) as store:
        store.record([row])
    database = Database(url)
    values = ("a", "ok", json.dumps(row.samples_us), row.max_rel_error, row.detail, row.compile_seconds, row.binary, "")
    old = checksum(row.segment_key, row.device_key, row.family, row.schedule, *values[1:])
    with database.write() as connection:
        connection.execute(text("UPDATE measurements SET checksum = :old"), {"old": old})
    database.close()
    with Store(url) as store:
        assert [t.measurement for t in store.trials(sha("segment"))] == [row]


def test_segments_of_graphs(store: Store) -> None:
    for graph, segment in (("a", "one"), ("b", "one"), ("a", "two"), ("a", "one")):
        store.put_segment(sha(graph), segment)
    assert store.segments_of(sha("a")) == sorted((sha("one"), sha("two")))
    assert store.segments_of(sha("b")) == [sha("one")]
    assert store.segments_of(sha("c")) == []
    assert store.segment(sha("one")) == "one"
    assert store.segment(sha("three")) is None


def test_compiler_output_of_any_kind_can_be_stored(store: Store, samples: Samples) -> None:
    noise = b"\xff\xfe\0 oops \xf0\x9f".decode("utf-8", "surrogateescape")
    store.record([samples.measurement("a", status=Status.crashed, detail=noise)])
    (row,) = store.trials(sha("segment"), samples.device.class_key)
    assert row.measurement.detail == "??\ufffd oops ??"


def test_devices(store: Store, samples: Samples) -> None:
    store.put_device(samples.device)
    (first,) = store.devices()
    assert (first.class_key, first.device) == (samples.device.class_key, samples.device)
    store.put_device(samples.device.model_copy(update={"ceilings": samples.ceilings}))
    store.put_device(samples.device.model_copy(update={"driver": "2"}))
    other = samples.device.model_copy(update={"units": 64})
    store.put_device(other)
    last, updated = store.devices()
    assert last.device == other
    assert updated.device == samples.device.model_copy(update={"driver": "2", "ceilings": samples.ceilings})
    assert updated.first_seen == first.first_seen
    assert updated.last_seen > first.last_seen
