"""Small kernels over the vocabulary of device_cuda.cuh, each with a result that is known without it, and their faults."""

import ml_dtypes
import numpy as np

from tests.emulator.faults import Fault, HandWritten

RNG = np.random.default_rng(5)


def small(*shape: int) -> np.ndarray:
    """Small integers as floats: every order of sums is exact."""
    return RNG.integers(-8, 9, shape).astype(np.float32)


# ---- a block's sum: lanes by shuffles, warps through shared memory
X = small(3, 256)
BLOCK_SUM = HandWritten(
    "block_sum",
    """
extern "C" __global__ void __launch_bounds__(256) k_block_sum(const float* RESTRICT in0, float* RESTRICT out0) {
  SHARED_MEMORY(shared);
  float* const parts = (float*)shared;
  float x = get(load<1, 1>(in0 + blockIdx.x * 256 + threadIdx.x), 0);
  for (int by = 16; by; by /= 2) x += shuffle_xor(x, by);
  if (threadIdx.x % 32 == 0) shared_store(parts + threadIdx.x / 32, splat<1>(x));
  block_barrier();
  float sum = 0;
  for (int i = 0; i < 8; i++) sum += get(shared_load<float, 1>(parts + i), 0);
  if (threadIdx.x == 0) store<1, 1>(out0 + blockIdx.x, splat<1>(sum));
}
""",
    3, 256, 64, (X,), (X.sum(1),),
)  # fmt: skip

# ---- each warp turns a tile of 32 x 32 around: rows in, columns out
Y = RNG.integers(0, 1 << 30, (2, 32, 32)).astype(np.int32)
WARP_TRANSPOSE = HandWritten(
    "warp_transpose",
    """
extern "C" __global__ void __launch_bounds__(64) k_warp_transpose(const int* RESTRICT in0, int* RESTRICT out0) {
  SHARED_MEMORY(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int* const tile = (int*)shared + warp * 32 * 33;
  for (int row = 0; row < 32; row++) shared_store(tile + row * 33 + lane, load<1, 1>(in0 + (warp * 32 + row) * 32 + lane));
  warp_barrier();
  for (int row = 0; row < 32; row++) store<1, 1>(out0 + (warp * 32 + row) * 32 + lane, shared_load<int, 1>(tile + lane * 33 + row));
}
""",
    1, 64, 2 * 32 * 33 * 4, (Y,), (Y.transpose(0, 2, 1).copy(),),
)  # fmt: skip

# ---- tiles of 128 x 16 bytes copied by cp.async, two ahead, each thread sums what its neighbour copied
T = small(10, 128, 4)
T_ROWS = 117  # of the last tile; the others are zeros
TT = T.copy()
TT[9, T_ROWS:] = 0
PIPELINE = HandWritten(
    "pipeline",
    f"""
extern "C" __global__ void __launch_bounds__(128) k_pipeline(const float* RESTRICT in0, float* RESTRICT out0) {{
  SHARED_MEMORY(shared);
  float* const stages = (float*)shared;
  const int me = threadIdx.x, other = 127 - me;
  auto fetch = [&](int tile) {{
    if (tile < 10) copy_async<16>(shared_address(stages + (tile % 3 * 128 + me) * 4), in0 + (tile * 128 + me) * 4, tile * 128 + me < 9 * 128 + {T_ROWS});
    copy_async_commit();
  }};
  fetch(0);
  fetch(1);
  auto sum = splat<4>(0.f);
  for (int tile = 0; tile < 10; tile++) {{
    copy_async_wait<1>();
    block_barrier();
    fetch(tile + 2);
    sum = add_(sum, shared_load<float, 4>(stages + (tile % 3 * 128 + other) * 4));
  }}
  store<4, 4>(out0 + me * 4, sum);
}}
""",
    1, 128, 3 * 128 * 16, (TT.reshape(-1, 4)[: 9 * 128 + T_ROWS],), (TT.sum(0)[::-1].copy(),),
)  # fmt: skip

# ---- a product 16 x 8 x 64 by one warp: a in swizzled rows of 128 bytes, b along K
A, B = small(16, 64), small(8, 64)
PRODUCT = HandWritten(
    "product",
    """
extern "C" __global__ void __launch_bounds__(32) k_product(const bf16* RESTRICT in0, const bf16* RESTRICT in1, float* RESTRICT out0) {
  SHARED_MEMORY(shared);
  bf16 *const a_tile = (bf16*)shared, *const b_tile = (bf16*)(shared + 16 * 128);
  const int lane = threadIdx.x;
  for (int i = lane; i < 16 * 8; i += 32) shared_store(a_tile + (i / 8 * 8 + (i % 8 ^ i / 8 % 8)) * 8, load<8, 8>(in0 + i * 8));
  for (int i = lane; i < 8 * 8; i += 32) shared_store(b_tile + (i / 8 * 8 + (i % 8 ^ i / 8 % 8)) * 8, load<8, 8>(in1 + i * 8));
  warp_barrier();
  float d[4] = {};
  for (int k = 0; k < 4; k++) {
    uint32_t a[4], b[2];
    const int row = lane % 16, half = 2 * k + lane / 16, column = lane % 8, b_half = 2 * k + lane / 8 % 2;
    load_matrix_x4(a, shared_address(a_tile + (row * 8 + (half ^ row % 8)) * 8));
    load_matrix_x2(b, shared_address(b_tile + (column * 8 + (b_half ^ column)) * 8));
    mma_16x8x16<bf16>(d, a, b[0], b[1]);
  }
  for (int i = 0; i < 2; i++) store<2, 2>(out0 + (lane / 4 + 8 * i) * 8 + lane % 4 * 2, Vec<float, 2>{d[2 * i], d[2 * i + 1]});
}
""",
    1, 32, 24 * 128, (A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)), (A @ B.T,),
)  # fmt: skip

# ---- how often each of 16 values occurs: atomics on shared memory, then on global
V = RNG.integers(0, 16, (4, 128)).astype(np.int32)
HISTOGRAM = HandWritten(
    "histogram",
    """
extern "C" __global__ void __launch_bounds__(128) k_histogram(const int* RESTRICT in0, int* RESTRICT out0) {
  SHARED_MEMORY(shared);
  int* const counts = (int*)shared;
  if (threadIdx.x < 16) shared_store(counts + threadIdx.x, splat<1>(0));
  if (threadIdx.x == 16) shared_store(counts + 16, splat<1>(-1));
  block_barrier();
  const int x = get(load<1, 1>(in0 + blockIdx.x * 128 + threadIdx.x), 0);
  atomic_add(counts + x, 1);
  atomic_max(counts + 16, x);
  block_barrier();
  if (threadIdx.x < 17) store<1, 1>(out0 + blockIdx.x * 17 + threadIdx.x, shared_load<int, 1>(counts + threadIdx.x));
}
""",
    4, 128, 128, (V,), (np.array([[*np.bincount(v, minlength=16), v.max()] for v in V], np.int32),),
)  # fmt: skip

# ---- two warps fill a stage, two others read it: named barriers of all four warps
W = small(6, 64)
SPECIALISED = HandWritten(
    "specialised",
    """
extern "C" __global__ void __launch_bounds__(128) k_specialised(const float* RESTRICT in0, float* RESTRICT out0) {
  SHARED_MEMORY(shared);
  float* const stage = (float*)shared;
  const int i = threadIdx.x % 64;
  if (threadIdx.x < 64)
    for (int t = 0; t < 6; t++) {
      shared_store(stage + i, load<1, 1>(in0 + t * 64 + i));
      named_barrier(1, 128);
      named_barrier(2, 128);
    }
  else
    for (int t = 0; t < 6; t++) {
      named_barrier(1, 128);
      store<1, 1>(out0 + t * 64 + i, shared_load<float, 1>(stage + 63 - i));
      named_barrier(2, 128);
    }
}
""",
    1, 128, 256, (W,), (W[:, ::-1].copy(),),
)  # fmt: skip

# ---- a row of 37 elements in vectors of 4, the last one masked
Z = small(5, 37)
MASKED = HandWritten(
    "masked",
    """
extern "C" __global__ void __launch_bounds__(32) k_masked(const float* RESTRICT in0, float* RESTRICT out0) {
  const int i = threadIdx.x * 4, row = blockIdx.x;
  if (i < 37) store_masked<4, 1>(out0 + row * 37 + i, add_(load_masked<4, 1>(in0 + row * 37 + i, 37 - i), splat<4>(1.f)), 37 - i);
}
""",
    5, 32, 0, (Z,), (Z + 1,),
)  # fmt: skip

KERNELS = (BLOCK_SUM, WARP_TRANSPOSE, PIPELINE, PRODUCT, HISTOGRAM, SPECIALISED, MASKED)

PRIMITIVE_FAULTS = (
    Fault("no block barrier", BLOCK_SUM, "  block_barrier();\n", "", "nobody wrote"),
    Fault("block barrier of some", BLOCK_SUM, "  block_barrier();", "  if (threadIdx.x < 128) block_barrier();"),
    Fault("block barrier after some are through", BLOCK_SUM, "  block_barrier();", "  if (threadIdx.x >= 128) return;\n  block_barrier();", "never reaches"),
    Fault("block barriers in two branches", BLOCK_SUM, "  block_barrier();\n",
          "  if (threadIdx.x < 128) block_barrier();\n  else block_barrier();\n", "divergent block_barrier"),
    Fault("shuffle mask of half a warp", BLOCK_SUM, "shuffle_xor(x, by)", "shuffle_xor(x, by, 0xffffu)", "does not name lane"),
    Fault("shuffle with other masks", BLOCK_SUM, "shuffle_xor(x, by)", "shuffle_xor(x, by, threadIdx.x % 32 ? ~0u : 0x7fffffffu)", "mask"),
    Fault("thread gone before a shuffle", BLOCK_SUM, "  float x =", "  if (threadIdx.x == 77) return;\n  float x =", "is through"),
    Fault("one sum too few", BLOCK_SUM, "by = 16", "by = 8"),
    Fault("no warp barrier", WARP_TRANSPOSE, "  warp_barrier();\n", "", "nobody wrote"),
    Fault("warp barrier of half a warp", WARP_TRANSPOSE, "warp_barrier();", "warp_barrier(lane < 16 ? 0xffffu : 0xffff0000u);"),
    Fault("tile without padding", WARP_TRANSPOSE, "33", "32", count=3),
    Fault("tile of one warp for two", WARP_TRANSPOSE, " + warp * 32 * 33", "", "race"),
    Fault("copies not waited for", PIPELINE, "    copy_async_wait<1>();\n", "", "on its way"),
    Fault("copies waited for too late", PIPELINE, "copy_async_wait<1>", "copy_async_wait<2>", "on its way"),
    Fault("copies not committed", PIPELINE, "    copy_async_commit();\n", "", "on its way"),
    Fault("no barrier after copies", PIPELINE, "    block_barrier();\n", ""),
    Fault("a stage too few", PIPELINE, "tile % 3", "tile % 2", count=2),
    Fault("copies without a predicate", PIPELINE, f", tile * 128 + me < 9 * 128 + {T_ROWS}", "", "which has"),
    Fault("predicate of a row too many", PIPELINE, f"9 * 128 + {T_ROWS}", f"9 * 128 + {T_ROWS} + 1", "which has"),
    Fault("no zeros where nothing is copied", PIPELINE, "if (tile < 10) copy", f"if (tile < 10 && tile * 128 + me < 9 * 128 + {T_ROWS}) copy", ""),
    Fault("copy of 16 bytes to 8", PIPELINE, "shared_address(stages + (tile % 3 * 128 + me) * 4)", "shared_address(stages + (tile % 3 * 128 + me) * 4 + 2)", "not aligned"),
    Fault("tile without swizzle", PRODUCT, "^ i / 8 % 8", "", count=2),
    Fault("matrix row between elements", PRODUCT, "shared_address(a_tile + (row", "shared_address(a_tile + 1 + (row", "not aligned"),
    Fault("b swapped", PRODUCT, "b[0], b[1]", "b[1], b[0]"),
    Fault("b not as it lies", PRODUCT, "load_matrix_x2(", "load_matrix_x2_transposed("),
    Fault("no barrier before a matrix is loaded", PRODUCT, "  warp_barrier();\n", "", ""),
    Fault("counts not zero", HISTOGRAM, "if (threadIdx.x < 16) shared_store", "if (threadIdx.x < 15) shared_store", "nobody wrote"),
    Fault("counts added one by one", HISTOGRAM, "atomic_add(counts + x, 1);", "shared_store(counts + x, splat<1>(get(shared_load<int, 1>(counts + x), 0) + 1));", "race"),
    Fault("no barrier after atomics", HISTOGRAM, "  atomic_max(counts + 16, x);\n  block_barrier();\n", "  atomic_max(counts + 16, x);\n", "race"),
    Fault("named barrier of too few", SPECIALISED, "      named_barrier(1, 128);\n      store", "      named_barrier(1, 64);\n      store", "for 64 threads"),
    Fault("other named barrier", SPECIALISED, "      named_barrier(1, 128);\n      store", "      named_barrier(3, 128);\n      store", "deadlock"),
    Fault("stage freed too early", SPECIALISED, "      named_barrier(1, 128);\n      named_barrier(2, 128);\n", "      named_barrier(1, 128);\n"),
    Fault("vector not masked", MASKED, "load_masked<4, 1>(in0 + row * 37 + i, 37 - i)", "load<4, 1>(in0 + row * 37 + i)", "which has"),
    Fault("vector not aligned", MASKED, "load_masked<4, 1>(", "load_masked<4, 4>(", "not aligned"),
    Fault("row not finished", MASKED, "if (i < 37)", "if (i < 36)"),
    Fault("input written", MASKED, "out0 + row * 37 + i, add_", "(float*)in0 + row * 37 + i, add_", "is an input"),
    Fault("output read", MASKED, "load_masked<4, 1>(in0", "load_masked<4, 1>(out0", "nobody wrote"),
    Fault("pointer beyond a tensor", MASKED, "splat<4>(1.f)", "splat<4>(in0[row * 37 + i + (1 << 26)])", "outside of every tensor"),
)  # fmt: skip
