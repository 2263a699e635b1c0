"""The device of this machine that an imported plan is made for: the one that it was made for, or what stands for it.

A plan for a GPU that was predicted is measured where such a GPU is; a plan for a GPU that is not here is predicted, by
its data sheet.
"""

from collections.abc import Mapping

from codegen.devices.detection import DeviceError, detect
from codegen.hardware.gpus import GPUS, facts
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import CompilerMissing
from fusion_ir.records import Device


class NoDevice(Exception):
    """No device of this machine, and no data sheet, stands for the one that a plan was made for; says what is here."""


class Places:
    """targets: by kind of device, the one that stands for it here, as `codegen.devices.detection.detect` names it."""

    def __init__(self, targets: Mapping[str, str], cache: ObjectCache) -> None:
        self._targets, self._cache = targets, cache
        self._found: dict[str, Device | str] = {}  # by target; the reason where there is none

    def of(self, made_for: Device) -> Device:
        """The device to make a plan for that was made for `made_for`. Raises NoDevice."""
        kind = made_for.target
        here = self._device(f"emulator:{made_for.arch}" if kind == "emulator" else self._targets.get(kind, kind))
        if isinstance(here, Device) and _serves(here, made_for):
            return here
        why = here if isinstance(here, str) else f"here is {here.name} ({here.class_key})"
        sheet = facts(made_for)
        if sheet is not None:
            predicted = self._device(next(name for name, row in GPUS.items() if row is sheet))
            if isinstance(predicted, Device) and made_for.class_key in (predicted.class_key, _detected(made_for)):
                return predicted
            what = (
                f"it cannot be predicted here either: {predicted}"
                if isinstance(predicted, str)
                else f"this version predicts for another {predicted.name} ({predicted.class_key})"
            )
            raise NoDevice(f"{why}; {what}")
        if made_for.origin == "specified":
            raise NoDevice(f"{why}; this version predicts for {', '.join(GPUS)}, and has no data sheet of it")
        raise NoDevice(why)

    def _device(self, target: str) -> Device | str:
        if target not in self._found:
            try:
                self._found[target] = detect(target, self._cache)
            except (DeviceError, CompilerMissing) as error:
                self._found[target] = str(error)
        return self._found[target]


def _serves(here: Device, made_for: Device) -> bool:
    """Whether what was made for a device is made for one that is here: of its class, or the product that it was
    predicted for."""
    if here.class_key == made_for.class_key:
        return True
    sheet = facts(made_for)
    return made_for.origin == "specified" and sheet is not None and sheet is facts(here) and here.arch == made_for.arch


def _detected(device: Device) -> str | None:
    """The class of a device that was there; None of one that is known from its data sheet."""
    return device.class_key if device.origin == "detected" else None
