// Products of bf16 matrices by the x86-64 instruction that adds two products to a float, on the calling thread.
//
// The instruction takes denormals for 0 and gives none. Sums of products are multiples of the last place of the smallest
// product: blocks whose smallest magnitudes are not far from denormals, or that are 0, are left to others.
#pragma once
#include "vec_cpu.h"
#if defined(VEC_AVX512) && defined(__AVX512BF16__)
#define GEMM_PAIRS 1
namespace pairs {
constexpr idx_t ROWS = 6, COLUMNS = 64;           // of C in registers: 24 of them
constexpr int LEAST_EXPONENTS = 127 + 127 - 100;  // biased, of the smallest magnitudes of both operands
typedef int32_t Pair;                             // two elements that follow each other along the sum

static inline Pair pair_of(const bf16* first, const bf16* second) {
  uint32_t x = first->u;
  if (second) x |= (uint32_t)second->u << 16;
  return (Pair)x;
}
// `count` rows of A or columns of B as panels of SIDE, in a panel the pairs of each step along the sum side by side; what
// is missing is 0. `apart`: elements from one row or column to the next, `along`: from one element of the sum to the next.
template <idx_t SIDE>
static inline void pack(idx_t count, idx_t depth, const bf16* from, idx_t apart, idx_t along, Pair* to) {
  for (idx_t i = 0; i < count; i += SIDE) {
    const idx_t here = count - i < SIDE ? count - i : SIDE;
    const bf16* const panel = from + i * apart;
    for (idx_t p = 0; p < depth; p += 2, to += SIDE) {
      const bf16 *const x = panel + p * along, *const y = p + 1 < depth ? x + along : nullptr;
      idx_t s = 0;
      if (apart == 1 && y) {
        for (; s + 16 <= here; s += 16) {
          const auto low = core::convert<uint32_t>(load<16, 1>((const uint16_t*)x + s).v);
          const auto high = core::convert<uint32_t>(load<16, 1>((const uint16_t*)y + s).v);
          const auto both = (Reg<int32_t, 16>)(low | high << 16);
          memcpy(to + s, &both, sizeof both);
        }
      }
      if (along == 1 && y)
        for (; s < here; s++) memcpy(to + s, x + s * apart, sizeof(Pair));
      for (; s < here; s++) to[s] = pair_of(x + s * apart, y ? y + s * apart : nullptr);
      for (; s < SIDE; s++) to[s] = 0;
    }
  }
}
// The biased exponent of the smallest magnitude but 0; 0 if that is denormal, more than any if all are 0.
static inline int least_exponent(const Pair* packed, idx_t count) {
  const uint16_t* const p = (const uint16_t*)packed;
  uint16_t least = 0xffff;
  for (idx_t i = 0; i < 2 * count; i++) {
    const uint16_t below = (uint16_t)((p[i] & 0x7fff) - 1);
    least = below < least ? below : least;
  }
  return (least + 1) >> 7;
}
VDEV void add(Vec<float, 16>& c, Reg<Pair, 16> a, const Vec<Pair, 16>& b) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(c.v) : "v"(a), "v"(b.v));
}
template <int W> VDEV void add(Vec<float, W>& c, Reg<Pair, 16> a, const Vec<Pair, W>& b) {
  add(c.lo, a, b.lo);
  add(c.hi, a, b.hi);
}
// ROWS x COLUMNS of C, from a panel of each operand.
template <bool ADDS> static inline void tile(idx_t steps, const Pair* a, const Pair* b, float* c, idx_t ldc) {
#define PAIRS_EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#define PAIRS_BEGIN(r) auto c##r = ADDS ? load<64, 1>(c + r * ldc) : splat<64>(bits<float>(0u));
#define PAIRS_ADD(r) add(c##r, Reg<Pair, 16>{} + a[r], y);
#define PAIRS_END(r) store<64, 1>(c + r * ldc, c##r);
  PAIRS_EACH_ROW(PAIRS_BEGIN)
#pragma GCC unroll 2
  for (idx_t p = 0; p < steps; p++, a += ROWS, b += COLUMNS) {
    const auto y = load<64, 1>(b);
    PAIRS_EACH_ROW(PAIRS_ADD)
  }
  PAIRS_EACH_ROW(PAIRS_END)
#undef PAIRS_EACH_ROW
#undef PAIRS_BEGIN
#undef PAIRS_ADD
#undef PAIRS_END
}
// A block of C, with room for both operands in a cache. False, and nothing written, where denormals could occur.
template <idx_t M, idx_t N, idx_t K> struct Block {
  static_assert(K % 2 == 0 && N % COLUMNS == 0);
  alignas(64) Pair a[(M + ROWS - 1) / ROWS * ROWS * (K / 2)], b[N * (K / 2)];
  alignas(64) float edge[ROWS * COLUMNS];

  bool product(idx_t m, idx_t n, idx_t k, const bf16* from_a, idx_t a_apart, idx_t a_along, const bf16* from_b,
               idx_t b_apart, idx_t b_along, float* c, idx_t ldc, bool adds) {
    const idx_t steps = (k + 1) / 2;
    pack<ROWS>(m, k, from_a, a_apart, a_along, a);
    pack<COLUMNS>(n, k, from_b, b_apart, b_along, b);
    const int least_a = least_exponent(a, (m + ROWS - 1) / ROWS * ROWS * steps);
    const int least_b = least_exponent(b, (n + COLUMNS - 1) / COLUMNS * COLUMNS * steps);
    const bool safe = least_a && least_b && least_a < 256 && least_b < 256 && least_a + least_b >= LEAST_EXPONENTS;
    if (!safe) return false;
    for (idx_t j = 0; j < n; j += COLUMNS) {
      for (idx_t i = 0; i < m; i += ROWS) {
        const Pair *const x = a + i * steps, *const y = b + j * steps;
        float* const to = c + i * ldc + j;
        if (m - i >= ROWS && n - j >= COLUMNS) {
          if (adds) tile<true>(steps, x, y, to, ldc);
          else tile<false>(steps, x, y, to, ldc);
          continue;
        }
        tile<false>(steps, x, y, edge, COLUMNS);
        for (idx_t r = 0; r < m - i && r < ROWS; r++)
          for (idx_t s = 0; s < n - j && s < COLUMNS; s++)
            to[r * ldc + s] = adds ? to[r * ldc + s] + edge[r * COLUMNS + s] : edge[r * COLUMNS + s];
      }
    }
    return true;
  }
};
}  // namespace pairs
#endif
