"""Tensor maps: encoded by the driver for where a tensor is, as 128 bytes that a kernel takes by value."""

import ctypes

from fuseplan_client.cuda.driver import driver
from fuseplan_client.plan import TensorMap

MAP_BYTES, ALIGNMENT = 128, 64
# CUtensorMapDataType of cuda.h; 8-bit types are all bytes to it.
DATA_TYPES = {
    "u8": 0, "i8": 0, "bool": 0, "f8e4m3": 0, "f8e5m2": 0, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9,
}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
NOT_INTERLEAVED, PROMOTE_TO_256_BYTES, ZERO_FILL = 0, 3, 0


def encode(spec: TensorMap, address: int) -> ctypes.Array[ctypes.c_char]:
    """The map of a tensor at `address`, in memory that begins at a multiple of 64. Raises RuntimeError where the driver
    refuses."""
    memory = ctypes.create_string_buffer(MAP_BYTES + ALIGNMENT)
    start = -ctypes.addressof(memory) % ALIGNMENT
    rank = len(spec.sizes)
    status = driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(memory) + start),
        ctypes.c_int(DATA_TYPES[spec.dtype]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address + spec.offset_bytes),
        (ctypes.c_uint64 * rank)(*spec.sizes),
        (ctypes.c_uint64 * max(rank - 1, 1))(*spec.strides_bytes),
        (ctypes.c_uint32 * rank)(*spec.box),
        (ctypes.c_uint32 * rank)(*(1 for _ in range(rank))),
        ctypes.c_int(NOT_INTERLEAVED),
        ctypes.c_int(SWIZZLES[spec.swizzle]),
        ctypes.c_int(PROMOTE_TO_256_BYTES),
        ctypes.c_int(ZERO_FILL),
    )
    if status:
        raise RuntimeError(f"cuTensorMapEncodeTiled answers {status} to {spec} at {address:#x}")
    return (ctypes.c_char * MAP_BYTES).from_buffer(memory, start)
