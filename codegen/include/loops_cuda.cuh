// Loops of generated kernels on CUDA. Every kernel defines constexpr int TX, TY: threads along lane vectors and along rows.
#pragma once
#include "device_cuda.cuh"
#define GRID(a, n) for (idx_t a = blockIdx.x; a < (n); a += gridDim.x)
#define GRID_ROWS(a, n) for (idx_t a = (idx_t)blockIdx.x * TY + threadIdx.y; a < (n); a += (idx_t)gridDim.x * TY)
#define ONCE if (blockIdx.x == 0)
#define LOOP(a, n) for (idx_t a = 0; a < (n); a++)
#define UNROLL(a, n) _Pragma("unroll") for (int a = 0; a < (n); a++)
// Row r of a thread, which indexes registers.
#define ROWS_KEPT(a, n) _Pragma("unroll") for (int a##_r = 0; a##_r < ROWS_OF(n); a##_r++) \
  if (const idx_t a = threadIdx.y + a##_r * TY; a < (n))
#define ROWS_KEPT_WHOLE(a, n) _Pragma("unroll") for (int a##_r = 0; a##_r < (n) / TY; a##_r++) \
  if (const idx_t a = threadIdx.y + a##_r * TY; true)
#define ROWS_OF(n) (((n) + TY - 1) / TY)
// Of rows that come out even, and of vectors: no thread ends before the others. In bits, so that the compiler sees which of them
// are constants.
#define ROWS_EVEN(a, n) _Pragma("unroll") for (int a##_r = 0; a##_r < (n) / TY; a##_r++) \
  if (const idx_t a = threadIdx.y % TY ^ a##_r * TY; true)
#define LANES_EVEN(a, w, n, it) _Pragma("unroll") for (int a##_v = 0; a##_v < (it); a##_v++) \
  if (const idx_t a = (a##_v * TX ^ threadIdx.x % TX) * (w); true)
#define ROWS(a, n) _Pragma("unroll 4") for (idx_t a = threadIdx.y; a < (n); a += TY)
// Here and below, _WHOLE: n is a constant that threads share evenly. With no thread left out by a branch, the loads of many
// iterations are on their way together.
#define ROWS_WHOLE(a, n) _Pragma("unroll 4") for (int a##_r = 0; a##_r < (n) / TY; a##_r++) \
  if (const idx_t a = threadIdx.y + a##_r * TY; true)
// Rows that threads join results in: nothing of the next one can begin before, so that unrolling only takes registers.
#define ROWS_APART(a, n) _Pragma("unroll 1") for (idx_t a = threadIdx.y; a < (n); a += TY)
// Vector v of thread x starts at lane (v * TX + x) * w; full vectors and the masked last one are told apart per thread. Where
// v indexes registers, loops are unrolled: LANES and TAIL, and LANES_MANY and TAIL_MANY where n is known at run time only.
#define LANES(a, w, n, it) _Pragma("unroll") for (int a##_v = 0; a##_v < (it); a##_v++) \
  if (const idx_t a = ((idx_t)a##_v * TX + threadIdx.x) * (w); a + (w) <= (n))
#define LANES_WHOLE(a, w, n, it) _Pragma("unroll") for (int a##_v = 0; a##_v < (it); a##_v++) \
  if (const idx_t a = ((idx_t)a##_v * TX + threadIdx.x) * (w); true)
#define TAIL(a, w, n, it) if (const int a##_v = (n) / (w) / TX; (int)threadIdx.x == (n) / (w) % TX) \
  if (const idx_t a = (n) / (w) * (w); a < (n))
#define LANES_MANY LANES
#define TAIL_MANY(a, w, n, it) _Pragma("unroll") for (int a##_v = 0; a##_v < (it); a##_v++) \
  if (const idx_t a = ((idx_t)a##_v * TX + threadIdx.x) * (w); a < (n) && a + (w) > (n))
#define LANES_LOOP(a, w, n, it) _Pragma("unroll 4") for (idx_t a = (idx_t)threadIdx.x * (w), a##_v = 0; a + (w) <= (n); \
  a += TX * (w), a##_v++)
#define LANES_LOOP_WHOLE(a, w, n, it) _Pragma("unroll 4") for (int a##_v = 0; a##_v < (it); a##_v++) \
  if (const idx_t a = ((idx_t)a##_v * TX + threadIdx.x) * (w); true)
#define TAIL_LOOP TAIL
// Vectors that all threads of a row go through in step. Beyond the end, a thread has the last vector once more; a##_left says how
// many lanes there are.
#define IN_STEP(a, w, n, it) _Pragma("unroll 1") IN_STEP_LOOP(a, w, n, it)
#define IN_STEP_MANY(a, w, n, it) _Pragma("unroll") IN_STEP_LOOP(a, w, n, it)
#define IN_STEP_LOOP(a, w, n, it) for (int a##_v = 0; a##_v < (it); a##_v++) \
  if (const idx_t a##_own = ((idx_t)a##_v * TX + threadIdx.x) * (w), a = a##_own < (n) ? a##_own : ((n) - 1) / (w) * (w), \
      a##_left = a##_own < (n) ? (n) - a : 0; true)
#define VECTORS(w, n) (((n) + (w) * TX - 1) / ((w) * TX))
#define FIRST_ROW if (threadIdx.y == 0)
#define FIRST_LANE if (threadIdx.x == 0)
VDEV long long clamp_index(long long i, long long extent) { return i < 0 ? 0 : i < extent ? i : extent - 1; }
template <class I> VDEV I least_index(int a, I b) { return a < b ? a : b; }  // I: as wide as the kernel's indices
#include "reduce.h"
#include "threads_cuda.cuh"
#include "scan_cuda.cuh"
#include "tiles_cuda.cuh"
#include "gemm_sm80.cuh"
#include "gemm_fma.cuh"
