"""The device classes seen so far."""

import time
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, select

from fusion_ir.records import Device
from tuning_db.checks import digest, miss
from tuning_db.engine import Database
from tuning_db.models import DeviceRow


@dataclass(frozen=True, slots=True)
class StoredDevice:
    """A device as last reported, ceilings included; times in seconds since 1970."""

    class_key: str
    device: Device
    first_seen: float
    last_seen: float


_ALL = select(
    DeviceRow.class_key, DeviceRow.record, DeviceRow.checksum, DeviceRow.first_seen, DeviceRow.last_seen
).order_by(DeviceRow.last_seen.desc(), DeviceRow.class_key)


def put_device(database: Database, connection: Connection, device: Device) -> None:
    """Stores a device as seen now. One that comes without ceilings keeps those stored."""
    key = device.class_key
    if device.ceilings is None:
        known = connection.execute(_ALL.where(DeviceRow.class_key == key)).first()
        stored = None if known is None else _read(known.class_key, known.record, known.checksum)
        if stored is not None:
            device = device.model_copy(update={"ceilings": stored.ceilings})
    record, now = device.model_dump_json(), time.time()
    values: dict[str, Any] = {"class_key": key, "target": device.target, "name": device.name, "record": record}
    values |= {"checksum": digest(key + record), "last_seen": now}
    insert = database.insert(DeviceRow).values(**values, first_seen=now)
    connection.execute(insert.on_conflict_do_update(index_elements=["class_key"], set_=values))


class Devices:
    """Devices that something was planned for, by their class."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, device: Device) -> None:
        """Stores a device as seen now."""
        with self._database.write() as connection:
            put_device(self._database, connection, device)

    def devices(self) -> list[StoredDevice]:
        """All classes, the last seen first. Rows that do not verify are left out."""
        found: list[StoredDevice] = []
        for key, record, check, first_seen, last_seen in self._database.cached("devices", "all", _ALL):
            device = _read(key, record, check)
            if device is not None:
                found.append(StoredDevice(key, device, first_seen, last_seen))
        return found


def _read(key: str, record: str, check: str) -> Device | None:
    if digest(f"{key}{record}") != check:
        miss("devices", key, "checksum")
        return None
    try:
        return Device.model_validate_json(record)
    except ValidationError as error:  # written by another version
        miss("devices", key, f"{error.error_count()} fields are not as this version expects")
        return None
