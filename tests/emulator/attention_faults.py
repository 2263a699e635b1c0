"""Faults of family `attention`: in its header, and in what is generated around it."""

from fusion_ir.text.printing import print_graph
from tests.emulator.faults import Fault, Generated
from tests.support.attention import causal, masked, tensor, whole
from tests.support.products import dense_graph
from tests.support.ranges import RANGES

HEADER = "attention_sm80.cuh"
# Rests of rows, columns and depth; blank slices; more tiles than stages; a tile of fewer lines than are copied at once.
CAUSAL = Generated(
    "causal",
    "attention",
    print_graph(causal(1, 70, 200, 40, 24)),
    "attention{rows=64,warps=4,groups=1,stages=2,turns=1,blocks=1}",
)
SCORES = Generated(
    "masked",
    "attention",
    print_graph(masked(1, 40, 268, 40)),
    "attention{rows=16,warps=4,groups=1,stages=2,turns=1,blocks=1}",
)
WHOLE = Generated(
    "whole",
    "attention",
    print_graph(dense_graph([tensor(1, 40, 40), tensor(1, 600, 40), tensor(1, 600, 24)], whole)),
    "attention{rows=16,warps=8,groups=1,stages=2,turns=1,blocks=1}",
)
# Columns that are no whole runs of 8, more warps than one load of their results takes, two tiles.
ODD = Generated(
    "odd",
    "attention",
    print_graph(dense_graph([tensor(2, 40, 40), tensor(2, 331, 40), tensor(2, 331, 24)], whole)),
    "attention{rows=16,warps=8,groups=1,stages=2,turns=1,blocks=1}",
    ranges=RANGES,
)
TURNS = Generated(
    "turns",
    "attention",
    print_graph(masked(1, 70, 268, 40)),
    "attention{rows=16,warps=4,groups=2,stages=3,turns=2,blocks=1}",
)


def changed(name: str, subject: Generated, text: str, replacement: str, count: int = 1) -> Fault:
    """A fault in the header."""
    return Fault(name, subject, text, replacement, header=HEADER, count=count)


def without_barrier(name: str, subject: Generated, before: str, comment: str, behind: str = "") -> Fault:
    """A barrier left out, which stands between these texts."""
    return changed(name, subject, f"{before}block_barrier();{comment}{behind}", f"{before}{behind}")


TILE = "  // the tile is there, and nobody reads the one before any more\n"
ROWS = "\n    VEC_UNROLL for (int i = 0; i < BLOCKS; i++)\n"

ATTENTION_FAULTS = (
    # ---- the pipeline
    without_barrier("no barrier before a tile", SCORES, "        ", TILE, "        next("),
    without_barrier("no barrier before a tile of values", WHOLE, "      ", TILE, "      bring_tile<"),
    without_barrier("no barrier between the products", WHOLE, "", "  // nobody reads the tiles of the first any more"),
    without_barrier("no barrier before partial sums", WHOLE, "", "  // the stages, or the rows before, have been read"),
    without_barrier("no barrier behind partial sums", WHOLE, "sums[i][j], lane);\n      ", ""),
    changed("no barrier between reducing and reading", SCORES, f"    group_barrier();{ROWS}", ROWS),
    without_barrier("no barrier before tiles that stay", TURNS, "copy_async_wait<0>();\n    ", "", "\n  }\n"),
    changed("no barrier before a group's rows", TURNS, "      group_barrier();\n    } else", "    } else"),
    changed("one barrier for all groups", TURNS, "named_barrier(1 + group, ", "named_barrier(1, "),
    changed("groups reduce in the same slots", TURNS, "(I * GROUPS + group)", "(I * GROUPS)"),
    changed("a tile too few", SCORES, "copy_async_wait<STAGES - 2>()", "copy_async_wait<STAGES - 1>()", count=2),
    changed("fills the stage that is read", SCORES, "next(tile + STAGES - 1);", "next(tile + STAGES);"),
    changed("reductions in the same slots", SCORES, "(I * GROUPS + group) * ROWS", "group * ROWS"),
    # ---- tiles and fragments
    changed("no end of lines in a tile", WHOLE, "line + i >= Tile::LINES", "false"),
    changed("no turns", SCORES, "line / 8 % 4 * 2 + line % 2;", "0;"),
    changed("turns that do not move", CAUSAL, "(chunks ^ turn(lines))", "chunks"),
    changed("columns as mma has them", SCORES, "2 * fragment + element % 2", "2 * fragment"),
    changed("probabilities in another order", WHOLE, "[b / 2][half + b % 2 * 2]", "[b / 2][half * 2 + b % 2]"),
    changed("rows of the upper half twice", SCORES, "[half * 2 + i % 2];\n    return x;", "[i % 2];\n    return x;"),
    # ---- the end of rows and columns
    changed("columns beyond the last are reduced", SCORES, "x = first_lanes(Product", "first_lanes(Product"),
    changed("rows and columns beyond the last are computed", SCORES, "return WHOLE || ", "return true || "),
    changed("two lanes of four are joined", SCORES, "k < 4; k *= 2", "k < 2; k *= 2"),
    changed("the largest of four warps alone", ODD, "for (int w = 4; w < WARPS", "for (int w = 4; I > 0 && w < WARPS"),
    changed(
        "the largest without the last tile",
        ODD,
        "            all = join(all, x);",
        "            if (I > 0 || tile + 1 < TILES || TILES == 1) all = join(all, x);",
    ),
    changed("the largest is at least zero", ODD, "all = splat<RUN>(identity)", "all = splat<RUN>(I ? identity : 0.0f)"),
    changed(
        "probabilities beyond the last column",
        ODD,
        "          if (Product::COLUMNS % RUN != 0) x = only_first(x, Product::COLUMNS - column(tile));\n",
        "",
    ),
    # ---- blanks
    changed("tiles left out by their last columns", CAUSAL, " - 1, tile * STEP, ", " - 1, tile * STEP + 99, "),
    changed("blanks keep the first phase's value", CAUSAL, "if (KEPT) held_blank.v[0] = x.v[0];", ""),
    Fault("blank where the diagonal passes", CAUSAL, "> (1 * last_row + 0)", "> (1 * row + 0)"),
    # ---- what is generated
    Fault("sums begin with 1", SCORES, "(Phase1{}, bits<float>(0x80000000u)", "(Phase1{}, bits<float>(0x3f800000u)"),
    Fault("the other reduction", SCORES, "const auto v1 = found.of[1];", "const auto v1 = found.of[0];"),
    Fault("columns of the mask by rows", SCORES, "in2 + 268 * row + column", "in2 + 268 * column + row"),
)  # fmt: skip
