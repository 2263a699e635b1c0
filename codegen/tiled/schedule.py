"""Schedules of tiled products: which of them a device can run, and which tiles fill a device."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from codegen.hardware.architectures import architecture
from codegen.schedule import Choices, Schedule
from codegen.tiled.operand import Tiles
from codegen.tiled.problem import Problem
from fusion_ir.records import Device

RUN = 8  # columns of an epilogue: gemm_epilogue.cuh
MOST_SUMS = 128  # registers of a thread for the product
MOST_WIDE_SUMS = 64  # of them for sums of 64 bits, whose operands take twice as many, too: with more, they spill,
MOST_WIDE_THREADS = 256  # and so they do where a thread of a block has 128 registers
MOST_WARPS = 16
WORDS = 4  # bytes of a register


@dataclass(frozen=True)
class TileSchedule(Schedule):
    """The tile of a block, and who computes it.

    path: `mma` (tensor cores), `fma`, or `shallow` (either, of few products, in registers). bm, bn: rows and columns of
    the product in a tile. bk: products that a step takes in. stages: steps whose operands are on the chip or on their
    way there. warps_m, warps_n: warps along rows and columns. group: rows of tiles that blocks go through together,
    column by column (`shallow`: with 1, tiles below each other take rows in turns).
    """

    FAMILY = "matmul"
    path: str
    bm: int
    bn: int
    bk: int
    stages: int
    warps_m: int
    warps_n: int
    group: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps_m * self.warps_n

    @property
    def staged(self) -> int:
        """Columns that a warp stages at once in the epilogue: TensorTile::STAGED."""
        own = self.bn // self.warps_n
        return next(n for n in (64, 32, 16) if own % n == 0)


def shared_bytes(s: TileSchedule, tiles: Tiles) -> int:
    """Bytes of shared memory of a block."""
    if s.path == "fma":
        return 2 * s.bk * (s.bm + s.bn + 2 * tiles.run) * tiles.dtype.bytes
    staging = s.threads // 32 * 16 * (s.staged + RUN) * WORDS
    return max(s.stages * (s.bm + s.bn) * s.bk * tiles.dtype.bytes, staging)


def fault(s: TileSchedule, tiles: Tiles, device: Device) -> str:
    """Why no kernel can have this schedule; empty if one can."""
    found = warps_fault(s) or (_mma_fault if s.path == "mma" else _fma_fault)(s, tiles)
    if found:
        return found
    shared, limit = shared_bytes(s, tiles), architecture(device.arch).block_shared_bytes
    return f"takes {shared} bytes of shared memory, {device.arch} has {limit}" if shared > limit else ""


def warps_fault(s: TileSchedule) -> str:
    """Why the warps of a schedule cannot share its tile; empty if they can."""
    if s.bm % s.warps_m or s.bn % s.warps_n:
        return f"{s.warps_m} x {s.warps_n} warps do not divide a tile of {s.bm} x {s.bn}"
    return f"{s.threads // 32} warps, at most {MOST_WARPS}" if s.threads > 32 * MOST_WARPS else ""


def _mma_fault(s: TileSchedule, tiles: Tiles) -> str:
    rows, columns = s.bm // s.warps_m, s.bn // s.warps_n
    if rows % 16 or columns % 16:
        return f"a warp's part is {rows} x {columns}, expected multiples of 16"
    if rows * columns // 32 > MOST_SUMS:
        return f"{rows * columns // 32} sums in a thread, at most {MOST_SUMS}"
    if s.bk % (2 * tiles.run):
        return f"a step of {s.bk} products, expected a multiple of {2 * tiles.run}"
    for length in (s.bk, s.bm, s.bn):
        chunks = length // tiles.run
        if chunks not in (2, 4) and chunks % 8:
            return f"lines of {chunks} chunks of 16 bytes cannot be swizzled"
    if s.stages < 2:
        return f"{s.stages} stages, expected 2 or more"
    return ""


def _fma_fault(s: TileSchedule, tiles: Tiles) -> str:
    rows, columns = s.bm // s.warps_m, s.bn // s.warps_n
    if s.stages != 2:
        return f"{s.stages} stages, fma takes 2"
    across = columns // RUN
    if columns % RUN or 32 % across:
        return f"a warp's {columns} columns do not give runs of {RUN} to 32 threads"
    own = rows * across // 32
    if rows * across % 32 or own % tiles.run:
        return f"a thread's {own} rows are no multiple of {tiles.run}"
    most = MOST_WIDE_SUMS if tiles.dtype.bytes > WORDS else MOST_SUMS
    if own * RUN * tiles.dtype.bytes // WORDS > most:
        return f"{own} x {RUN} sums in a thread take more than {most} registers"
    if tiles.dtype.bytes > WORDS and s.threads > MOST_WIDE_THREADS:
        return f"{s.threads} threads with sums of 64 bits, at most {MOST_WIDE_THREADS}"
    if s.bk % tiles.run or s.bk < 16:
        return f"a step of {s.bk} products, expected a multiple of {tiles.run}, 16 or more"
    return ""


# Rows and columns of a tile, warps along both.
MMA_TILES = (
    (128, 128, 2, 2), (128, 256, 2, 4), (256, 128, 4, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 256, 1, 4),
    (64, 64, 2, 2), (32, 128, 1, 4), (64, 32, 2, 1), (32, 64, 1, 2), (32, 32, 2, 1), (16, 128, 1, 4), (16, 64, 1, 2),
)  # fmt: skip
FMA_TILES = (
    (128, 128, 4, 2), (128, 128, 4, 4), (128, 64, 2, 2), (128, 64, 4, 2), (64, 128, 2, 4), (64, 128, 2, 2),
    (64, 64, 2, 2), (32, 128, 1, 4), (64, 32, 2, 1), (32, 64, 1, 2), (32, 32, 1, 1), (16, 64, 1, 1),
)  # fmt: skip
MMA_STEPS = ((64, 4), (128, 3), (64, 3), (128, 4), (64, 5))  # bytes of a step, stages
FIRST = 12


def first_schedules(
    problem: Problem, tiles: Tiles, path: str, device: Device, is_short: Callable[[TileSchedule], bool]
) -> list[TileSchedule]:
    """Schedules worth trying, best first by what tiles of a size cost a multiprocessor. is_short: whether a kernel's
    code may be as long."""
    if path == "mma":
        steps = [(max(count // tiles.dtype.bytes, 2 * tiles.run), stages) for count, stages in MMA_STEPS]
        shapes = MMA_TILES
    else:
        steps, shapes = [(16, 2), (32, 2)], FMA_TILES
    ranked = sorted(shapes, key=lambda shape: _cost(problem, shape[0], shape[1], device))
    found: list[TileSchedule] = []
    for best, (bk, stages) in enumerate(steps):  # of the best tiles, more steps
        ways = (TileSchedule(path, bm, bn, bk, stages, m, n, 8) for bm, bn, m, n in ranked)
        short = [s for s in ways if is_short(s)][: 6 if best == 0 else 2]
        found += [s for s in short if not fault(s, tiles, device)]
    return found[:FIRST]


def _cost(problem: Problem, bm: int, bn: int, device: Device) -> float:
    """Work of the multiprocessor that computes the most tiles, in products: an element brought from memory for them
    counts as 64, and so does a result."""
    batches, rows, columns = problem.extents
    count = batches * -(-rows // bm) * -(-columns // bn)
    waves = -(-count // max(device.units, 1))
    return waves * (problem.depth * (bm * bn + 64 * (bm + bn)) + 64.0 * bm * bn)


def tile_choices(paths: Sequence[str]) -> Choices:
    """The values that each field of a `TileSchedule` may have."""
    return {
        "path": tuple(paths),
        "bm": (16, 32, 64, 128, 256),
        "bn": (32, 64, 128, 256),
        "bk": (16, 32, 64, 128),
        "stages": (2, 3, 4, 5),
        "warps_m": (1, 2, 4),
        "warps_n": (1, 2, 4),
        "group": (1, 4, 8, 16),
    }


def unique(schedules: Iterable[TileSchedule]) -> tuple[str, ...]:
    """The schedules as text, each once."""
    return tuple(dict.fromkeys(map(str, schedules)))
