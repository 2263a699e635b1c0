"""Faults of loop programs on CUDA: in what threads join, in tiles, in tails, and in what is generated around them."""

from collections.abc import Callable

from fusion_ir import building as B
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f32
from fusion_ir.ops import make
from fusion_ir.text.printing import print_graph
from testing.tensors import graph_of, spec
from tests.emulator.faults import Fault, Generated
from tests.support.loop_graphs import norm_backward

THREADS, TILES, LOOPS, SCANS = "threads_cuda.cuh", "tiles_cuda.cuh", "loops_cuda.cuh", "scan_cuda.cuh"


def subject(
    name: str, schedule: str, compute: Callable[..., Node | list[Node]], *shapes: tuple[int, ...], dtype: DType = f32
) -> Generated:
    graph = graph_of([spec(shape, dtype) for shape in shapes], compute)
    return Generated(name, schedule.partition("{")[0], print_graph(graph), schedule)


def turned(x: Node, y: Node) -> list[Node]:
    total = B.add(x, make("permute", [y], {"dims": (1, 0)}))
    return [total, make("permute", [B.neg(total)], {"dims": (1, 0)})]


# Rows longer than a warp, with an odd rest; several blocks, each with two rows.
ROWS = subject(
    "rows", "reduction{vec=4,x=64,y=2,per=1,keep=registers,dear=0}", lambda x: B.sum_(x, 1), (7, 515), dtype=bf16
)
SHORT = subject("short", "reduction{vec=4,x=8,y=8,per=1,keep=registers,dear=0}", lambda x: B.argmax(x, 1), (21, 70))
COLUMNS = subject("columns", "reduction{vec=4,x=8,y=8,per=1,keep=registers,dear=0}", lambda x: B.sum_(x, 0), (37, 77))
TALL = subject("tall", "reduction{vec=4,x=4,y=32,per=1,keep=registers,dear=0}", lambda x: B.sum_(x, 0), (75, 37))
SOFTMAX = subject("softmax", "normalization{vec=4,x=64,y=1,per=1,keep=shared,dear=0}", B.softmax, (5, 700))
HELD = subject("held", "normalization{vec=4,x=32,y=2,per=1,keep=registers,dear=0}", B.softmax, (5, 391))
# Rows one after another, each of which threads join results in, and sums down their columns.
APART = subject(
    "apart", "normalization{vec=4,x=32,y=2,per=1,keep=shared,dear=0}", lambda x, dy: norm_backward(x, dy, 12),
    (36, 130), (36, 130),
)  # fmt: skip
TURNED = subject("turned", "transpose{vec=4,x=8,y=8,rows=32,columns=32}", turned, (70, 45), (45, 70))
# Aligned: chunks of 16 bytes, of which the last column has one and a half.
ALIGNED = subject("aligned", "transpose{vec=4,x=8,y=8,rows=64,columns=64}", turned, (70, 64), (64, 70))
# Whole tiles, by copies that run by themselves and by ldmatrix; what is added is read ahead of them.
WHOLE = subject("whole", "transpose{vec=8,x=4,y=32,rows=64,columns=32}", turned, (128, 128), (128, 128), dtype=bf16)
THIN = subject("thin", "gemv{rows=2,few=2,vec=4,x=32,y=2,per=1}", B.linear, (2, 130), (66, 130))
ADDED = subject("added", "pointwise{vec=4,x=32,y=2,per=1}", lambda x, y: B.add(x, y), (9, 130), (9, 130))
NAIVE = subject("naive", "naive{threads=64}", lambda x: B.sum_(B.exp(x), 1), (77, 9))
# Rows of three steps, each by two warps; and of two rows to a warp.
SCANNED = subject("scanned", "scan{vec=4,x=64,y=2,per=1,keep=registers,dear=0}", lambda x: B.cumsum(x, 1), (5, 700))
SHORTLY = subject("shortly", "scan{vec=2,x=16,y=4,per=1,keep=registers,dear=0}", lambda x: B.cumsum(x, 1), (9, 75))
SUBJECTS = (
    SCANNED,
    SHORTLY,
    ROWS,
    SHORT,
    COLUMNS,
    TALL,
    SOFTMAX,
    HELD,
    APART,
    TURNED,
    ALIGNED,
    WHOLE,
    THIN,
    ADDED,
    NAIVE,
)

LOOP_FAULTS = (
    # ---- running sums
    Fault(
        "no barrier between telling and asking",
        SCANNED,
        "    row_barrier<TX, TY>();  // the set",
        "    // the set",
        "",
        SCANS,
    ),
    Fault("turns do not change", SCANNED, "    carry.turn ^= 1;\n", "", "race", SCANS),
    Fault("warps count themselves", SCANNED, "if (i < warp)", "if (i <= warp)", "", SCANS),
    Fault("threads count themselves", SHORTLY, "place == 0 ? lane : lane - 1", "lane", "", SCANS),
    Fault("half of the steps", SHORTLY, "k < NEAR; k *= 2", "k < NEAR / 2; k *= 2", "", SCANS),
    Fault(
        "lanes before are those of another row",
        SHORTLY,
        "place < k ? lane : lane - k",
        "lane < k ? lane : lane - k",
        "",
        SCANS,
    ),
    Fault("nothing of the vectors before", SCANNED, "  carry.total = f(carry.total, total);\n", "", "", SCANS),
    Fault("rows tell each other", SCANNED, "(carry.turn * TY + threadIdx.y) * WARPS", "carry.turn * WARPS", "", SCANS),
    Fault("the first row's total for all", SHORTLY, "from(all, first + NEAR - 1)", "from(all, NEAR - 1)", "", SCANS),
    Fault(
        "vectors beyond the end are written",
        SCANNED,
        "a##_left = a##_own < (n) ? (n) - a : 0",
        "a##_left = (n) - a",
        "",
        LOOPS,
    ),
    # ---- many rows, some of which take in the others
    Fault(
        "no barrier behind what some rows took in",
        TALL,
        "    }\n    block_barrier();\n  }\n  x = get",
        "    }\n  }\n  x = get",
        "",
        THREADS,
    ),
    Fault("a row is taken in twice", TALL, "i = threadIdx.y + NEAR; i < TY", "i = threadIdx.y; i < TY", "", THREADS),
    # ---- rows one after another
    Fault(
        "rows of other threads",
        APART,
        "a = threadIdx.y; a < (n); a += TY)\n// Vector v",
        "a = 0; a < (n); a += TY)\n// Vector v",
        "",
        LOOPS,
    ),
    Fault(
        "odd and even lanes at two barriers",
        ROWS,
        "  else named_barrier(1 + threadIdx.y, TX);",
        "  else if (threadIdx.x % 2) named_barrier(1 + threadIdx.y, TX);\n  else named_barrier(1 + threadIdx.y, TX);",
        "divergent",
        THREADS,
    ),
    Fault("rows by every block", ROWS, "a += (idx_t)gridDim.x * TY)", "a += TY)", "race: store", LOOPS),
    Fault(
        "lanes side by side are rows apart",
        TURNED,
        "const int j = (j0 + (int)(thread % NEAR)) * N, own = thread / NEAR % HIGH;",
        "const int j = (j0 + (int)(thread / HIGH % NEAR)) * N, own = thread % HIGH;",
        "",
        TILES,
    ),
    Fault("every row by all threads", APART, "a < (n); a += TY)\n// Vector v", "a < (n); a++)\n// Vector v", "", LOOPS),
    # ---- what threads join
    Fault(
        "no barrier behind a row's slots", ROWS, "x);\n    row_barrier<TX, TY>();\n", "x);\n", "shared memory", THREADS
    ),
    Fault("no barrier ahead of a row's slots", SOFTMAX, "    row_barrier<TX, TY>();  //", "    //", "race", THREADS),
    Fault("rows wait at one barrier", ROWS, "named_barrier(1 + threadIdx.y, TX)", "named_barrier(1, TX)", "", THREADS),
    Fault(
        "the last exchange is left out",
        SHORT,
        "for (int k = NEAR / 2; k; k",
        "for (int k = NEAR / 2; k > 1; k",
        "",
        THREADS,
    ),
    Fault("the mask is that of another row", SHORT, "<< (lane & ~(NEAR - 1))", "<< (lane / NEAR)", "", THREADS),
    Fault(
        "a warp's part is left out",
        ROWS,
        "for (int i = 1; i < WARPS; i++)",
        "for (int i = 2; i < WARPS; i++)",
        "",
        THREADS,
    ),
    Fault("rows share their slots", ROWS, "threadIdx.y * WARPS + threadIdx.x / 32", "threadIdx.x / 32", "", THREADS),
    Fault(
        "no barrier behind a column's slots", COLUMNS, "x);\n  block_barrier();\n", "x);\n", "shared memory", THREADS
    ),
    Fault(
        "a row's part is left out",
        COLUMNS,
        "for (int i = 1; i < NEAR; i++)",
        "for (int i = 2; i < NEAR; i++)",
        "",
        THREADS,
    ),
    Fault(
        "columns are taken for each other",
        COLUMNS,
        "get_slot<V>(shared, threadIdx.x);",
        "get_slot<V>(shared, threadIdx.y);",
        "",
        THREADS,
    ),
    Fault(
        "too little shared memory for slots", COLUMNS, "shared + JOINED_X", "shared + JOINED_X + 64", "shared memory"
    ),
    # ---- rows and lanes
    Fault(
        "every row stores its part",
        COLUMNS,
        "FIRST_ROW store_masked",
        "store_masked<4, 4>(out0 + 32 * i0 + i1, splat<4>(1.0f), 1); FIRST_ROW store_masked",
    ),
    Fault("the accumulator begins with another value", SOFTMAX, "0x80000000u", "0x3f800000u"),
    Fault("the last row is left out", ROWS, "GRID_ROWS(i0, 7)", "GRID_ROWS(i0, 6)"),
    Fault("one row more", ROWS, "GRID_ROWS(i0, 7)", "GRID_ROWS(i0, 8)", "in0"),
    Fault(
        "no tail",
        HELD,
        "TAIL(i1, 4, 391, VECTORS(4, 391)) {\n      const auto v5",
        "TAIL(i1, 4, 388, VECTORS(4, 391)) {\n      const auto v5",
    ),
    Fault(
        "the tail is not masked",
        HELD,
        "load_masked<4, 1, 1>(in0 + 391 * i0 + i1, 391 - i1)",
        "load<4, 1>(in0 + 391 * i0 + i1)",
        "in0",
    ),
    Fault("the tail counts lanes beyond the end", HELD, "first_lanes(391 - i1, add_", "first_lanes(4, add_"),
    Fault(
        "accesses wider than rows are aligned",
        THIN,
        "load<4, 2>(in1 + 260 * i0 + 130 * 1 + i1)",
        "load<4, 4>(in1 + 260 * i0 + 130 * 1 + i1)",
        "aligned",
    ),
    Fault(
        "every thread has the tail",
        HELD,
        "(int)threadIdx.x == (n) / (w) % TX",
        "true",
        "",
        LOOPS,
    ),
    Fault("a kept row is read from the next place", SOFTMAX, "kv0.get(i1_v)", "kv0.get(i1_v + 1)"),
    Fault("kept rows lie over each other", SOFTMAX, "shared + JOINED + 3072", "shared + JOINED + 1024"),
    Fault(
        "a kept row reaches beyond shared memory",
        SOFTMAX,
        "shared + JOINED + 3072",
        "shared + JOINED + 4096",
        "shared memory",
    ),
    Fault("rows of the matrix are swapped", THIN, "kv0[0][1] = join_x", "kv0[1][1] = join_x"),
    # ---- tiles
    Fault("no barrier behind a fill", TURNED, "filled();\n    ROWS", "ROWS", "shared memory"),
    Fault("no barrier ahead of emptying", TURNED, "block_barrier();\n    empty", "empty", "shared memory"),
    Fault("copies are not waited for", WHOLE, "  copy_async_wait<0>();\n", "", "shared memory", TILES),
    Fault("chunks stay in their places", ALIGNED, "(i / W ^ i % 2 * 4) & (GROUP - 1)", "0", "", TILES),
    Fault("odd rows are in the banks of even ones", WHOLE, "(i / W ^ i % 2 * 4)", "(i / W)", "", TILES),
    Fault("rows and columns of a tile are swapped", ALIGNED, "place(i + k, j)", "place(i, j + k)", "", TILES),
    Fault("rows of matrices are swapped", WHOLE, "lane / 8 * 2 + lane % 2", "lane / 8 + lane % 2 * 4", "", TILES),
    Fault("a warp empties another column", WHOLE, "thread % 32 / 4;", "thread / 4 % 4;", "", TILES),
    Fault(
        "a tile's last column is left out",
        TURNED,
        "(i >= high || j >= wide)",
        "(i + 1 >= high || j >= wide)",
        "",
        TILES,
    ),
    Fault("a chunk is read beyond the tensor", TURNED, "j + N <= (WHOLE ? J : wide)", "true", "", TILES),
    Fault("a tile is written beyond the tensor", ALIGNED, "(i < high && j < wide)", "(i < high)", "", TILES),
    Fault("what was read early is of another row", WHOLE, "= e0[i2_r][i3_v]", "= e0[0][i3_v]"),
    # ---- pointwise
    Fault(
        "a block's lanes are those of the next",
        ADDED,
        "store<4, 4>(out0 + 128 * i0 + i1, v2)",
        "store<4, 4>(out0 + 128 * i0 + i1 + 4, v2)",
    ),
    # Beyond the end of one input, which may lie closer to the other.
    Fault("the end is that of a whole block", ADDED, "least_index(128, 1170 - 128 * i0)", "128", "load of 16 bytes"),
    # ---- one element for each thread
    Fault("the last element is left out", NAIVE, "GRID_ROWS(e0, 77)", "GRID_ROWS(e0, 76)"),
    Fault("one element more", NAIVE, "GRID_ROWS(e0, 77)", "GRID_ROWS(e0, 78)", "in0"),
    Fault("every sum starts anew", NAIVE, "first_v0 = false;", "first_v0 = true;"),
)
