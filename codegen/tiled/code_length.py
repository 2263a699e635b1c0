"""Length of the code of a tiled product: its functions of a point, as often as a thread's text has them.

Arrays in a thread's registers are indexed by constants, so that every loop over them is written out: an epilogue of 40
functions behind 128 sums of a thread would be 5,000 functions, for which NVRTC takes most of a minute; with so many it
stops unrolling, and arrays meant for registers are in memory. 128 products of each of these sums in a step would be
16,384 instructions, for which NVRTC takes as long and which fit no instruction cache.
"""

from collections.abc import Sequence
from functools import lru_cache

from codegen.lowering.code_length import op_length
from codegen.lowering.program import UNCOUNTED
from codegen.lowering.value import Value, cone
from codegen.tiled.epilogue import RUN, epilogue_pieces
from codegen.tiled.operand import TileOperand, Tiles
from codegen.tiled.orientation import Orientation
from codegen.tiled.points import Piece
from codegen.tiled.problem import Problem
from codegen.tiled.schedule import TileSchedule
from codegen.tiled.small_k import SmallK
from fusion_ir.core.graph import Graph

MOST_CODE = 8192.0  # of a thread, in f32 additions of an element: gelu and dropout behind 128 sums
# Most code of one element, over all ops: a thread of the smallest tiles has 32 elements of the result.
MOST_OF_ELEMENT = MOST_CODE / 32
FRAGMENT_ROWS = 16
EIGHT = 8  # rows and columns that the fragments of tensor cores come in, and threads of a warp side by side


def pieces_length(pieces: Sequence[Piece], run: int) -> float:
    """Code length of pieces computed once for a run of `run` columns, in f32 additions of one element."""
    total, known = 0.0, set[tuple[Value, int]]()
    for piece in pieces:
        for v in cone([piece.write.value]):
            if v.op in UNCOUNTED or (v, piece.width) in known:
                continue
            if not piece.conditions:  # what others have under conditions is theirs alone
                known.add((v, piece.width))
            own = piece.lane is not None and piece.lane in v.deps
            total += op_length(v.op, v.dtype) * (run if own else run // piece.width)
    return total


@lru_cache(maxsize=256)
def epilogue_length(segment: Graph, problem: Problem, run: int = RUN) -> float:
    """Code length of one call of the epilogue, in f32 additions. Raises EmitError."""
    return pieces_length(epilogue_pieces(segment, problem, run)[0], run)


def operand_length(of: TileOperand) -> float:
    """Code length of one call for a run of an operand, in f32 additions; 0 for one that is copied."""
    return 0.0 if of.copied else pieces_length(of.pieces, of.run)


def fault(length: float, most: float = MOST_CODE) -> str:
    """Why no kernel has code of this length; empty if one can."""
    return f"its code would be as long as {length:.0f} additions (at most {most:.0f})" if length > most else ""


def tile_length(segment: Graph, way: Orientation, s: TileSchedule, tiles: Tiles, few: SmallK | None) -> float:
    """Code length of a kernel of family `matmul` on CUDA, in f32 additions. few: given for path `shallow` alone."""
    behind = epilogue_length(segment, way.problem, few.run if few else RUN)
    left, right = operand_length(way.left), operand_length(way.right)
    if few:
        rows, columns = few.own_rows(not way.left.depth_last), s.bn // s.warps_n // few.warp_columns
        held = -(-few.depth // few.depth_step)
        own = behind if few.by_tensor_cores else behind + few.run * few.depth
        # Two sets of rows in turns, and the first one once more; the columns' operand once.
        return 2 * rows * columns * own + held * (3 * rows * left + columns * few.run * right)
    if s.path == "fma":
        across = s.bn // s.warps_n // RUN
        calls, texts = max(s.bm // s.warps_m * across // 32, 1), 2  # the first step, and the next one
        behind += s.bk * RUN  # multiplied and added up
    else:
        parts = s.bm // s.warps_m // FRAGMENT_ROWS * (s.bn // s.warps_n // s.staged)
        calls, texts = parts * -(-FRAGMENT_ROWS * s.staged // RUN // 32), s.stages  # as many steps ahead, and the next
    brought = [-(-lines * s.bk // (tiles.run * s.threads)) for lines in (s.bm, s.bn)]
    return calls * behind + texts * (brought[0] * left + brought[1] * right)


def staged_length(segment: Graph, problem: Problem, staged: int) -> float:
    """Code length of a kernel of family `wgmma`, in f32 additions: its epilogue has one text for all parts of a tile,
    `staged` columns each."""
    return -(-FRAGMENT_ROWS * staged // RUN // 32) * epilogue_length(segment, problem)
