// Products of bf16 matrices by the x86-64 instruction that adds two products to a float, on the calling thread.
//
// Blocks of both operands are put together as panels that the inner loop reads one element after the other: read where
// they lie, rows a power of two apart would share a few sets of the first cache.
//
// The instruction takes denormals for 0 and gives none. Sums of products are multiples of the last place of the smallest
// product: where the smallest magnitudes of both operands are far from denormals, nothing is lost. Elsewhere 2^-126 is lost
// of each product at most, or, if an operand of it is denormal, 2^-126 times the other one. That is little beside results that
// are not small themselves, and small ones are computed once more; all are where a denormal may meet a large element.
#pragma once
#include "vec_cpu.h"
#if defined(VEC_AVX512) && defined(__AVX512BF16__) && defined(VEC_SHUFFLES)
#define GEMM_PAIRS 1
namespace pairs {
constexpr idx_t ROWS = 8, COLUMNS = 48;           // of C in registers: 24 of them
constexpr idx_t DEPTH = 256, STEPS = DEPTH / 2;   // of a panel of B: 24 KiB, for the first cache
constexpr int LEAST_EXPONENTS = 127 + 127 - 100;  // biased, of the smallest magnitudes of both operands
constexpr uint16_t LARGE = (127 + 25) << 7;       // 2^25 as bf16
constexpr float LEAST_SUM = 0x1p-60f;             // what is lost of 2^16 products of no LARGE elements is 2^-25 of that
typedef uint32_t Pair;                            // two elements that follow each other along the sum
using Pairs = Reg<Pair, 16>;

// An operand in memory. apart: elements from one row of A or column of B to the next. along: from one element of the sum
// to the next. One of them is 1.
template <class T> struct Strided {
  const T* from;
  idx_t apart, along;
  Strided at(idx_t i, idx_t l) const { return {from + i * apart + l * along, apart, along}; }
  idx_t step() const { return along == 1 ? apart : along; }  // from one run of neighbours to the next
};
using Source = Strided<bf16>;
// Panels of SIDE rows of A or columns of B: the pairs of each step along the sum side by side.
template <idx_t SIDE> VDEV void put(Pair* to, idx_t side, idx_t step, Pairs r) {
  constexpr idx_t PIECE = SIDE < 16 ? SIDE : 16;
  VEC_UNROLL for (idx_t q = 0; q < 16; q += PIECE)
    memcpy(to + (side + q) / SIDE * (STEPS * SIDE) + step * SIDE + (side + q) % SIDE, (const char*)&r + q * sizeof(Pair),
           PIECE * sizeof(Pair));
}
// Of `count` neighbours the first 16, or the first 32 as pairs; what is missing is 0.
VDEV Pairs some(const bf16* from, idx_t count) {
  if (__builtin_expect(count >= 16, 1)) return core::convert<Pair>(load<16, 1>((const uint16_t*)from).v);
  return count > 0 ? core::convert<Pair>(load_masked<16, 1>((const uint16_t*)from, count).v) : Pairs{};
}
VDEV Pairs some_pairs(const bf16* from, idx_t count) {
  Pairs r{};
  if (__builtin_expect(count >= 32, 1)) {
    memcpy(&r, from, sizeof r);
  } else if (count > 0) {
    if (count > 1) r = load_masked<16, 1>((const Pair*)from, count / 2).v;
    if (count % 2) core::set_lane(r, count / 2, (Pair)from[count - 1].u);
  }
  return r;
}
// 16 rows or columns by 16 pairs, the first ones of x, to the panels' places; what is missing is 0.
template <idx_t SIDE> VDEV void pack_some(idx_t count, idx_t depth, Source x, Pair* to, idx_t side, idx_t step) {
  Pairs r[16];
  if (x.along == 1) {
    for (idx_t i = 0; i < 16; i++) r[i] = some_pairs(x.from + i * x.apart, i < count ? depth : 0);
    core::transpose(r);
  } else {
    const auto at = [&](idx_t l) { return some(x.from + l * x.along, l < depth ? count : 0); };
    for (idx_t i = 0; i < 16; i++) r[i] = at(2 * i) | at(2 * i + 1) << 16;
  }
  VEC_UNROLL for (int i = 0; i < 16; i++) put<SIDE>(to, side, step + i, r[i]);
}
// `count` rows or columns as panels, in the order in which they lie in memory.
template <idx_t SIDE> static inline void pack(idx_t count, idx_t depth, Source x, Pair* to) {
  static_assert(SIDE % 16 == 0 || 16 % SIDE == 0);
  const idx_t sides = (count + 15) / 16, deep = (depth + 31) / 32, inner = x.along == 1 ? deep : sides;
  for (idx_t i = 0; i < sides * deep; i++) {
    const idx_t s = 16 * (x.along == 1 ? i / inner : i % inner), p = 32 * (x.along == 1 ? i % inner : i / inner);
    pack_some<SIDE>(count - s, depth - p, {x.from + s * x.apart + p * x.along, x.apart, x.along}, to, s, p / 2);
  }
}
// The biased exponent of the smallest magnitude but 0; 0 if that is denormal, more than any if all are 0.
static inline int least_exponent(idx_t count, idx_t depth, Source x) {
  const idx_t runs = x.along == 1 ? count : depth, run = x.along == 1 ? depth : count, step = x.along == 1 ? x.apart : x.along;
  uint16_t least = 0xffff;
  for (idx_t i = 0; i < runs; i++)
    for (idx_t j = 0; j < run; j++) {
      const uint16_t below = (uint16_t)((x.from[i * step + j].u & 0x7fff) - 1);
      least = below < least ? below : least;
    }
  return (least + 1) >> 7;
}
VDEV void add(Vec<float, 16>& c, Pairs a, Pairs b) { __asm__("vdpbf16ps %2, %1, %0" : "+v"(c.v) : "v"(a), "v"(b)); }
VDEV void add(Vec<float, 16>& c0, Vec<float, 16>& c1, Vec<float, 16>& c2, Pair a, const Pairs (&b)[COLUMNS / 16]) {
  const Pairs x = Pairs{} + a;
  add(c0, x, b[0]);
  add(c1, x, b[1]);
  add(c2, x, b[2]);
}
template <bool ADDS> VDEV void put_sums(float* c, Vec<float, 16> x) {
  if constexpr (ADDS) x.v = x.v + load<16, 1>(c).v;
  store<16, 1>(c, x);
}
// ROWS x COLUMNS of C, from a panel of each operand. What it adds to is read behind the loop, which would wait for it: 350 ->
// 450 GFLOP/s. Inlined, it would have to share its registers: 320.
template <bool ADDS> __attribute__((noinline)) static void tile(idx_t steps, const Pair* a, const Pair* b, float* c, idx_t ldc) {
#define PAIRS_EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define PAIRS_BEGIN(r) Vec<float, 16> c##r##0{}, c##r##1{}, c##r##2{};
#define PAIRS_ADD(r) add(c##r##0, c##r##1, c##r##2, a[r], y);
#define PAIRS_END(r) put_sums<ADDS>(c + r * ldc, c##r##0), put_sums<ADDS>(c + r * ldc + 16, c##r##1), put_sums<ADDS>(c + r * ldc + 32, c##r##2);
  PAIRS_EACH_ROW(PAIRS_BEGIN)
#pragma GCC unroll 2
  for (idx_t p = 0; p < steps; p++, a += ROWS, b += COLUMNS) {
    Pairs y[COLUMNS / 16];
    memcpy(y, b, sizeof y);
    PAIRS_EACH_ROW(PAIRS_ADD)
  }
  PAIRS_EACH_ROW(PAIRS_END)
#undef PAIRS_EACH_ROW
#undef PAIRS_BEGIN
#undef PAIRS_ADD
#undef PAIRS_END
}
// A block of C, of at most M rows and N columns.
template <idx_t M, idx_t N> struct Block {
  static_assert(M % 16 == 0 && N % COLUMNS == 0);
  alignas(64) Pair a[STEPS * M], b[STEPS * N];
  alignas(64) float edge[ROWS * COLUMNS];

  // Whether nothing was lost. adds: to what there is in C.
  bool product(idx_t m, idx_t n, idx_t depth, Source x, Source y, float* c, idx_t ldc, bool adds) {
    const int least_a = least_exponent(m, depth, x), least_b = least_exponent(n, depth, y);
    pack<ROWS>(m, depth, x, a);
    pack<COLUMNS>(n, depth, y, b);
    for (idx_t j = 0; j < n; j += COLUMNS)
      for (idx_t i = 0; i < m; i += ROWS) some(m - i, n - j, (depth + 1) / 2, a + i * STEPS, b + j * STEPS, c + i * ldc + j, ldc, adds);
    return least_a && least_b && least_a + least_b >= LEAST_EXPONENTS;
  }
  void some(idx_t m, idx_t n, idx_t steps, const Pair* x, const Pair* y, float* to, idx_t ldc, bool adds) {
    if (m >= ROWS && n >= COLUMNS) {
      if (adds) tile<true>(steps, x, y, to, ldc);
      else tile<false>(steps, x, y, to, ldc);
      return;
    }
    tile<false>(steps, x, y, edge, COLUMNS);
    for (idx_t r = 0; r < m && r < ROWS; r++)
      for (idx_t s = 0; s < n && s < COLUMNS; s++)
        to[r * ldc + s] = adds ? to[r * ldc + s] + edge[r * COLUMNS + s] : edge[r * COLUMNS + s];
  }
};
}  // namespace pairs
#endif
