// Loops of generated kernels on a CPU. A kernel is called for task = 0 ... tasks-1; the outermost loop is shared among them.
#pragma once
#include "vec_cpu.h"
#include "gemm_cpu.h"
#if defined(__clang__)
#define FP_NO_UNROLL _Pragma("clang loop unroll(disable)")
#define FP_UNROLL4 _Pragma("clang loop unroll_count(4)")
#define INTERLEAVED  // as it is
#else
// Of a kernel: instructions are put in order for their latencies before registers are given out. As they stand in the source,
// a few vectors' chains fill the CPU's schedulers: erf of 8 registers 4.1 -> 3.1 ns each. Where registers are short it harms:
// products of 16 terms 3.7 -> 5.7 ms.
#define INTERLEAVED __attribute__((optimize("schedule-insns", "sched-pressure")))
#define FP_NO_UNROLL _Pragma("GCC unroll 1")  // unrolled non-temporal stores interleave their streams: 2.9 -> 4.2 ms on RoPE
#define FP_UNROLL4 _Pragma("GCC unroll 4")
#endif
#define GRID(a, n) for (idx_t a = (idx_t)((n) * task / tasks), a##_end = (idx_t)((n) * (task + 1) / tasks); a < a##_end; a++)
#define ONCE if (task == 0)
#define LOOP(a, n) FP_NO_UNROLL for (idx_t a = 0; a < (n); a++)
// g++ makes two loops of two iterations over rows whatever the pragma says, and what fetches memory ahead of a loop by its
// address has to begin anew for each: 2.9 -> 5.4 ms on rows of two tiles, 134 MB. It must not know that there are two.
VDEV idx_t row_count(idx_t n) {
  if (__builtin_constant_p(n) && n == 2) __asm__("" : "+r"(n));
  return n;
}
#define ROWS(a, n) FP_NO_UNROLL for (idx_t a = 0, a##_rows = row_count(n); a < a##_rows; a++)
// Full vectors along a lane axis, then what is left of it: TAIL's body is masked to the last `n - a` lanes.
#define LANES(a, w, n, it) FP_UNROLL4 for (idx_t a = 0, a##_v = 0; a + (w) <= (n); a += (w), a##_v++)
#define TAIL(a, w, n, it) if (const idx_t a = (n) / (w) * (w), a##_v = a / (w); a < (n))
#define VECTORS(w, n) (((n) + (w) - 1) / (w))
#define FIRST_ROW
#define FIRST_LANE
VDEV idx_t clamp_index(idx_t i, idx_t extent) { return i < 0 ? 0 : i < extent ? i : extent - 1; }
// Every k-th element of `extent`, from `first` on, and the last or the first one in place of those that there are not: a
// piece of joined or padded tensors. Once for each type and width: where a kernel has one for each of 60 pieces, lanes
// that each have code took g++ 4.1 s.
template <int W, class T> inline __attribute__((noinline)) Vec<T, W> load_within(const T* p, idx_t k, idx_t first, idx_t extent, long n) {
  if (n == W && (first + W <= 0 || first >= extent)) return splat<W>(p[k * clamp_index(first, extent)]);
  return load_lanes<W>([=](int l) { return p[k * clamp_index(first + l, extent)]; }, n);
}
VDEV idx_t least_index(idx_t a, idx_t b) { return a < b ? a : b; }
#define GRID_ROWS GRID
// Brings the lines of n bytes into the second cache; any address will do.
template <int N> VDEV void fetch(const void* p) {
  for (int i = 0; i < N; i += 64) __builtin_prefetch((const char*)p + i, 0, 2);
}
// What is read only once: on AMD's CPUs into the first cache alone, past the others. Elsewhere into all of them: on a Xeon
// reading past the second cache took 1.5 -> 3.8 ms where two tensors of 21 MB were added.
#if defined(__znver1__) || defined(__znver2__) || defined(__znver3__) || defined(__znver4__) || defined(__znver5__)
constexpr int ONCE_LOCALITY = 0;
#else
constexpr int ONCE_LOCALITY = 3;
#endif
template <int N> VDEV void fetch_once(const void* p) {
  for (int i = 0; i < N; i += 64) __builtin_prefetch((const char*)p + i, 0, ONCE_LOCALITY);
}
#include "reduce.h"
#include "scan_cpu.h"
