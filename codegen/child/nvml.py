"""Clocks, temperature, power and what holds clocks down on a CUDA device, from the driver's management library, which
comes with the driver and is never needed: without it nothing is known."""

import ctypes
import time
from collections.abc import Callable
from types import TracebackType

from fusion_ir.records import Moment, Surroundings

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK, _DIE = 1, 2, 0
_TEXT_BYTES = 80
# nvmlClocksEventReasons; what is not listed is shown as a number.
REASONS = {
    1 << 0: "idle",
    1 << 1: "application clocks",
    1 << 2: "power cap",
    1 << 3: "hardware slowdown",
    1 << 4: "sync boost",
    1 << 5: "software thermal",
    1 << 6: "hardware thermal",
    1 << 7: "power brake",
    1 << 8: "display clocks",
}


class Nvml:
    """One device by its PCI address, as CuPy gives it. Every fact is None where library, device or fact is missing."""

    def __init__(self, pci_bus_id: str, library: str = LIBRARY) -> None:
        self._library: ctypes.CDLL | None = None
        self._device = ctypes.c_void_p()
        try:
            loaded = ctypes.CDLL(library)
            if loaded.nvmlInit_v2() == 0:
                found = loaded.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(self._device))
                self._library = loaded if found == 0 else None
        except (OSError, AttributeError):  # no driver, or one without these functions
            self._library = None

    def driver(self) -> str:
        """Version of the driver, "" if unknown."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        answered = self._ask("nvmlSystemGetDriverVersion", text, ctypes.c_uint(_TEXT_BYTES), on_device=False)
        return text.value.decode("ascii", "replace") if answered else ""

    def power_limit_w(self) -> float | None:
        """The cap in force."""
        return _scaled(self._number("nvmlDeviceGetEnforcedPowerLimit"), 1e-3)

    def look(self) -> Moment:
        """The device at this moment."""
        clock = self._number("nvmlDeviceGetClockInfo", ctypes.c_int(_SM_CLOCK))
        return Moment(
            clock_mhz=None if clock is None else (float(clock),),
            memory_clock_mhz=_scaled(self._number("nvmlDeviceGetClockInfo", ctypes.c_int(_MEMORY_CLOCK))),
            temperature_c=_scaled(self._number("nvmlDeviceGetTemperature", ctypes.c_int(_DIE))),
            power_w=_scaled(self._number("nvmlDeviceGetPowerUsage"), 1e-3),
            throttled=self._throttled(),
        )

    def _throttled(self) -> tuple[str, ...] | None:
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)
        if bits is None:
            return None
        single = [1 << i for i in range(64) if bits >> i & 1]
        return tuple(REASONS.get(bit, f"{bit:#x}") for bit in single)

    def _number(
        self, name: str, *arguments: ctypes.c_int, kind: type[ctypes.c_uint | ctypes.c_ulonglong] = ctypes.c_uint
    ) -> int | None:
        value = kind()
        return value.value if self._ask(name, *arguments, ctypes.byref(value)) else None

    def _ask(self, name: str, *arguments: object, on_device: bool = True) -> bool:
        """Whether the library has the function and it succeeded."""
        function: Callable[..., int] | None = getattr(self._library, name, None)
        return function is not None and function(*((self._device,) if on_device else ()), *arguments) == 0


class CudaWatch:
    """A context manager around a race on one device; `seen` once it was left."""

    def __init__(self, pci_bus_id: str, library: str = LIBRARY) -> None:
        self.seen: Surroundings | None = None
        self._device = Nvml(pci_bus_id, library)
        self._before: tuple[Moment, float] | None = None

    def __enter__(self) -> "CudaWatch":
        self._before = self._device.look(), time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        start, started = self._before
        seconds = round(time.monotonic() - started, 6)
        self.seen = Surroundings(
            start=start,
            end=self._device.look(),
            seconds=seconds,
            system=self._device.driver(),
            power_limit_w=self._device.power_limit_w(),
        )


def _scaled(value: int | None, unit: float = 1.0) -> float | None:
    return None if value is None else round(value * unit, 3)
