"""Sizes in shared memory of CUDA kernels: accumulators that threads join, and tiles."""

from codegen.hardware.architectures import ACCESS_BYTES
from codegen.lowering.index import Axis
from codegen.lowering.program import Tile
from codegen.lowering.value import Value
from fusion_ir.dtype import DType


def accumulator_bytes(v: Value, width: int) -> int:
    """Most bytes of an accumulator of `width` lanes in shared memory."""
    return rounded(width * v.dtype.bytes) + (rounded(width * v.args[0].dtype.bytes) if v.op == "argreduce" else 0)


def rounded(bytes_: int) -> int:
    return rounded_to(bytes_, ACCESS_BYTES)


def rounded_to(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def stored_axes(tile: Tile) -> tuple[Axis, Axis]:
    """The axes of a tile as it lies in shared memory; along the second one it was filled."""
    return (tile.lane, tile.along) if isinstance(tile.access, Value) else (tile.along, tile.lane)


def tile_dtype(tile: Tile) -> DType:
    return tile.access.dtype if isinstance(tile.access, Value) else tile.access.value.dtype
