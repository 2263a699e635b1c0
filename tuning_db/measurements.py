"""Every candidate ever tried, one row each."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Select, String, bindparam, insert, or_, select

from fusion_ir.records import Measurement, Record
from tuning_db.checks import checksum, miss, storable
from tuning_db.engine import Database
from tuning_db.models import MeasurementRow
from tuning_db.requests import Conditions

# The columns that the checksum covers, in its order, after segment and device. Those that later revisions of the tables
# added come by name, and only where they hold something: rows of before have none, in their checksums neither.
_COLUMNS = (
    "family", "schedule", "status", "samples_us", "max_rel_error", "detail", "compile_seconds", "binary", "version",
    "race",
)  # fmt: skip
_LATER = ("warm_us", "input_sets", "report", "surroundings", "toolchain", "driver", "origin")
_RECORDS = ("report", "surroundings")  # JSON, "" for none
_TABLE = MeasurementRow.__table__
_DEVICE = bindparam("device", type_=String)
_KNOWN: Select[Any] = (
    select(*(_TABLE.c[name] for name in ("id", "checksum", "created", "device_key", *_COLUMNS, *_LATER)))
    .where(_TABLE.c.segment_key == bindparam("segment"), or_(_DEVICE.is_(None), _TABLE.c.device_key == _DEVICE))
    .order_by(_TABLE.c.id)
)


@dataclass(frozen=True, slots=True)
class Trial:
    """A measurement as it was stored: by which version of Fuseplan, and when (seconds since 1970)."""

    measurement: Measurement
    version: str
    created: float

    @property
    def conditions(self) -> Conditions:
        """The conditions that its times depend on beside the kernel, to be compared with the present ones."""
        return Conditions(self.measurement.driver, self.measurement.toolchain, self.version)


class Trials:
    """Tries of candidates for segments."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, measurements: Sequence[Measurement], version: str = "") -> None:
        """Adds a row per candidate tried, all or none. version: of Fuseplan, for reproduction."""
        now = time.time()
        rows = [_row(m, version) | {"created": now} for m in measurements]
        if rows:
            with self._database.write() as connection:
                connection.execute(insert(MeasurementRow), rows)

    def trials(self, segment_key: str, device_key: str | None = None) -> list[Trial]:
        """Every try of every candidate of a segment, failed ones included, in order; on all devices, or on one. Rows
        that do not verify are left out."""
        found: list[Trial] = []
        for row in self._database.cached(
            "measurements", segment_key, _KNOWN, {"segment": segment_key, "device": device_key}
        ):
            device, created = str(row.device_key), row.created
            values: dict[str, Any] = {name: getattr(row, name) for name in (*_COLUMNS, *_LATER)}
            if checksum(segment_key, device, *_checked(values)) != row.checksum or not isinstance(created, float):
                miss("measurements", str(row.id), "checksum")
                continue
            version = values.pop("version")
            values |= {"segment_key": segment_key, "device_key": device, "samples_us": json.loads(values["samples_us"])}
            values |= {name: json.loads(values[name]) if values[name] else None for name in _RECORDS}
            try:
                found.append(Trial(Measurement.model_validate(values), version, created))
            except ValidationError as error:  # a status that another version wrote
                miss("measurements", str(row.id), f"{error.error_count()} fields are not as this version expects")
        return found

    def add(self, found: Sequence[Trial]) -> int:
        """Adds trials of another database, with their own version and time, in one transaction; marks them as imported.
        Trials that are here already, measured or imported, are left out. Returns how many were added."""
        rows: list[dict[str, Any]] = []
        with self._database.write() as connection:
            self._database.serialize(connection, "fuseplan import")
            here = {_identity(t) for key in {t.measurement.segment_key for t in found} for t in self.trials(key)}
            for trial in found:
                if _identity(trial) not in here:
                    here.add(_identity(trial))
                    imported = trial.measurement.model_copy(update={"origin": "imported"})
                    rows.append(_row(imported, trial.version) | {"created": trial.created})
            if rows:
                connection.execute(insert(MeasurementRow), rows)
        return len(rows)


def _identity(trial: Trial) -> tuple[str, float]:
    """Checksum and time of a trial: equal for one measurement, whether it was made here or imported."""
    return _row(trial.measurement.model_copy(update={"origin": ""}), trial.version)["checksum"], trial.created


def _checked(values: Mapping[str, Any]) -> list[Any]:
    """The values that the checksum covers, in its order, after segment and device."""
    first = [values[name] for name in _COLUMNS if name != "race" or values["race"]]
    return [*first, *((name, values[name]) for name in _LATER if values[name] not in (None, ""))]


def _json(record: Record | None) -> str:
    """A record as JSON, without fields that are None; "" for no record."""
    return "" if record is None else storable(record.model_dump_json(exclude_none=True))


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
        "race": m.race,
        "warm_us": m.warm_us,
        "input_sets": m.input_sets,
        "report": _json(m.report),
        "surroundings": _json(m.surroundings),
        "toolchain": storable(m.toolchain),
        "driver": m.driver,
        "origin": m.origin,
    }
    check = checksum(m.segment_key, m.device_key, *_checked(values))
    keys = {"segment_key": m.segment_key, "device_key": m.device_key, "median_us": m.time_us, "checksum": check}
    return keys | values
