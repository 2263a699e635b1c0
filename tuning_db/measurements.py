"""Every candidate ever tried, one row each."""

import json
import time
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Select, bindparam, insert, select

from fusion_ir.records import Measurement
from tuning_db.checks import checksum, miss, storable
from tuning_db.engine import Database
from tuning_db.models import MeasurementRow

# The columns that the checksum covers, in its order, after segment and device.
_COLUMNS = (
    "family", "schedule", "status", "samples_us", "max_rel_error", "detail", "compile_seconds", "binary", "version",
)  # fmt: skip
_KNOWN: Select[Any] = (
    select(MeasurementRow.id, MeasurementRow.checksum, *(MeasurementRow.__table__.c[name] for name in _COLUMNS))
    .where(MeasurementRow.segment_key == bindparam("segment"), MeasurementRow.device_key == bindparam("device"))
    .order_by(MeasurementRow.id)
)


def record(database: Database, measurements: Sequence[Measurement], version: str) -> None:
    """Adds rows, in one transaction. `version`: of Fuseplan, for reproduction."""
    now = time.time()
    rows = [_row(m, version) | {"created": now} for m in measurements]
    if rows:
        with database.write() as connection:
            connection.execute(insert(MeasurementRow), rows)


def measurements(database: Database, segment_key: str, device_key: str, version: str | None) -> list[Measurement]:
    """The last try of every candidate (family and schedule) of a segment, in the order of those tries.

    With `version`, only tries made by that version count. Rows that do not verify are left out.
    """
    last: dict[tuple[str, str], Measurement] = {}
    keys = {"segment": segment_key, "device": device_key}
    for row in database.cached("measurements", segment_key, _KNOWN, keys):
        values: dict[str, Any] = dict(zip(_COLUMNS, row[2:], strict=True))
        if checksum(segment_key, device_key, *values.values()) != row.checksum:
            miss("measurements", str(row.id), "checksum")
            continue
        made_by = values.pop("version")
        if version is not None and made_by != version:
            continue
        values |= {"segment_key": segment_key, "device_key": device_key, "samples_us": json.loads(values["samples_us"])}
        try:
            measurement = Measurement.model_validate(values)
        except ValidationError as error:  # a status that another version wrote
            miss("measurements", str(row.id), f"{error.error_count()} fields are not as this version expects")
            continue
        candidate = (measurement.family, measurement.schedule)
        last.pop(candidate, None)
        last[candidate] = measurement
    return list(last.values())


def _row(m: Measurement, version: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        "family": m.family,
        "schedule": m.schedule,
        "status": m.status.value,
        "samples_us": json.dumps(m.samples_us),
        "max_rel_error": m.max_rel_error,
        "detail": storable(m.detail),
        "compile_seconds": m.compile_seconds,
        "binary": m.binary,
        "version": version,
    }
    check = checksum(m.segment_key, m.device_key, *(values[name] for name in _COLUMNS))
    keys = {"segment_key": m.segment_key, "device_key": m.device_key, "median_us": m.time_us, "checksum": check}
    return keys | values
