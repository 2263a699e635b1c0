"""Shared memory of CUDA kernels: its parts, and sizes of accumulators that threads join and of tiles."""

from codegen.hardware.architectures import ACCESS_BYTES
from codegen.lowering.index import Axis
from codegen.lowering.program import Program, Tile
from codegen.lowering.value import Value
from codegen.printer.style import Style
from fusion_ir.dtype import DType


class SharedMemory:
    """The shared memory of a block, in bytes. x_bytes, y_bytes: for what threads along x join, and those along y.
    taken: for everything else, behind them."""

    def __init__(self) -> None:
        self.x_bytes = self.y_bytes = self.taken = 0

    @property
    def bytes(self) -> int:
        return self.x_bytes + self.y_bytes + self.taken

    def take(self, bytes_: int) -> str:
        """Takes room behind that for joining results; returns its offset as C++ text."""
        at = self.taken
        self.taken += rounded(bytes_)
        return f"JOINED + {at}"

    def declarations(self) -> list[str]:
        """The lines ahead of everything else in a body; none where nothing is shared."""
        places = f"JOINED_X = {self.x_bytes}, JOINED = {self.x_bytes + self.y_bytes}"
        return ["  SHARED_MEMORY(shared);", f"  constexpr int {places};"] if self.bytes else []


def is_in_shared(program: Program, style: Style, v: Value) -> bool:
    """Whether an array along lanes lies in shared memory."""
    kept = program.kept.get(v)
    return style.shared_rows and bool(kept and kept.key.lane) and v not in program.reductions


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
