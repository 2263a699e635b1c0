"""Tensor maps for kernels on a CUDA device: encoded by the driver for where a tensor is, once for each place."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fusion_ir.records import TensorMapSpec

MAP_BYTES = 128
ALIGNMENT = 64
# Values of the driver's enumerations (cuda.h): CUtensorMapDataType, CUtensorMapSwizzle, and below them those that are
# always the same.
DATA_TYPES = {"u8": 0, "i8": 0, "bool": 0, "f8e4m3": 0, "f8e5m2": 0, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 8,
              "bf16": 9}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
NOT_INTERLEAVED = 0
PROMOTE_TO_256_BYTES = 3  # what is brought into the L2 cache at once
ZERO_FILL = 0


class TensorMapError(RuntimeError):
    """The driver refused to encode a tensor map."""


def encoded(spec: TensorMapSpec, address: int) -> int:
    """Address of the 128 bytes that a kernel takes as its parameter, which stay where they are. `address`: of the
    tensor. Raises TensorMapError."""
    return ctypes.addressof(_encoded(spec.model_dump_json(), address)[1])


@lru_cache(maxsize=1024)
def _encoded(text: str, address: int) -> tuple[Any, Any]:
    """The memory, and the aligned part of it that holds the map."""
    spec = TensorMapSpec.model_validate_json(text)
    memory = ctypes.create_string_buffer(MAP_BYTES + ALIGNMENT)
    place = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
    found = (ctypes.c_ubyte * MAP_BYTES).from_address(place)
    rank = len(spec.sizes)
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(place),
        ctypes.c_int(DATA_TYPES[spec.dtype]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address + spec.offset_bytes),
        _array(ctypes.c_uint64, spec.sizes),
        _array(ctypes.c_uint64, spec.strides_bytes or (0,)),
        _array(ctypes.c_uint32, spec.box),
        _array(ctypes.c_uint32, (1,) * rank),
        ctypes.c_int(NOT_INTERLEAVED),
        ctypes.c_int(SWIZZLES[spec.swizzle]),
        ctypes.c_int(PROMOTE_TO_256_BYTES),
        ctypes.c_int(ZERO_FILL),
    )
    if status:
        raise TensorMapError(f"cuTensorMapEncodeTiled says {status} to {spec} at {address:#x}")
    return memory, found


class Parameters:
    """Parameters of a launch as the driver takes them: pointers to 8-byte addresses, then to tensor maps."""

    def __init__(self, addresses: Sequence[int], maps: Sequence[TensorMapSpec]) -> None:
        self._addresses = _array(ctypes.c_uint64, addresses)
        first = ctypes.addressof(self._addresses)
        places = [first + 8 * i for i in range(len(addresses))]
        self._pointers = _array(ctypes.c_void_p, (*places, *(encoded(m, addresses[m.argument]) for m in maps)))

    @property
    def address(self) -> int:
        """Address of the array of pointers; valid as long as this object is."""
        return ctypes.addressof(self._pointers)


def _array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * len(values))(*values)


@lru_cache(maxsize=1)
def _driver() -> Any:
    """The driver's own library, which is there wherever a device is. Raises OSError."""
    return ctypes.CDLL("libcuda.so.1")
