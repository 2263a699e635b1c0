"""The timing child of a device: one at a time works on the machine, and after one that ended badly a probe runs."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from codegen.devices.quarantine import DeviceQuarantined, Quarantines
from codegen.sandbox.device_lock import device_turn
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.slot import Slot, SlotError, SlotFailure
from codegen.workbench import probe
from fusion_ir.records import Device, Status

PROBES = 3  # a device is out of service when so many fail in a row: one may meet a bad moment of the machine


class TimingChild:
    """Calls of the timing child `slot`, each while no other process on the machine times on the device.

    probe_job: the job that a fresh child gets before the next one where the last child was killed or died. A device
    that fails it is quarantined, and every call from then on, in any process, raises DeviceQuarantined.
    waited_seconds: time that all calls waited for their turns.
    """

    def __init__(self, device: Device, cache: ObjectCache, slot: Slot) -> None:
        self.device, self.slot = device, slot
        self.probe_job: Mapping[str, Any] | None = None
        self.cache = cache
        self._quarantines = Quarantines(cache)
        self._in_doubt = False
        self.waited_seconds = 0.0

    def admit(self) -> None:
        """Raises DeviceQuarantined where the device is out of service."""
        fact = self._quarantines.find(self.device.class_key)
        if fact is not None:
            raise DeviceQuarantined(fact)

    def call(
        self,
        message: Mapping[str, Any],
        *,
        seconds: float,
        total_seconds: float | None = None,
        on_event: Callable[[dict[str, Any]], None] = lambda event: None,
        beside_others: bool = False,
    ) -> dict[str, Any]:
        """`Slot.call`, made when this process has its turn on the device; time limits begin then. beside_others: the
        job leaves the device alone, or takes turns itself (`turn`), and waits for nobody here. Raises
        DeviceQuarantined, and the errors of `Slot.call`."""

        def called() -> dict[str, Any]:
            try:
                return self.slot.call(message, seconds=seconds, total_seconds=total_seconds, on_event=on_event)
            except SlotError:
                raise
            except BaseException:  # the child was killed, by an interrupt perhaps
                self._in_doubt = True
                raise

        if beside_others and not (self._in_doubt or self.slot.is_dead):
            self.admit()
            return called()
        asked = time.monotonic()
        with device_turn(self.cache, self.device.class_key):
            self.waited_seconds += time.monotonic() - asked
            self.admit()
            if self._in_doubt or self.slot.is_dead:
                self._prove()
            if not beside_others:
                return called()
        return called()

    @property
    def turn(self) -> tuple[str, str]:
        """The arguments of `turn_in`, folder and name, for a child that takes turns itself."""
        return str(self.cache.devices), self.device.class_key

    def close(self) -> None:
        """Ends the child."""
        self.slot.close()

    def _prove(self) -> None:
        """Lets a fresh child run the probe. Raises DeviceQuarantined where that fails."""
        if self.probe_job is None:
            return  # nothing ran yet but questions about the machine
        self._in_doubt = True
        problem = ""
        for _ in range(PROBES):
            problem = self._probe(self.probe_job)
            if not problem:
                self._in_doubt = False
                return
        reason = f"a kernel known to be right failed {PROBES} times, in the end so: {problem}"
        raise DeviceQuarantined(self._quarantines.add(self.device, reason))

    def _probe(self, job: Mapping[str, Any]) -> str:
        """Runs the probe once; its failure as a message, "" for none."""
        problems: list[str] = []

        def checked(event: dict[str, Any]) -> None:
            if "checked" in event and event["status"] != Status.ok.value:
                problems.append(f"{event['status']}: {event['detail']}")

        try:
            self.slot.call(job, seconds=probe.SECONDS, total_seconds=probe.SECONDS, on_event=checked)
        except SlotFailure as e:
            return str(e)
        return "; ".join(problems)
