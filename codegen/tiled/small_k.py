"""Contractions of few products a sum, whose result takes the time: a warp keeps its columns' operand in registers, and
rows pass by. This is path `shallow` of family `matmul`: what it can run, and its first tiles (gemm_shallow.cuh)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from codegen.hardware.architectures import ACCESS_BYTES
from codegen.printer.expressions import CTYPE
from codegen.tiled.operand import Tiles
from codegen.tiled.problem import Problem
from codegen.tiled.schedule import TileSchedule, warps_fault
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops.contract import products
from fusion_ir.records import Device

SHALLOW = "shallow"
HEADER = "gemm_shallow.cuh"
FEW = 16  # products of a sum: up to here the path comes before all others
MOST_BY_TENSOR_CORES = 32  # beyond, tiles through shared memory load each operand less often
MOST_HELD = 64  # registers of a thread for the columns' operand
STEP_BYTES = 32  # of an operand's row that an instruction of the tensor cores takes in
OWN_BYTES = 8  # of them, of a thread
MOST_RUN = 8  # columns that an epilogue is called for
STAGES = 2  # rows that are multiplied, and the next ones
GROUP = 8  # tiles that follow each other down; 1: their rows are dealt to them in turns
DEALT = 2  # tiles that are tried both ways
BUSY_THREADS = 768  # of a multiprocessor, that keep memory busy with a store of 16 bytes each: assumed
# Rows of a tile, warps along rows and along columns.
TILES = (
    (128, 1, 8), (64, 1, 8), (256, 1, 8), (32, 1, 8), (64, 1, 4), (32, 1, 4), (128, 2, 4), (256, 4, 2), (256, 4, 1),
    (64, 1, 1),
)  # fmt: skip


@dataclass(frozen=True)
class SmallK:
    """How a contraction of few products a sum is computed. tiles: dtype and runs in which operands are computed.
    by_tensor_cores: by tensor cores, else by fma. run: columns that the epilogue is called for. depth: products of a
    sum."""

    tiles: Tiles
    by_tensor_cores: bool
    run: int
    depth: int

    @property
    def warp_columns(self) -> int:
        """The fewest columns that a warp computes: a run for each of 8 or all of its threads."""
        return self.run * (8 if self.by_tensor_cores else 32)

    def step_rows(self, across: bool) -> int:
        """Most rows that a warp takes in between two branches. across: whether rows lie side by side in memory, and so
        come in runs."""
        step = self.tiles.run if across or not self.by_tensor_cores else 1
        return 2 * step * (8 if self.by_tensor_cores else 1)

    def own_rows(self, across: bool) -> int:
        """Rows of a thread among those of one branch: OWN_ROWS in gemm_shallow.cuh."""
        if self.by_tensor_cores:
            return self.step_rows(across) // 8
        return self.tiles.run if across else 4 if self.depth <= 4 else 2 if self.depth <= 8 else 1

    @property
    def depth_step(self) -> int:
        """Products of a row that a call of the operand, or the calls of an instruction's threads, bring."""
        return STEP_BYTES // self.tiles.dtype.bytes if self.by_tensor_cores else self.tiles.run

    @property
    def depth_held(self) -> int:
        """Products that registers are held for."""
        step = self.depth_step if self.by_tensor_cores else 1
        return -(-self.depth // step) * step

    def held(self, columns: int) -> int:
        """Registers of a thread for the operand of a warp's columns."""
        return self.depth_held * columns * self.tiles.dtype.bytes // (4 * 32)

    def fault(self, s: TileSchedule, across: bool) -> str:
        """Why no kernel can have this schedule; empty if one can. across: see `step_rows`."""
        if found := warps_fault(s):
            return found
        rows, columns = s.bm // s.warps_m, s.bn // s.warps_n
        if columns % self.warp_columns:
            return f"a warp's {columns} columns, expected a multiple of {self.warp_columns}"
        if rows % self.step_rows(across):
            return f"a warp's {rows} rows, expected a multiple of {self.step_rows(across)}"
        if s.bk != self.depth_held or s.stages != STAGES:
            return f"{s.bk} products in {s.stages} stages, expected all {self.depth_held} in {STAGES}"
        if self.held(columns) > MOST_HELD:
            return f"{self.held(columns)} registers of a thread hold its columns, at most {MOST_HELD}"
        return ""

    def schedules(
        self, problem: Problem, across: bool, device: Device, is_short: Callable[[TileSchedule], bool]
    ) -> list[TileSchedule]:
        """Schedules worth trying, best first: tiles with little beyond the end, and enough of them to keep memory
        busy. is_short: whether a kernel's code may be as long."""
        found = [
            TileSchedule(SHALLOW, bm, warps_n * self.warp_columns, self.depth_held, STAGES, warps_m, warps_n, GROUP)
            for bm, warps_m, warps_n in TILES
        ]
        best = sorted(
            (s for s in found if not self.fault(s, across) and is_short(s)), key=lambda s: _cost(problem, s, device)
        )
        return [way for s in best[:DEALT] for way in (s, replace(s, group=1))] + best[DEALT:]

    @property
    def warp(self) -> str:
        """The C++ type of gemm_shallow.cuh that multiplies."""
        return "TensorWarp" if self.by_tensor_cores else "FmaWarp"

    def tile(self, s: TileSchedule) -> str:
        """The tile's C++ type."""
        numbers = (s.bm, s.bn, s.warps_m, s.warps_n, s.group, self.run, self.tiles.run)
        return f"ShallowTile<{CTYPE[self.tiles.dtype.name]}, {', '.join(map(str, numbers))}>"


def is_shallow(node: Node, tensor: DType | None) -> bool:
    """Whether a contraction sums few enough products, by tensor cores or not: see `shallow`."""
    return 0 < products(node) <= (MOST_BY_TENSOR_CORES if tensor else FEW)


def shallow(segment: Graph, node: Node, tensor: DType | None) -> SmallK:
    """How a contraction that `is_shallow` is computed. tensor: dtype in which tensor cores take its operands; None
    where they cannot, or must not."""
    dtype = tensor or node.attr("acc", DType)
    tiles = Tiles(dtype, (OWN_BYTES if tensor else ACCESS_BYTES) // dtype.bytes, copied=False, across=True)
    widest = max(o.node.dtype.bytes for o in segment.outputs)
    run = max(min(ACCESS_BYTES // widest, MOST_RUN), tiles.run)
    while True:  # narrower until the columns' operand fits: CHUNK elements always do
        found = SmallK(tiles, tensor is not None, run, products(node))
        if run == tiles.run or found.held(found.warp_columns) <= MOST_HELD:
            return found
        run //= 2


def _cost(problem: Problem, s: TileSchedule, device: Device) -> float:
    """Time of a schedule relative to one without waste, by how much of its tiles is beyond the product and how much of
    the device they leave idle."""
    batches, rows, columns = problem.extents
    blocks = batches * -(-rows // s.bm) * -(-columns // s.bn)
    beyond = blocks * s.bm * s.bn / (batches * rows * columns)
    idle = max(1.0, device.units * BUSY_THREADS / (blocks * s.threads))
    return round(beyond * idle, 1)
