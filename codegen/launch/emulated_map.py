"""Tensor maps as the emulator takes them: the fields of a `TensorMapSpec` in the 128 bytes that the driver's have."""

import struct

from fusion_ir.records import TensorMapSpec
from fusion_ir.records.tensor_map import MOST_AXES

LAYOUT = struct.Struct(f"<{1 + MOST_AXES + MOST_AXES - 1}Q{3 + MOST_AXES}I16x")  # TensorMap in emulator_sm90.h


def emulated_map(spec: TensorMapSpec, address: int) -> bytes:
    """The parameter that a kernel takes for a map of the tensor at `address`."""
    rank = len(spec.sizes)
    unused = (0,) * (MOST_AXES - rank)
    wide = (address + spec.offset_bytes, *spec.sizes, *unused, *spec.strides_bytes, *unused)
    return LAYOUT.pack(*wide, rank, spec.element_bytes, spec.swizzle, *spec.box, *unused)
