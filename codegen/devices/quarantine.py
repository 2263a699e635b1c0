"""Devices that failed their probe: out of service for every process that uses the same cache folder, until a person
has looked at them and releases them. Nothing here resets a device.

One file per class of devices, since a plan is made for a class; who writes it last gives the reason.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from codegen.sandbox.object_cache import CacheError, ObjectCache
from fusion_ir.records import Device

SUFFIX = ".quarantine"


class Quarantine(BaseModel):
    """Why a device is out of service, since when (seconds since 1970), and which process found out."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    device_key: str
    name: str
    reason: str
    since: float
    pid: int


class DeviceQuarantined(Exception):
    """The device is out of service; the message says why, since when, and how to release it."""

    def __init__(self, fact: Quarantine) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(fact.since))
        super().__init__(
            f"{fact.name} is out of service since {since}: {fact.reason}; "
            f"when it is sound again: fuseplan devices --release {fact.device_key}"
        )
        self.fact = fact


@dataclass(frozen=True, slots=True)
class Quarantines:
    """The devices out of service, in the folder of an object cache."""

    cache: ObjectCache

    def add(self, device: Device, reason: str) -> Quarantine:
        """Takes a device out of service. Raises CacheError."""
        fact = Quarantine(
            device_key=device.class_key, name=device.name, reason=reason, since=time.time(), pid=os.getpid()
        )
        self.cache.write(self._file(device.class_key), fact.model_dump_json().encode())
        return fact

    def find(self, device_key: str) -> Quarantine | None:
        """Why the device is out of service, None if it is not."""
        return _read(self._file(device_key))

    def all(self) -> list[Quarantine]:
        """Every device out of service, by key."""
        files = sorted(self.cache.devices.glob(f"*{SUFFIX}"))
        return [fact for fact in map(_read, files) if fact is not None]

    def release(self, device_key: str) -> bool:
        """Puts a device into service again; False if it was. Raises CacheError."""
        try:
            self._file(device_key).unlink()
        except FileNotFoundError:
            return False
        except OSError as e:
            raise CacheError(f"{self._file(device_key)} cannot be removed: {e.strerror}") from e
        return True

    def _file(self, device_key: str) -> Path:
        return self.cache.devices / f"{device_key}{SUFFIX}"


def _read(file: Path) -> Quarantine | None:
    """A fact that cannot be read still holds: only a person takes it away."""
    try:
        return Quarantine.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        key = file.name.removesuffix(SUFFIX)
        return Quarantine(device_key=key, name=key, reason=f"{file} cannot be read", since=0.0, pid=0)
