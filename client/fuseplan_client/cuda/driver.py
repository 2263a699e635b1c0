"""The functions of CUDA's driver that plans are loaded and launched with."""

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

LIBRARY = "libcuda.so.1"
STATIC_SHARED_BYTES = 48 << 10  # beyond, a kernel has to be allowed more
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CUfunction_attribute
MAJOR, MINOR = 75, 76  # CUdevice_attribute


OUT_OF_MEMORY = 2  # CUresult
OF_CAPTURES = range(900, 909)  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to CUDA_ERROR_CAPTURED_EVENT
RELAXED = 2  # CUstreamCaptureMode


class DriverError(RuntimeError):
    """A function of the driver failed; says which, and how."""


class PassingError(DriverError):
    """There was no memory, or a stream's capture is broken: another call may do."""


@lru_cache(maxsize=1)
def driver() -> Any:
    """The driver's library, which is there wherever a device is. Raises OSError."""
    return ctypes.CDLL(LIBRARY)


def call(function: str, *arguments: Any) -> None:
    """Calls a function of the driver. Raises DriverError, OSError."""
    check(int(getattr(driver(), function)(*arguments)), function)


def check(status: int, function: str) -> None:
    """Raises DriverError unless a function of this name answered 0."""
    if status:
        text = ctypes.c_char_p()
        driver().cuGetErrorName(ctypes.c_int(status), ctypes.byref(text))
        kind = PassingError if status == OUT_OF_MEMORY or status in OF_CAPTURES else DriverError
        raise kind(f"{function} of the driver gave {(text.value or b'error').decode()} ({status})")


def capability(device: int) -> str:
    """The compute capability of the device with this number, "90". Raises DriverError, OSError."""
    return "".join(str(_attribute(which, _device(device))) for which in (MAJOR, MINOR))


@lru_cache(maxsize=64)
def primary_context(device: int) -> int:
    """The context of a device that all of a process's CUDA libraries share, retained for good. Raises DriverError,
    OSError."""
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), _device(device))
    return int(context.value or 0)


@contextmanager
def in_context(context: int) -> Generator[None]:
    """Within it, the context is this thread's. Raises DriverError."""
    call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
    try:
        yield
    finally:
        call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


@contextmanager
def beside_captures() -> Generator[None]:
    """Within it, this thread may load code and allocate while other threads capture streams, as is forbidden by
    default: `cudaStreamCaptureModeGlobal`. Raises DriverError."""
    mode = ctypes.c_int(RELAXED)
    call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def load_module(data: bytes) -> int:
    """A module from its binary, in the current context, for good. Raises DriverError."""
    module = ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(data))
    return int(module.value or 0)


def function_of(module: int, entry: str, shared_bytes: int) -> int:
    """A kernel of a module, allowed to have so much shared memory. Raises DriverError."""
    function = ctypes.c_void_p()
    call("cuModuleGetFunction", ctypes.byref(function), ctypes.c_void_p(module), entry.encode())
    if shared_bytes > STATIC_SHARED_BYTES:
        which = ctypes.c_int(MAX_DYNAMIC_SHARED_SIZE_BYTES)
        call("cuFuncSetAttribute", function, which, ctypes.c_int(shared_bytes))
    return int(function.value or 0)


def _device(number: int) -> ctypes.c_int:
    device = ctypes.c_int()
    call("cuInit", ctypes.c_uint(0))
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
    return device


def _attribute(which: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(which), device)
    return value.value
