"""Small kernels over the vocabulary of device_cuda.cuh (kernels/*.cu), whose results are known, and their faults."""

from pathlib import Path

import ml_dtypes
import numpy as np

from tests.emulator.faults import Fault, HandWritten

RNG = np.random.default_rng(5)


def source(name: str) -> str:
    return (Path(__file__).parent / "kernels" / f"{name}.cu").read_text()


def small(*shape: int) -> np.ndarray:
    """Small integers as floats: every order of sums is exact."""
    return RNG.integers(-8, 9, shape).astype(np.float32)


# ---- a block's sum: lanes by shuffles, warps through shared memory
X = small(3, 256)
BLOCK_SUM = HandWritten(
    "block_sum",
    source("block_sum"),
    3, 256, 64, (X,), (X.sum(1),),
)  # fmt: skip

# ---- each warp turns a tile of 32 x 32 around: rows in, columns out
Y = RNG.integers(0, 1 << 30, (2, 32, 32)).astype(np.int32)
WARP_TRANSPOSE = HandWritten(
    "warp_transpose",
    source("warp_transpose"),
    1, 64, 2 * 32 * 33 * 4, (Y,), (Y.transpose(0, 2, 1).copy(),),
)  # fmt: skip

# ---- tiles of 128 x 16 bytes copied by cp.async, two ahead, each thread sums what its neighbour copied
T = small(10, 128, 4)
T_ROWS = 117  # of the last tile, as in pipeline.cu; the others are zeros
TT = T.copy()
TT[9, T_ROWS:] = 0
PIPELINE = HandWritten(
    "pipeline",
    source("pipeline"),
    1, 128, 3 * 128 * 16, (TT.reshape(-1, 4)[: 9 * 128 + T_ROWS],), (TT.sum(0)[::-1].copy(),),
)  # fmt: skip

# ---- a product 16 x 8 x 64 by one warp: a in swizzled rows of 128 bytes, b along K
A, B = small(16, 64), small(8, 64)
PRODUCT = HandWritten(
    "product",
    source("product"),
    1, 32, 24 * 128, (A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)), (A @ B.T,),
)  # fmt: skip

# ---- how often each of 16 values occurs: atomics on shared memory, then on global
V = RNG.integers(0, 16, (4, 128)).astype(np.int32)
HISTOGRAM = HandWritten(
    "histogram",
    source("histogram"),
    4, 128, 128, (V,), (np.array([[*np.bincount(v, minlength=16), v.max()] for v in V], np.int32),),
)  # fmt: skip

# ---- two warps fill a stage, two others read it: named barriers of all four warps
W = small(6, 64)
SPECIALISED = HandWritten(
    "specialised",
    source("specialised"),
    1, 128, 256, (W,), (W[:, ::-1].copy(),),
)  # fmt: skip

# ---- a row of 37 elements in vectors of 4, the last one masked
Z = small(5, 37)
MASKED = HandWritten(
    "masked",
    source("masked"),
    5, 32, 0, (Z,), (Z + 1,),
)  # fmt: skip

# ---- sums of columns: each block's rows first, then by the last block all blocks' sums
L = small(20, 128)
LAST_BLOCK = HandWritten(
    "last_block",
    source("last_block"),
    5, 128, 16, (L,), (L.sum(0),), temporary=5 * 128, flags=1, launches=2,
)  # fmt: skip

# ---- sums of all elements before: each block waits for the one whose ticket is before its own
C = RNG.integers(-99, 99, 24 * 64).astype(np.int32)
LOOK_BACK = HandWritten(
    "look_back",
    source("look_back"),
    24, 64, 66 * 4, (C,), (C.cumsum().astype(np.int32),), temporary=24, flags=25,
)  # fmt: skip

# ---- all blocks wait for each other, then read what the next one wrote
G = RNG.integers(-99, 99, 6 * 64).astype(np.int32)
TOGETHER = HandWritten(
    "together",
    source("together"),
    6, 64, 0, (G,), (2 * (np.roll(G, -64) - G),), temporary=6 * 64, flags=1,
)  # fmt: skip

KERNELS = (
    *(BLOCK_SUM, WARP_TRANSPOSE, PIPELINE, PRODUCT, HISTOGRAM, SPECIALISED, MASKED),
    *(LAST_BLOCK, LOOK_BACK, TOGETHER),
)
FENCE, TICKET = "    memory_fence();\n", "    shared_store(ticket, splat<1>(atomic_add(flags, 1)));\n"

BLOCK_FAULTS = (
    Fault("no fence before the ticket", LAST_BLOCK, FENCE + TICKET, TICKET, "race: load"),
    Fault("no fence behind the ticket", LAST_BLOCK, TICKET + FENCE, TICKET, "race: load"),
    Fault("both fences before the ticket", LAST_BLOCK, FENCE + TICKET + FENCE, FENCE + FENCE + TICKET, "race: load"),
    Fault(
        "fence of another thread",
        LAST_BLOCK,
        "  if (threadIdx.x == 0) {\n" + FENCE,
        "  if (threadIdx.x == 1) memory_fence();\n  if (threadIdx.x == 0) {\n",
        "race: load",
    ),
    Fault(
        "no barrier before the ticket",
        LAST_BLOCK,
        "  block_barrier();\n  if (threadIdx.x == 0) {",
        "  if (threadIdx.x == 0) {",
        "race: load",
    ),
    Fault("plain tickets", LAST_BLOCK, "atomic_add(flags, 1)", "read(flags)"),
    Fault(
        "tickets by loads and stores",
        LAST_BLOCK,
        "shared_store(ticket, splat<1>(atomic_add(flags, 1)));",
        "const int n = read(flags); write(flags, n + 1); shared_store(ticket, splat<1>(n));",
        "race",
    ),
    Fault("the last but one is the last", LAST_BLOCK, "blocks - 1) return", "blocks - 2) return"),
    Fault(
        "every block is the last", LAST_BLOCK, "  if (get(shared_load<int, 1>(ticket), 0) != blocks - 1) return;\n", ""
    ),
    Fault("sums of all blocks in one place", LAST_BLOCK, "write(tmp0 + blockIdx.x * 128", "write(tmp0", "race: store"),
    Fault(
        "the ticket is set back early",
        LAST_BLOCK,
        "  block_barrier();\n  if (get(",
        "  if (threadIdx.x == 0) write(flags, 0);\n  block_barrier();\n  if (get(",
    ),
    Fault("the ticket is not set back", LAST_BLOCK, "  if (threadIdx.x == 0) write(flags, 0);\n", ""),
    Fault(
        "written once more",
        LAST_BLOCK,
        "  write(out0 + column, total);",
        "  write(out0 + column, total);\n  block_barrier();\n  write(out0 + 127 - column, total);",
        "nobody read since",
    ),
    Fault(
        "tiles in the order of blocks",
        LOOK_BACK,
        "const int tile = get(shared_load<int, 1>(part + 64), 0);",
        "const int tile = blockIdx.x;",
        "deadlock",
    ),
    Fault(
        "the flag before the value",
        LOOK_BACK,
        "    write(tmp0 + tile, before + sum);\n    store_release(flags + tile + 1, 1);",
        "    store_release(flags + tile + 1, 1);\n    write(tmp0 + tile, before + sum);",
    ),
    Fault("a plain flag", LOOK_BACK, "store_release(flags + tile + 1, 1)", "write(flags + tile + 1, 1)"),
    Fault(
        "a flag by an atomic without a fence",
        LOOK_BACK,
        "store_release(flags + tile + 1, 1)",
        "atomic_add(flags + tile + 1, 1)",
        "race: load",
    ),
    Fault("nobody waits", LOOK_BACK, "      wait_until(flags + tile, [](int f) { return f == 1; });\n", ""),
    Fault("waits for another value", LOOK_BACK, "f == 1", "f == 2", "deadlock"),
    Fault("waits for the flag before", LOOK_BACK, "wait_until(flags + tile,", "wait_until(flags + tile - (tile > 1),"),
    Fault("no fence before all meet", TOGETHER, FENCE, "", "race: load"),
    Fault("one block too few", TOGETHER, "f == blocks", "f >= blocks - 1"),
    Fault("all but the first wait", TOGETHER, "  block_barrier();\n  write(out0", "  write(out0"),
    Fault("one waits for more blocks than there are", TOGETHER, "f == blocks", "f == blocks + 1", "deadlock"),
)

PRIMITIVE_FAULTS = (
    Fault("no block barrier", BLOCK_SUM, "  block_barrier();\n", "", "nobody wrote"),
    Fault("block barrier of some", BLOCK_SUM, "  block_barrier();", "  if (threadIdx.x < 128) block_barrier();"),
    Fault(
        "block barrier after some are through",
        BLOCK_SUM,
        "  block_barrier();",
        "  if (threadIdx.x >= 128) return;\n  block_barrier();",
        "never reaches",
    ),
    Fault(
        "block barriers in two branches",
        BLOCK_SUM,
        "  block_barrier();\n",
        "  if (threadIdx.x < 128) block_barrier();\n  else block_barrier();\n",
        "divergent block_barrier",
    ),
    Fault(
        "shuffle mask of half a warp",
        BLOCK_SUM,
        "shuffle_xor(x, by)",
        "shuffle_xor(x, by, 0xffffu)",
        "does not name lane",
    ),
    Fault(
        "shuffle with other masks",
        BLOCK_SUM,
        "shuffle_xor(x, by)",
        "shuffle_xor(x, by, threadIdx.x % 32 ? ~0u : 0x7fffffffu)",
        "mask",
    ),
    Fault(
        "thread gone before a shuffle",
        BLOCK_SUM,
        "  float x =",
        "  if (threadIdx.x == 77) return;\n  float x =",
        "is through",
    ),
    Fault("one sum too few", BLOCK_SUM, "by = 16", "by = 8"),
    Fault(
        "columns are read",
        WARP_TRANSPOSE,
        "in0 + (warp * 32 + row) * 32 + lane",
        "in0 + (warp * 32 + (row + lane) % 32) * 32 + lane",
    ),
    Fault("no warp barrier", WARP_TRANSPOSE, "  warp_barrier();\n", "", "nobody wrote"),
    Fault(
        "warp barrier of half a warp",
        WARP_TRANSPOSE,
        "warp_barrier();",
        "warp_barrier(lane < 16 ? 0xffffu : 0xffff0000u);",
    ),
    Fault("tile without padding", WARP_TRANSPOSE, "33", "32", count=3),
    Fault("tile of one warp for two", WARP_TRANSPOSE, " + warp * 32 * 33", "", "race"),
    Fault("copies not waited for", PIPELINE, "    copy_async_wait<1>();\n", "", "on its way"),
    Fault("copies waited for too late", PIPELINE, "copy_async_wait<1>", "copy_async_wait<2>", "on its way"),
    Fault("copies not committed", PIPELINE, "    copy_async_commit();\n", "", "on its way"),
    Fault("no barrier after copies", PIPELINE, "    block_barrier();\n", ""),
    Fault("a stage too few", PIPELINE, "tile % 3", "tile % 2", count=2),
    Fault("copies without a predicate", PIPELINE, ", tile * 128 + me < 9 * 128 + 117", "", "which has"),
    Fault("predicate of a row too many", PIPELINE, "9 * 128 + 117", "9 * 128 + 117 + 1", "which has"),
    Fault(
        "no zeros where nothing is copied",
        PIPELINE,
        "if (tile < 10) copy",
        "if (tile < 10 && tile * 128 + me < 9 * 128 + 117) copy",
        "",
    ),
    Fault(
        "copy of 16 bytes to 8",
        PIPELINE,
        "shared_address(stages + (tile % 3 * 128 + me) * 4)",
        "shared_address(stages + (tile % 3 * 128 + me) * 4 + 2)",
        "not aligned",
    ),
    Fault("tile without swizzle", PRODUCT, "^ i / 8 % 8", "", count=2),
    Fault(
        "matrix row between elements",
        PRODUCT,
        "shared_address(a_tile + (row",
        "shared_address(a_tile + 1 + (row",
        "not aligned",
    ),
    Fault("b swapped", PRODUCT, "b[0], b[1]", "b[1], b[0]"),
    Fault("b not as it lies", PRODUCT, "load_matrix_x2(", "load_matrix_x2_transposed("),
    Fault("no barrier before a matrix is loaded", PRODUCT, "  warp_barrier();\n", "", ""),
    Fault(
        "counts not zero",
        HISTOGRAM,
        "if (threadIdx.x < 16) shared_store",
        "if (threadIdx.x < 15) shared_store",
        "nobody wrote",
    ),
    Fault(
        "counts added one by one",
        HISTOGRAM,
        "atomic_add(counts + x, 1);",
        "shared_store(counts + x, splat<1>(get(shared_load<int, 1>(counts + x), 0) + 1));",
        "race",
    ),
    Fault(
        "no barrier after atomics",
        HISTOGRAM,
        "  atomic_max(counts + 16, x);\n  block_barrier();\n",
        "  atomic_max(counts + 16, x);\n",
        "race",
    ),
    Fault(
        "named barrier of too few",
        SPECIALISED,
        "      named_barrier(1, 128);\n      store",
        "      named_barrier(1, 64);\n      store",
        "for 64 threads",
    ),
    Fault(
        "other named barrier",
        SPECIALISED,
        "      named_barrier(1, 128);\n      store",
        "      named_barrier(3, 128);\n      store",
        "deadlock",
    ),
    Fault(
        "stage freed too early",
        SPECIALISED,
        "      named_barrier(1, 128);\n      named_barrier(2, 128);\n",
        "      named_barrier(1, 128);\n",
    ),
    Fault(
        "vector not masked",
        MASKED,
        "load_masked<4, 1>(in0 + row * 37 + i, 37 - i)",
        "load<4, 1>(in0 + row * 37 + i)",
        "which has",
    ),
    Fault("vector not aligned", MASKED, "load_masked<4, 1>(", "load_masked<4, 4>(", "not aligned"),
    Fault("row not finished", MASKED, "if (i < 37)", "if (i < 36)"),
    Fault("input written", MASKED, "out0 + row * 37 + i, add_", "(float*)in0 + row * 37 + i, add_", "is an input"),
    Fault("output read", MASKED, "load_masked<4, 1>(in0", "load_masked<4, 1>(out0", "nobody wrote"),
    Fault(
        "pointer beyond a tensor",
        MASKED,
        "splat<4>(1.f)",
        "splat<4>(in0[row * 37 + i + (1 << 26)])",
        "outside of every tensor",
    ),
)
