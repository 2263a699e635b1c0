"""Facts about a CUDA device that decide which code runs on it, by the driver alone."""

import ctypes
import importlib
from dataclasses import dataclass
from typing import Any

DRIVER = "libcuda.so.1"
NAME_BYTES = 256
MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76  # CUdevice_attribute
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
# Architectures whose plans use what is theirs alone.
SUFFIXED = {90: "a", 100: "a", 103: "a"}


class NoDevice(RuntimeError):
    """There is no such device here, or its driver cannot be used."""


@dataclass(frozen=True)
class CudaFacts:
    """A device by its name, its architecture ("sm_90a"), its number of multiprocessors, and the libraries that plans
    may call there."""

    name: str
    arch: str
    multiprocessors: int
    libraries: tuple[str, ...]


def cuda_facts(number: int) -> CudaFacts:
    """The facts of the device with this number among those that the driver shows. Raises NoDevice."""
    try:
        driver: Any = ctypes.CDLL(DRIVER)
    except OSError as e:
        raise NoDevice(f"no CUDA device: {e}; is NVIDIA's driver installed, and passed on to this container?") from e
    count, device, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(NAME_BYTES)
    _call(driver, "cuInit", ctypes.c_uint(0))
    _call(driver, "cuDeviceGetCount", ctypes.byref(count))
    if number >= count.value:
        raise NoDevice(f"no CUDA device: cuda:{number} is not there, the driver shows {count.value}")
    _call(driver, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
    _call(driver, "cuDeviceGetName", name, ctypes.c_int(NAME_BYTES), device)
    capability = 10 * _attribute(driver, MAJOR, device) + _attribute(driver, MINOR, device)
    return CudaFacts(
        name.value.decode(),
        f"sm_{capability}{SUFFIXED.get(capability, '')}",
        _attribute(driver, MULTIPROCESSORS, device),
        called_libraries(),
    )


def called_libraries() -> tuple[str, ...]:
    """Libraries that plans may call, of those that can be loaded here: a service's devices are told apart by these."""
    try:
        importlib.import_module("nvmath.bindings.cublasLt").get_version()
    except Exception:  # whatever a broken installation raises: plans do without the library
        return ()
    return ("cublaslt",)


def _attribute(driver: Any, attribute: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    _call(driver, "cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), device)
    return value.value


def _call(driver: Any, function: str, *arguments: Any) -> None:
    """Raises NoDevice where the driver lacks a function, or it fails."""
    try:
        status = int(getattr(driver, function)(*arguments))
    except AttributeError as e:
        raise NoDevice(f"no CUDA device: {DRIVER} has no {function}") from e
    if status:
        why = "it shows no device; see nvidia-smi, and CUDA_VISIBLE_DEVICES" if status == NO_DEVICE else ""
        raise NoDevice(f"no CUDA device: {function} of the driver gave error {status}{'; ' * bool(why)}{why}")
