"""Measurements and devices."""

from fusion_ir.records import Status
from tests.service.db.samples import Samples, sha
from tuning_db import Store


def test_measurements_come_back_as_they_went_in(store: Store, samples: Samples) -> None:
    rows = [
        samples.measurement("a", 0.1 + 0.2, 1e-300, 3.0),
        samples.measurement(
            "b", status=Status.compile_failed, detail="error: \u20ac 'x'\n", max_rel_error=None, binary=""
        ),
        samples.measurement("c", status=Status.wrong_result, max_rel_error=1e300),
    ]
    store.record(rows, "0.1.0")
    assert store.measurements(sha("segment"), samples.device.class_key) == rows
    assert store.measurements(sha("segment"), "cpu-other") == []
    assert store.measurements(sha("other"), samples.device.class_key) == []
    store.record([])


def test_the_last_try_of_a_candidate_counts(store: Store, samples: Samples) -> None:
    first, other, again = samples.measurement("a", 1.0), samples.measurement("b", 2.0), samples.measurement("a", 3.0)
    store.record([first, other], "0.1.0")
    store.record([again], "0.2.0")
    assert store.measurements(sha("segment"), samples.device.class_key) == [other, again]
    assert store.measurements(sha("segment"), samples.device.class_key, "0.1.0") == [first, other]
    assert store.measurements(sha("segment"), samples.device.class_key, "0.3.0") == []


def test_compiler_output_of_any_kind_can_be_stored(store: Store, samples: Samples) -> None:
    noise = b"\xff\xfe\0 oops \xf0\x9f".decode("utf-8", "surrogateescape")
    store.record([samples.measurement("a", status=Status.crashed, detail=noise)])
    (row,) = store.measurements(sha("segment"), samples.device.class_key)
    assert row.detail == "??\ufffd oops ??"


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
