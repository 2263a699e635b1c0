"""Schedules of strips of rows: rows of a block, warps that share columns, tiles on their way; and which come first."""

from dataclasses import dataclass
from itertools import product as combinations

from codegen.attention.row_blocks import RowBlocks
from codegen.hardware.architectures import REGISTERS, architecture
from codegen.lowering.value import cone
from codegen.schedule import Choices, Schedule
from codegen.tiled.code_length import MOST_CODE as MOST_OF_TILES
from codegen.tiled.code_length import fault as length_fault
from codegen.tiled.epilogue import RUN
from fusion_ir.ops import OPS
from fusion_ir.records import Device

SLICE = 32  # columns of a warp in a tile: attention_sm80.cuh
FRAGMENT_ROWS = 16
MOST_REGISTERS = 255  # of a thread
LEAST_OTHERS = 44  # registers beside those of the held tensor
LEAST_FREE = 30  # registers beside those and the left operand's or second product's; fewer spill as a rule
MOST_OPERANDS = 64  # registers for the left operand, or for the second product
# A thread holds more of its rows than it has sums of a tile, and goes over them several times.
MOST_CODE = 2 * MOST_OF_TILES
ROWS, WARPS, GROUPS, STAGES, BLOCKS = (16, 32, 64), (4, 8, 16), (1, 2), (2, 3, 4), (1, 2, 3)
TURNS = (1, 2, 3, 4, 6, 8, 12, 16)
MOST_GROUPS, MOST_THREADS = 4, 1024
FIRST = 10
# Rates of a multiprocessor, per clock: bytes from the L2 cache; elements that an operation is done for; products by
# mma.sync. With the two below they put schedules of scores and attention of 1,024 tokens in the order of their times on
# an H200.
L2_BYTES_PER_CLOCK = 64
LANES = 128
PRODUCTS_PER_CLOCK = 1200
WAITING = 6  # with so many warps of a multiprocessor at a time, half of its clocks pass unused
TURNED = 1.7  # times as long for strips in turns: measured, not explained
SPILLED = 1.3  # assumed: times as long where registers are short
FREE = ("load", "const", "index")  # about nothing to compute


@dataclass(frozen=True)
class AttentionSchedule(Schedule):
    """rows: rows of a group of warps at a time. warps: warps of a group, which share the columns. groups: groups of a
    block, which share the tiles of right operands. stages: such tiles that are in shared memory or on their way, each
    of 32 columns for every warp. turns: strips of rows that a group takes one after the other, with all tiles in shared
    memory; 1: each tile comes and goes. blocks: number of blocks that a multiprocessor has registers for."""

    FAMILY = "attention"
    rows: int
    warps: int
    groups: int
    stages: int
    turns: int
    blocks: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps * self.groups

    def tiles(self, columns: int) -> int:
        """Number of tiles that make up `columns` columns."""
        return -(-columns // (SLICE * self.warps))


ALL = tuple(AttentionSchedule(*point) for point in combinations(ROWS, WARPS, GROUPS, STAGES, TURNS, BLOCKS))


def chunks_of(elements: int) -> int:
    """Chunks of 16 bytes of a line in shared memory: `chunks_of` in attention_sm80.cuh."""
    return 2 << (-(-elements // 16) - 1).bit_length()


def shared_bytes(s: AttentionSchedule, strips: RowBlocks) -> int:
    """Bytes of shared memory of a block, as `Strip` in attention_sm80.cuh lays it out."""
    depth, width = strips.problem.depth, strips.second.extent("column") if strips.second else 0
    widest = max(chunks_of(depth), chunks_of(width) if width else 0)
    tiles = s.stages * SLICE * s.warps * widest * 16 + s.groups * s.rows * chunks_of(depth) * 16
    partial = s.groups * s.warps * FRAGMENT_ROWS * (-(-width // 16) * 16 + RUN) * 4 if width else 0
    return max(tiles, partial) + len(strips.phases.steps) * s.groups * s.rows * s.warps * 4


def held(s: AttentionSchedule, columns: int) -> int:
    """Registers of a thread for its part of the held rows."""
    return s.rows // FRAGMENT_ROWS * s.tiles(columns) * FRAGMENT_ROWS * SLICE // 32


def grid(s: AttentionSchedule, strips: RowBlocks) -> int:
    """Blocks of a kernel."""
    batches, rows, _ = strips.problem.extents
    return batches * -(-rows // (s.rows * s.groups * s.turns))


def fault(s: AttentionSchedule, strips: RowBlocks, device: Device) -> str:
    """Why no kernel can have this schedule; empty if one can."""
    if s.warps not in WARPS or s.rows % FRAGMENT_ROWS or s.rows < FRAGMENT_ROWS:
        return f"{s.rows} rows and {s.warps} warps, expected a multiple of 16, and {', '.join(map(str, WARPS))}"
    if s.stages < 2 or s.blocks < 1 or s.turns < 1:
        return f"{s.stages} stages, {s.turns} turns, {s.blocks} blocks, expected 2 or more, and 1 or more"
    if not 1 <= s.groups <= MOST_GROUPS or s.threads > MOST_THREADS:
        return f"{s.groups} groups of {s.warps} warps, at most {MOST_GROUPS} and {MOST_THREADS} threads"
    if s.groups > 1 and not strips.left.copied:
        return "the left operand is computed, by one group alone"
    if s.turns > 1 and (strips.second or s.tiles(strips.problem.extents[2]) > s.stages):
        return f"{s.turns} turns, but not all tiles of the right operands stay in {s.stages} stages"
    operands, columns = _operands(s, strips), strips.problem.extents[2]
    if operands > MOST_OPERANDS:
        return f"{operands} registers for the operands of {s.rows} rows, at most {MOST_OPERANDS}"
    most = min(MOST_REGISTERS, REGISTERS // (s.threads * s.blocks))
    if (needed := held(s, columns) + LEAST_OTHERS) > most:
        return f"{needed} registers to hold {columns} columns of {s.rows} rows, of {most} that a thread has"
    if problem := length_fault(strips_length(s, strips), MOST_CODE):
        return problem
    shared, limit = shared_bytes(s, strips), architecture(device.arch).block_shared_bytes
    return f"takes {shared} bytes of shared memory, {device.arch} has {limit}" if shared > limit else ""


def strips_length(s: AttentionSchedule, strips: RowBlocks) -> float:
    """Length of a kernel's code in f32 additions, see codegen/tiled/code_length.py. Blank slices have a text of their
    own."""
    columns = strips.problem.extents[2]
    runs, behind, brought = 2 * s.rows // FRAGMENT_ROWS * s.tiles(columns), *strips.lengths
    width = strips.second.extent("column") if strips.second else 0
    own = s.rows // FRAGMENT_ROWS * -(-FRAGMENT_ROWS * -(-width // 16) * 2 // (32 * s.warps))
    chunks = chunks_of(strips.problem.depth), chunks_of(width) if width else 0
    calls = [-(-s.rows * chunks[0] // s.threads), *(-(-SLICE * s.warps * n // s.threads) for n in chunks)]
    texts = (1, s.tiles(columns) + s.stages, s.tiles(columns) + s.stages)
    operands = sum(n * times * length for n, times, length in zip(calls, texts, brought, strict=True))
    return 2 * runs * behind[0] + own * behind[1] + operands


def _operands(s: AttentionSchedule, strips: RowBlocks) -> int:
    """Registers of a thread for the left operand, or for the second product, whichever are more."""
    width = strips.second.extent("column") if strips.second else 0
    return s.rows // FRAGMENT_ROWS * max(-(-strips.problem.depth // 16) * 4, -(-width // 16) * 8)


def has_schedules(strips: RowBlocks, device: Device) -> bool:
    """Whether `first_schedules` finds any. A single group takes less of everything: only such schedules are tried."""
    return any(not fault(s, strips, device) for s in ALL if s.groups == 1)


def first_schedules(strips: RowBlocks, device: Device) -> list[AttentionSchedule]:
    """Schedules worth trying, best first by the clocks that a multiprocessor should take for its blocks: the best of
    each kind (rows, warps, groups, whether in turns, blocks), then others of these kinds."""
    possible = [s for s in ALL if not fault(s, strips, device)]
    operations = _operations_of(strips)
    possible.sort(key=lambda s: _clocks(s, strips, operations, device))
    kinds = {(s.rows, s.warps, s.groups, s.turns > 1, s.blocks): s for s in reversed(possible)}
    best = [s for s in possible if s in kinds.values()]
    return [*best, *(s for s in possible if s not in best)][:FIRST]


def schedule_choices() -> Choices:
    """The values that each field of an `AttentionSchedule` may have."""
    return {"rows": ROWS, "warps": WARPS, "groups": GROUPS, "stages": STAGES, "turns": TURNS, "blocks": BLOCKS}


def _clocks(s: AttentionSchedule, strips: RowBlocks, operations: float, device: Device) -> float:
    """Clocks that a multiprocessor should take: of several resident blocks some bring tiles while others compute; one
    alone does one after the other. operations: on one element of the product, see `_operations_of`."""
    columns = strips.problem.extents[2]
    lines = strips.problem.depth + (strips.second.extent("column") if strips.second else 0)
    wide = s.tiles(columns) * SLICE * s.warps
    bringing = wide * lines * 2 / L2_BYTES_PER_CLOCK
    strip = s.rows * wide * (lines / PRODUCTS_PER_CLOCK + operations / LANES)
    chip = architecture(device.arch)
    of_block = shared_bytes(s, strips) + chip.reserved_shared_bytes
    resident = max(min(s.blocks, chip.shared_bytes // of_block, chip.threads // s.threads), 1)
    computing = s.groups * s.turns * strip * (1.0 + WAITING / (resident * s.warps * s.groups))
    computing *= TURNED if s.turns > 1 else 1.0
    tight = held(s, columns) + _operands(s, strips) + LEAST_FREE > REGISTERS // (s.threads * s.blocks)
    rounds = -(-grid(s, strips) // max(device.units, 1))
    clocks = rounds * (max(bringing, computing) + min(bringing, computing) / resident)
    return clocks * (SPILLED if tight else 1.0) * (1.0 + 0.01 * (s.blocks - resident)) - s.stages


def _operations_of(strips: RowBlocks) -> float:
    """Cost of all values of one element of the product, in f32 additions, without the product's multiplications."""
    values = {v for cut in strips.lowered_cuts for v in cone(p.write.value for p in cut.pieces) if v.op not in FREE}
    return sum(OPS[v.op].cost if v.op in OPS else 1.0 for v in values)
