"""The schedule of strips: rows of a block, warps that share their columns, tiles on their way; which come first."""

from dataclasses import dataclass
from itertools import product as combinations

from codegen.architectures import REGISTERS, architecture
from codegen.attention.strips import Strips
from codegen.lowering.value import cone
from codegen.schedule import Choices, Schedule
from codegen.tiled.epilogue import RUN
from fusion_ir.ops import OPS
from fusion_ir.records import Device

SLICE = 32  # columns of a warp in a tile: attention_sm80.cuh
FRAGMENT_ROWS = 16
MOST_HELD = {4: 128, 8: 128, 16: 64}  # registers of a thread for what is held, by the warps of a block
MOST_OTHERS = 64  # for the left operand, and for the second product
ROWS, WARPS, STAGES = (16, 32, 64), tuple(MOST_HELD), (2, 3, 4)
MOST_DEPTH = 128  # of the first product, and columns of the second
FIRST = 10
# Of a multiprocessor, per clock: bytes from the L2 cache; elements that an operation is done for; products by mma.sync.
L2_BYTES_PER_CLOCK = 40
LANES = 128
PRODUCTS_PER_CLOCK = 1200
FREE = ("load", "const", "index")  # about nothing to compute


@dataclass(frozen=True)
class AttentionSchedule(Schedule):
    """rows: of a block. warps: that share the columns. stages: tiles of an operand that are in shared memory or on
    their way, each of 32 columns for every warp."""

    FAMILY = "attention"
    rows: int
    warps: int
    stages: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps

    def tiles(self, columns: int) -> int:
        """Tiles of so many columns."""
        return -(-columns // (SLICE * self.warps))


def chunks_of(elements: int) -> int:
    """Chunks of 16 bytes of a line in shared memory: `chunks_of` in attention_sm80.cuh."""
    return 2 << (-(-elements // 16) - 1).bit_length()


def shared_bytes(s: AttentionSchedule, strips: Strips) -> int:
    """Shared memory of a block: Strip::SHARED_BYTES."""
    depth, width = strips.problem.depth, strips.second.extent("column") if strips.second else 0
    widest = max(chunks_of(depth), chunks_of(width) if width else 0)
    tiles = s.stages * SLICE * s.warps * widest * 16 + s.rows * chunks_of(depth) * 16
    partial = s.warps * FRAGMENT_ROWS * (-(-width // 16) * 16 + RUN) * 4 if width else 0
    return max(tiles, partial) + len(strips.phases.steps) * s.rows * s.warps * 4


def held(s: AttentionSchedule, columns: int) -> int:
    """Registers of a thread for what is held of the rows."""
    return s.rows // FRAGMENT_ROWS * s.tiles(columns) * FRAGMENT_ROWS * SLICE // 32


def fault(s: AttentionSchedule, strips: Strips, device: Device) -> str:
    """Why no kernel can have this schedule; empty if one can."""
    if s.warps not in MOST_HELD or s.rows % FRAGMENT_ROWS or not s.rows:
        return f"{s.rows} rows and {s.warps} warps, expected a multiple of 16, and {', '.join(map(str, MOST_HELD))}"
    if s.stages < 2:
        return f"{s.stages} stages, expected 2 or more"
    columns = strips.problem.extents[2]
    if held(s, columns) > MOST_HELD[s.warps]:
        return f"{held(s, columns)} registers to hold {columns} columns, at most {MOST_HELD[s.warps]}"
    blocks, width = s.rows // FRAGMENT_ROWS, strips.second.extent("column") if strips.second else 0
    if (others := max(blocks * -(-strips.problem.depth // 16) * 4, blocks * -(-width // 16) * 8)) > MOST_OTHERS:
        return f"{others} registers for the operands of {s.rows} rows, at most {MOST_OTHERS}"
    shared, limit = shared_bytes(s, strips), architecture(device.arch).block_shared_bytes
    return f"takes {shared} bytes of shared memory, {device.arch} has {limit}" if shared > limit else ""


def first_schedules(strips: Strips, device: Device) -> list[AttentionSchedule]:
    """Schedules worth trying, best first by what a multiprocessor should take for its blocks."""
    made = [AttentionSchedule(*point) for point in combinations(ROWS, WARPS, STAGES)]
    possible = [s for s in made if not fault(s, strips, device)]
    return sorted(possible, key=lambda s: _clocks(s, strips, device))[:FIRST]


def schedule_choices() -> Choices:
    """What the fields of a schedule may be."""
    return {"rows": ROWS, "warps": WARPS, "stages": STAGES}


def _clocks(s: AttentionSchedule, strips: Strips, device: Device) -> float:
    """Of a multiprocessor: blocks at a time bring tiles while others compute; one alone does one after the other."""
    batches, rows, columns = strips.problem.extents
    lines = strips.problem.depth + (strips.second.extent("column") if strips.second else 0)
    wide = s.tiles(columns) * SLICE * s.warps
    bringing = wide * lines * 2 / L2_BYTES_PER_CLOCK
    computing = s.rows * wide * (lines / PRODUCTS_PER_CLOCK + _operations(strips) / LANES)
    chip = architecture(device.arch)
    registers = held(s, columns) + MOST_OTHERS
    resident = min(
        REGISTERS // (s.threads * registers),
        chip.shared_bytes // (shared_bytes(s, strips) + chip.reserved_shared_bytes),
        chip.threads // s.threads,
    )
    rounds = -(-(batches * -(-rows // s.rows)) // max(device.units, 1))
    return rounds * (max(bringing, computing) + min(bringing, computing) / max(resident, 1)) - s.stages


def _operations(strips: Strips) -> float:
    """Of one element of the product, but for the products themselves: some of each value."""
    values = {v for part in strips.parts for v in cone(p.write.value for p in part.pieces) if v.op not in FREE}
    return sum(OPS[v.op].cost if v.op in OPS else 1.0 for v in values)
