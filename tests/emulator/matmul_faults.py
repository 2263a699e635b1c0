"""Faults of tiled products: in the headers of their main loops, and in what is generated around them."""

from collections.abc import Callable

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f32
from fusion_ir.text.printing import print_graph
from tests.cpu.test_matmul_family import heads, piece
from tests.emulator.faults import Fault, Generated
from tests.support.products import dense_graph

ROWS, DEPTH, COLUMNS = 40, 152, 72  # rests of tiles along all of them
MMA = "matmul{path=mma,bm=32,bn=64,bk=32,stages=4,warps_m=1,warps_n=2,group=4}"
FMA = "matmul{path=fma,bm=64,bn=32,bk=16,stages=2,warps_m=2,warps_n=1,group=2}"
FEW_MMA = "matmul{path=shallow,bm=64,bn=64,bk=16,stages=2,warps_m=2,warps_n=1,group=4}"
FEW_FMA = "matmul{path=shallow,bm=32,bn=128,bk=5,stages=2,warps_m=1,warps_n=1,group=4}"
TILES, SM80, EPILOGUE, BY_FMA = "gemm_tiles.cuh", "gemm_sm80.cuh", "gemm_epilogue.cuh", "gemm_fma.cuh"
SHALLOW = "gemm_shallow.cuh"


def tensor(*sizes: int, dtype: DType = bf16) -> InputSpec:
    return InputSpec(shape_of(sizes), dtype, dense_strides(sizes), 16)


def product(
    name: str, schedule: str, compute: Callable[..., Node | tuple[Node, ...]], dtype: DType, *more: int
) -> Generated:
    """compute(x[40, 152], w[152, 72], vectors of the given lengths)"""
    specs = [
        tensor(ROWS, DEPTH, dtype=dtype),
        tensor(DEPTH, COLUMNS, dtype=dtype),
        *(tensor(n, dtype=dtype) for n in more),
    ]
    return Generated(name, "matmul", print_graph(dense_graph(specs, compute)), schedule)


COPIED = product("copied", MMA, lambda x, w, b: build.add(build.matmul(x, w), b), bf16, COLUMNS)
# Of odd extents: what is masked away would be infinite.
COMPUTED = Generated(
    "computed", "matmul", print_graph(dense_graph(
        [tensor(41, 150), tensor(71, 150)],
        lambda x, w: build.matmul(build.reciprocal(x), build.permute(build.reciprocal(w), [1, 0])),
    )), MMA,
)  # fmt: skip
APART = product(
    "apart", MMA, lambda x, w: tuple(heads(piece(build.matmul(x, w), 24 * i, 24 * (i + 1)), 3) for i in range(3)), bf16
)
PLAIN = product("plain", FMA, lambda x, w, b: build.add(build.matmul(x, w), b), f32, COLUMNS)


def few(name: str, schedule: str, dtype: DType) -> Generated:
    """x[40, 5] w[5, 72] + bias"""
    specs = [tensor(ROWS, 5, dtype=dtype), tensor(5, COLUMNS, dtype=dtype), tensor(COLUMNS, dtype=dtype)]
    graph = dense_graph(specs, lambda x, w, b: build.add(build.matmul(x, w), b))
    return Generated(name, "matmul", print_graph(graph), schedule)


FEW, FEW_PLAIN = few("few", FEW_MMA, bf16), few("few_plain", FEW_FMA, f32)

MATMUL_FAULTS = (
    # ---- the pipeline
    Fault(
        "no barrier before a step",
        COPIED,
        "block_barrier();  // step `step` is there",
        "// step `step` is there",
        header=SM80,
    ),
    Fault(
        "waits for a step too few",
        COPIED,
        "copy_async_wait<STAGES - 2>()",
        "copy_async_wait<STAGES - 1>()",
        header=SM80,
    ),
    Fault(
        "empty groups do not count",
        COPIED,
        "    copy_async_commit();",
        "    if (step < STEPS) copy_async_commit();",
        header=SM80,
    ),
    Fault(
        "no barrier before the staging",
        COPIED,
        "block_barrier();  // the stages become",
        "// the stages become",
        header=SM80,
    ),
    Fault(
        "fills the stage that is read",
        COPIED,
        "begin(step + STAGES - 1, free);",
        "begin(step + STAGES - 1, stage);",
        header=SM80,
    ),
    Fault(
        "puts into the stage that is read",
        COMPUTED,
        "end(step + STAGES - 1, free);",
        "end(step + STAGES - 1, stage);",
        header=SM80,
    ),
    Fault("stages by two", COPIED, "stage + 1 == STAGES ? 0 : stage + 1", "stage ^ 1", header=SM80),
    # ---- tiles and fragments
    Fault("no end of depth", COPIED, "(WHOLE_COLUMNS || at_column < COLUMNS)", "true", header=TILES),
    Fault("no end of rows", COPIED, "(WHOLE_LINES || at_line < LINES)", "true", header=TILES),
    Fault("no end of rows that are computed", COMPUTED, "(WHOLE_LINES || at_line < LINES)", "true", header=TILES),
    Fault("always whole tiles of depth", COPIED, "COLUMNS % TILE_COLUMNS == 0", "COLUMNS % 8 == 0", header=TILES),
    Fault("no swizzle", COPIED, "(chunk ^ line / (8 / TURNS) % TURNS)", "chunk", header=TILES),
    Fault(
        "tiles across in groups too high", COPIED, "DOWN - first < GROUP ? DOWN - first : GROUP", "GROUP", header=TILES
    ),
    Fault("fragments' halves swapped", COPIED, "COLUMNS ? second : third;", "COLUMNS ? third : second;", header=SM80),
    Fault("of columns, always the first half", COPIED, "[j / 2][j % 2 * 2]", "[j / 2][0]", header=SM80),
    # ---- the epilogue
    Fault("no barrier before staging again", COPIED, "warp_barrier();  // the rows", "// the rows", header=EPILOGUE),
    Fault("no barrier behind the staging", COPIED, "  warp_barrier();\n  part.use", "  part.use", header=EPILOGUE),
    Fault("no end of rows in the epilogue", COPIED, "row + r < Extents::ROWS && ", "", header=EPILOGUE),
    Fault("no end of columns in the epilogue", COPIED, " && column + c < Extents::COLUMNS)", ")", header=EPILOGUE),
    Fault(
        "fragments' rows by the wrong lanes",
        COPIED,
        "at + lane / 4 * STRIDE",
        "at + lane % 8 * STRIDE",
        header=EPILOGUE,
    ),
    Fault("staging without gaps", COPIED, "STRIDE = COLUMNS + RUN", "STRIDE = COLUMNS", header=EPILOGUE),
    Fault("staging read without turns", COPIED, "turned = lane & 4", "turned = false", header=EPILOGUE),
    # ---- fma
    Fault("fma without barrier between steps", PLAIN, "    block_barrier();\n  }\n\n", "  }\n\n", header=BY_FMA),
    Fault("fma in one buffer", PLAIN, "(shared + step % 2 * STAGE_BYTES);", "(shared);", header=BY_FMA),
    Fault(
        "fma of other columns",
        PLAIN,
        "(at / TOGETHER % PARTS * (LENGTH / RUN) + at / RUN)",
        "(at / TOGETHER)",
        header=BY_FMA,
    ),
    # ---- few products a sum
    Fault("few: beyond the last product", FEW, "there ? words[i] : 0", "words[i]", header=SHALLOW),
    Fault("few: products beyond the last read", FEW, "there ? first + k : 0", "first + k", header=SHALLOW),
    Fault("few: rows beyond the last read", FEW, "WHOLE || line(i) < OF ? line(i) : 0", "line(i)", header=SHALLOW),
    Fault("few: no end of rows", FEW, "(ALL_ROWS || r < Extents::ROWS) && ", "", header=SHALLOW),
    Fault("few: no end of columns", FEW, " && (ALL_COLUMNS || c < Extents::COLUMNS))", ")", header=SHALLOW),
    Fault("few: columns of other halves", FEW, "[half * 2 + i % 2]", "[half + i % 2 * 2]", header=SHALLOW),
    Fault("few: sums of other columns", FEW, "block * 2 + i / 2", "block * 2 + i % 2", header=SHALLOW),
    Fault("few: sums of other rows", FEW, "lane() % 4 * 2 + i % 2", "lane() % 4 + i % 2 * 4", header=SHALLOW),
    Fault("few: columns by the wrong lanes", FEW, "(run * 8 + lane() / 4)", "(run * 8 + lane() % 8)", header=SHALLOW),
    Fault("few: the same rows twice", FEW, "use(odd, at + NEXT)", "use(even, at + NEXT)", header=SHALLOW),
    Fault("few: the next rows too early", FEW, "at + 2 * NEXT : row", "at + NEXT : row", header=SHALLOW),
    Fault("few: fma of one row", FEW_PLAIN, "return row + i; }", "return row; }", header=SHALLOW),
    Fault("few: fma of other columns", FEW_PLAIN, "columns[j][k], sum", "columns[j ^ 1][k], sum", header=SHALLOW),
    # ---- what is generated
    Fault("result turned", COPIED, "out0 + 72 * row + column", "out0 + 72 * column + row"),
    Fault("operand one row on", COPIED, "in0 + 152 * row + column", "in0 + 152 * row + column + 152"),
    Fault("too wide a load", COPIED, "load<8, 8>(in2 + column)", "load<8, 8>(in2 + column + 4)"),
    Fault("rest of depth not zeroed", COMPUTED, "only_first(run, left)", "run", count=2),
    Fault(
        "rest of columns not masked",
        COMPUTED,
        "store_masked<8, 1, 1>(out0 + 71 * row + column, v1, left)",
        "store<8, 1>(out0 + 71 * row + column, v1)",
    ),
    Fault("columns apart without condition", APART, "if (column < 24) {", "{"),
    Fault("digit of another axis", APART, "= (column - 24) / 8;", "= (column - 16) / 8;"),
)
