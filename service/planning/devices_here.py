"""Which classes of devices this machine has, asked of it when somebody wants one."""

import logging
import time
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from codegen.devices.detection import DeviceError, detect
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import CompilerMissing
from fusion_ir.records import Device
from service.jobs import PlanJob

log = logging.getLogger("fuseplan.worker")

AGAIN_SECONDS = 60.0  # until a machine is asked again for a device that it did not have
MOST_GPUS = 64


class DeviceChanged(DeviceError):
    """A device of this machine is not what it was when it was looked at before."""


class DevicesHere:
    """Targets of this machine by class key, and the classes that it was found not to have."""

    def __init__(self, cache: ObjectCache, detector: Callable[..., Device] = detect) -> None:
        self._cache, self._detect = cache, detector
        self._targets: dict[str, str] = {}
        self._absent: dict[str, float] = {}  # when that was found

    @property
    def classes(self) -> list[str]:
        """Class keys of devices that are here."""
        return list(self._targets)

    @property
    def known(self) -> list[str]:
        """Class keys of devices that are here, and of those found absent within AGAIN_SECONDS."""
        now = time.monotonic()
        return [*self._targets, *(key for key, at in self._absent.items() if now - at < AGAIN_SECONDS)]

    def device(self, class_key: str | None, target: str) -> Device:
        """The device of the class, with ceilings; where it is not what it was, it is forgotten. target: the device of
        work for any class (None). Raises DeviceChanged, DeviceError, CompilerMissing."""
        if class_key is None:
            return self._detect(target, self._cache)
        target = self._targets[class_key]
        found = self._detect(target, self._cache)
        if found.class_key != class_key:
            del self._targets[class_key]
            raise DeviceChanged(f"{target} is another device by now: {found.class_key}")
        return found

    def look(self, wanted: Mapping[str, str]) -> bool:
        """Whether one of these classes is here, each with the payload of an operation that is for it."""
        return sum(self._look(class_key, payload) for class_key, payload in wanted.items()) > 0

    def _look(self, class_key: str, payload: str) -> bool:
        try:
            target = PlanJob.model_validate_json(payload).target
        except ValidationError as error:
            log.error("an operation for a device %s has a payload that cannot be read: %s", class_key, error)
            self._absent[class_key] = time.monotonic()
            return False
        reasons: list[str] = []
        for candidate in _candidates(target):
            try:
                found = self._detect(candidate, self._cache, ceilings=False)
            except (DeviceError, CompilerMissing) as error:
                reasons.append(str(error))
                break
            if found.class_key == class_key:
                self._targets[class_key] = candidate
                self._absent.pop(class_key, None)
                return True
            reasons.append(f"{candidate} is {found.name} ({found.class_key})")
        if class_key not in self._absent:
            why = "; ".join(reasons)
            log.warning("operations wait for a device %s (%s) that is not here: %s", class_key, target, why)
        self._absent[class_key] = time.monotonic()
        return False


def _candidates(target: str) -> list[str]:
    """Names that a device may have here which somebody else calls `target`: other hosts number their GPUs otherwise."""
    return [f"cuda:{n}" for n in range(MOST_GPUS)] if target.partition(":")[0] == "cuda" else [target]
