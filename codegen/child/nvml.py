"""State of a CUDA device from NVML, the driver's management library: clocks, reasons that hold them down, temperature,
power, processes. The library comes with the driver and is never needed: without it nothing is known."""

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from codegen.hardware.machine import ROOT, usable_cpus
from codegen.timing.disturbance import Disturbance, RunQueue, Steal
from codegen.timing.surroundings import CpuWatch
from fusion_ir.records import Moment, Surroundings

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK, _DIE = 1, 2, 0
_TEXT_BYTES = 80
_OK, _MORE = 0, 7  # NVML_SUCCESS; NVML_ERROR_INSUFFICIENT_SIZE, to who has no room: there are so many
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
        """The power cap in force, in watts."""
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
            processes=self._processes(),
        )

    def _processes(self) -> int | None:
        """Number of processes that compute on the device, this one among them."""
        count = ctypes.c_uint(0)
        found = self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._device, ctypes.byref(count), None)
        return count.value if found in (_OK, _MORE) else None

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
        return self._call(name, *((self._device,) if on_device else ()), *arguments) == _OK

    def _call(self, name: str, *arguments: object) -> int | None:
        """Status that the library's function `name` returns; None where the library has no such function."""
        function: Callable[..., int] | None = getattr(self._library, name, None)
        return None if function is None else function(*arguments)


class CudaWatch:
    """A context manager around a race on one device; `seen` holds the surroundings after exit. root: of the system's
    files.

    disturbance: takes samples and notices other processes and machines that disturb them. A queued kernel runs whoever
    has the CPUs, but where the thread that queues it comes late, the device waits, and the wait is timed, too. That
    thread may be on any usable CPU, so of the time that a hypervisor takes from them it loses its share (1 / CPUs).
    """

    def __init__(self, pci_bus_id: str, library: str = LIBRARY, root: Path = ROOT) -> None:
        self.seen: Surroundings | None = None
        self._device = Nvml(pci_bus_id, library)
        cpus = usable_cpus(root)
        self._host = CpuWatch(cpus, root)
        self.disturbance = Disturbance(RunQueue(root, own=True), Steal(cpus, root, share=1 / len(cpus)))
        self._before: tuple[Moment, float] | None = None

    def __enter__(self) -> "CudaWatch":
        self._before = self._device.look(), time.monotonic()
        self._host.__enter__()
        self.disturbance.reset()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        self._host.__exit__(kind, error, trace)
        start, started = self._before
        seconds, host = round(time.monotonic() - started, 6), self._host.seen
        self.seen = Surroundings(
            start=start,
            end=self._device.look(),
            seconds=seconds,
            system=self._device.driver(),
            power_limit_w=self._device.power_limit_w(),
            steal_ms=host and host.steal_ms,
            others_ms=host and host.others_ms,
            waited_ms=_scaled(self.disturbance.waited_ms),
            repeated=self.disturbance.repeats,
            disturbed=_scaled(self.disturbance.share),
            quota_ms=host and host.quota_ms,
            switches=host and host.switches,
        )


def _scaled(value: float | None, unit: float = 1.0) -> float | None:
    return None if value is None else round(value * unit, 3)
