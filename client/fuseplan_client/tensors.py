"""Tensors of any framework as addresses with shapes: by `__cuda_array_interface__` where that knows the dtype, else by
DLPack.

DLPack knows bf16 and 8-bit floats, which the CUDA array interface does not. No data is copied and no stream is waited
for: streams are the caller's business.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

from fuseplan_client.plan import Tensor

STANDS_IN = {"bf16": "u16", "f8e4m3": "u8", "f8e5m2": "u8"}  # for what CuPy and NumPy lack
CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
# (code, bits): kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLBool 6, kDLFloat8_e4m3fn 10, kDLFloat8_e5m2 12
DLPACK_TYPES = {
    (0, 8): "i8", (0, 16): "i16", (0, 32): "i32", (0, 64): "i64", (1, 8): "u8", (6, 8): "bool",
    (2, 16): "f16", (2, 32): "f32", (2, 64): "f64", (4, 16): "bf16", (10, 8): "f8e4m3", (12, 8): "f8e5m2",
}  # fmt: skip
# u16 is no type of plans: what stands in for bf16 in packages that lack it.
INTERFACE_TYPES = {
    "<f8": "f64", "<f4": "f32", "<f2": "f16", "<i8": "i64", "<i4": "i32", "<i2": "i16", "|i1": "i8", "|u1": "u8",
    "|b1": "bool", "<u2": "u16",
}  # fmt: skip


@dataclass(frozen=True)
class View:
    """A tensor's address and layout. strides: in elements. device: its number, None where the tensor does not say."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: int | None = None


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def view(tensor: Any) -> View:
    """The address and layout of a tensor. Raises TypeError for an object that is no tensor on a CUDA device, or a
    tensor of a type that plans do not know."""
    try:
        interface = getattr(tensor, "__cuda_array_interface__", None)
    except (TypeError, RuntimeError):  # PyTorch's, for types that the interface lacks and for tensors on a CPU
        interface = None
    if interface is not None and interface["typestr"] in INTERFACE_TYPES:
        return _by_interface(interface)
    if hasattr(tensor, "__dlpack__"):
        kind = int(tensor.__dlpack_device__()[0])
        if kind not in CUDA_DEVICES:
            raise TypeError(f"expected a tensor on a CUDA device, got one on a DLPack device of type {kind}")
        return of_capsule(tensor.__dlpack__(stream=-1))  # -1: the producer is not to wait for anybody
    raise TypeError(f"expected a tensor with __cuda_array_interface__ or DLPack, got {type(tensor).__name__}")


def _by_interface(interface: dict[str, Any]) -> View:
    dtype = INTERFACE_TYPES[interface["typestr"]]
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    steps = dense(shape) if strides is None else tuple(s // int(interface["typestr"][2:]) for s in strides)
    return View(int(interface["data"][0] or 0), shape, dtype, steps)


def of_capsule(capsule: Any) -> View:
    """The address and layout of the tensor in a DLPack capsule. Raises TypeError for one of a type that plans do not
    know."""
    found = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    key = (found.dtype.code, found.dtype.bits)
    if key not in DLPACK_TYPES or found.dtype.lanes != 1:
        raise TypeError(f"plans know no tensors of DLPack type {key} with {found.dtype.lanes} lanes")
    shape = tuple(found.shape[: found.rank]) if found.rank else ()
    strides = tuple(found.strides[: found.rank]) if found.rank and found.strides else dense(shape)
    address = int(found.data or 0) + int(found.byte_offset)
    return View(address, shape, DLPACK_TYPES[key], strides, int(found.device.number))


def as_planned(found: View, spec: Tensor | None) -> View:
    """The view, where unsigned integers count as the plan's dtype if a package lacks that and has them instead."""
    if spec is None or STANDS_IN.get(spec.dtype) != found.dtype:
        return found
    return View(found.address, found.shape, spec.dtype, found.strides, found.device)


def version(tensor: Any) -> Any:
    """PyTorch's count of in-place writes to a tensor; None for a tensor without such a count."""
    try:
        return getattr(tensor, "_version", None)
    except RuntimeError:  # of a tensor made in PyTorch's inference mode
        return None


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)
