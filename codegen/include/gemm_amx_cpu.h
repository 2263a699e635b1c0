// Products of bf16 matrices by AMX on the calling thread: registers that are tiles of 16 rows of 64 bytes.
//
// Of one operand (`rows`) tiles are read where they lie, if elements follow each other along the sum; of the other
// (`columns`) pairs of elements along the sum are put side by side as panels, which stay in the second cache. Rows may be
// those of A or, of the transposed product, the columns of B: its sums are turned on their way to C.
//
// Denormals are lost as in gemm_pairs_cpu.h.
#pragma once
#include "gemm_pairs_cpu.h"
#if defined(GEMM_PAIRS) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 11)
#include <sys/syscall.h>
#include <unistd.h>
#define GEMM_AMX 1
namespace amx {
using pairs::Pair;
using pairs::Source;
constexpr idx_t SIDE = 16, DEPTH = 32;                               // of a tile: rows, or columns; elements along the sum
constexpr idx_t TILE = SIDE * SIDE;                                  // pairs, or sums
constexpr idx_t ROWS = 32, COLUMNS = 32, BLOCK = ROWS * COLUMNS;     // of C in registers: 4 tiles
constexpr idx_t STEPS = 8;                                           // tiles along the sum for which rows stay in the first cache
constexpr idx_t MOST_COLUMNS = 256;                                  // of C in a panel
constexpr idx_t PANEL = 3 << 16;                                     // pairs: 768 KiB of the second cache
constexpr idx_t SOME_DEPTH = PANEL / (MOST_COLUMNS * SIDE) * DEPTH;  // elements along the sum for whole panels
constexpr idx_t MOST_DEPTH = 4 * SOME_DEPTH;                         // for narrower ones; a longer sum is cut

// The thread's tile registers, all of 16 rows of 64 bytes, as long as it lives: 0 to 3 for sums, 4 and 5 for rows, 6 and 7
// for columns.
struct Registers {
  Registers() {
    struct {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const shape;
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
  }
  ~Registers() { __asm__ volatile("tilerelease"); }
  template <int T> VDEV void clear() { __asm__ volatile("tilezero %%tmm%c0" ::"i"(T)); }
  // Rows `apart` bytes apart.
  template <int T> VDEV void load(const void* from, idx_t apart) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"((long)apart), "i"(T) : "memory");
  }
  template <int T> VDEV void store(void* to, idx_t apart) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"((long)apart), "i"(T) : "memory");
  }
  template <int SUMS, int A, int B> VDEV void add() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS), "i"(A), "i"(B));
  }
};
// Whether the system lets this process use tiles, from now on: it has to be asked once.
static inline bool permitted() {
  constexpr long REQUEST = 0x1023, TILES = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static int known = 0;                         // 1: yes, -1: no; whoever asks gets the same answer
  if (!known) known = syscall(SYS_arch_prctl, REQUEST, TILES) ? -1 : 1;
  return known > 0;
}
// The bits of the largest magnitude of all elements.
struct Largest {
  using Elements = Reg<uint16_t, 2 * SIDE>;
  Elements bits{};
  VDEV void note(const void* from) {
    Elements x;
    memcpy(&x, from, sizeof x);
    x &= 0x7fff;
    bits = x > bits ? x : bits;
  }
  bool is_less(uint16_t limit) const {
    for (int i = 0; i < 2 * SIDE; i++)
      if (core::lane(bits, i) >= limit) return false;
    return true;
  }
};
// `steps` tiles' products added to ROWS x COLUMNS sums, or put there. a: rows `apart` bytes apart. b: for each step the tiles of
// both halves of the columns.
template <class R>
VDEV void block(R& r, idx_t steps, const bf16* a, idx_t apart, const Pair* b, float* sums, bool adds) {
  constexpr idx_t row = COLUMNS * (idx_t)sizeof(float);
  float* const low = sums + SIDE * COLUMNS;
  if (adds) {
    r.template load<0>(sums, row);
    r.template load<1>(sums + SIDE, row);
    r.template load<2>(low, row);
    r.template load<3>(low + SIDE, row);
  } else {
    r.template clear<0>();
    r.template clear<1>();
    r.template clear<2>();
    r.template clear<3>();
  }
  const bf16* a_low = (const bf16*)((const char*)a + SIDE * apart);
  for (idx_t p = 0; p < steps; p++, a += DEPTH, a_low += DEPTH, b += 2 * TILE) {
    r.template load<4>(a, apart);
    r.template load<6>(b, 64);
    r.template load<7>(b + TILE, 64);
    r.template load<5>(a_low, apart);
    r.template add<0, 4, 6>();
    r.template add<1, 4, 7>();
    r.template add<2, 5, 6>();
    r.template add<3, 5, 7>();
  }
  r.template store<0>(sums, row);
  r.template store<1>(sums + SIDE, row);
  r.template store<2>(low, row);
  r.template store<3>(low + SIDE, row);
}
// The first `steps` tiles of the columns along the sum, whatever lies behind them 0: step by step the tiles of both halves.
static __attribute__((noinline)) void put_columns(idx_t count, idx_t depth, idx_t steps, Source y, Pair* to) {
  VEC_NO_UNROLL for (idx_t h = 0; h < 2; h++)
    VEC_NO_UNROLL for (idx_t p = 0; p < steps; p++)
      pairs::pack_some<SIDE>(count - h * SIDE, depth - p * DEPTH,
                             {y.from + h * SIDE * y.apart + p * DEPTH * y.along, y.apart, y.along}, to + (2 * p + h) * TILE, 0, 0);
}
// ROWS rows of `steps` tiles, whatever lies behind them 0.
static __attribute__((noinline)) void put_rows(idx_t count, idx_t depth, idx_t steps, Source x, Pair* to) {
  if (x.along == 1) {
    for (idx_t i = 0; i < ROWS; i++)
      for (idx_t p = 0; p < steps; p++) {
        const auto row = pairs::some_pairs(x.from + i * x.apart + p * DEPTH, i < count ? depth - p * DEPTH : 0);
        memcpy(to + i * (STEPS * SIDE) + p * SIDE, &row, sizeof row);
      }
    return;
  }
  VEC_NO_UNROLL for (idx_t h = 0; h < 2; h++)
    VEC_NO_UNROLL for (idx_t p = 0; p < steps; p++) {
      pairs::Pairs r[SIDE];
      alignas(64) Pair tile[TILE];
      pairs::pack_some<SIDE>(count - h * SIDE, depth - p * DEPTH,
                             {x.from + h * SIDE * x.apart + p * DEPTH * x.along, x.apart, x.along}, tile, 0, 0);
      memcpy(r, tile, sizeof r);
      core::transpose(r);
      for (idx_t i = 0; i < SIDE; i++) memcpy(to + (h * SIDE + i) * (STEPS * SIDE) + p * SIDE, &r[i], sizeof r[i]);
    }
}
// The bits of the smallest magnitude of all sums.
struct Smallest {
  Reg<uint32_t, SIDE> bits = Reg<uint32_t, SIDE>{} + 0x7fffffffu;
  VDEV void note(Vec<float, SIDE> x, idx_t count) {
    auto found = core::as<Reg<uint32_t, SIDE>>(x.v) & 0x7fffffffu;
    if (__builtin_expect(count < SIDE, 0))
      for (idx_t i = count < 0 ? 0 : count; i < SIDE; i++) core::set_lane(found, i, 0x7fffffffu);
    bits = found < bits ? found : bits;
  }
  bool is_less(float limit) const {
    for (int i = 0; i < SIDE; i++)
      if (core::lane(bits, i) < core::as<uint32_t>(limit)) return true;
    return false;
  }
};
// Sums that are added to what there is in C, or put there.
template <class C> struct Result {
  C* c;
  idx_t ld;
  bool adds;
  Smallest smallest;
  VDEV void put(idx_t i, idx_t j, Vec<float, SIDE> x, idx_t count) {
    C* const to = c + i * ld + j;
    const bool whole = __builtin_expect(count >= SIDE, 1);
    if constexpr (SAME<C, float>)
      if (adds) x.v += (whole ? load<SIDE, 1>(to) : load_masked<SIDE, 1>(to, count)).v;
    smallest.note(x, count);
    if (whole) store<SIDE, 1>(to, cast<C>(x));
    else store_masked<SIDE, 1>(to, cast<C>(x), count);
  }
  // rows x columns of a block of sums, which C has as they are, from (i, j) on, or TURNED.
  template <bool TURNED> __attribute__((noinline)) void put_block(idx_t i, idx_t j, idx_t rows, idx_t columns, const float* sums) {
    VEC_NO_UNROLL for (idx_t r = 0; r < rows; r += TURNED ? SIDE : 1)
      VEC_NO_UNROLL for (idx_t s = 0; s < columns; s += SIDE) {
        const float* const from = sums + r * COLUMNS + s;
        if constexpr (!TURNED) put(i + r, j + s, load<SIDE, 1>(from), columns - s);
        else {
          Reg<float, SIDE> x[SIDE];
          VEC_UNROLL for (int t = 0; t < SIDE; t++) memcpy(&x[t], from + t * COLUMNS, sizeof x[t]);
          core::transpose(x);
          if (__builtin_expect(columns - s >= SIDE && rows - r >= SIDE, 1)) {
            VEC_UNROLL for (int t = 0; t < SIDE; t++) put(j + s + t, i + r, {x[t]}, SIDE);
          } else {
            for (idx_t t = 0; t < SIDE && t < columns - s; t++) put(j + s + t, i + r, {x[t]}, rows - r);
          }
        }
      }
  }
};
struct Found {
  bool is_small;                           // a sum is smaller than pairs::LEAST_SUM
  bool has_large_rows, has_large_columns;  // pairs::LARGE elements or larger ones
};
// m rows by n columns, of at most MOST_DEPTH elements along the sum. C is row-major or, TURNED, column-major.
template <class R, bool TURNED, class C>
__attribute__((target("amx-tile,amx-bf16"))) static Found product(idx_t m, idx_t n, idx_t k, Source x, Source y, C* c, idx_t ldc,
                                                                  bool adds = false) {
  alignas(64) Pair panel[PANEL], some[ROWS * STEPS * SIDE];
  alignas(64) float sums[ROWS * MOST_COLUMNS];
  R registers;
  Result<C> result{c, ldc, adds, {}};
  Largest of_rows, of_columns;
  const idx_t deep = k > 0 ? (k + DEPTH - 1) / DEPTH : 1, fit = PANEL / (2 * TILE * deep) * COLUMNS;
  const idx_t most = fit < MOST_COLUMNS ? fit : MOST_COLUMNS;
  for (idx_t j = 0; j < n; j += most) {
    const idx_t columns = n - j < most ? n - j : most, wide = (columns + COLUMNS - 1) / COLUMNS;
    for (idx_t q = 0; q < deep; q += STEPS) {
      const idx_t steps = deep - q < STEPS ? deep - q : STEPS;
      for (idx_t s = 0; s < wide; s++) {
        Pair* const to = panel + (q * wide + s * steps) * 2 * TILE;
        const bf16* const from = y.from + (j + s * COLUMNS) * y.apart + q * DEPTH * y.along;
        put_columns(columns - s * COLUMNS, k - q * DEPTH, steps, {from, y.apart, y.along}, to);
        for (idx_t e = 0; e < steps * 2 * TILE; e += SIDE) of_columns.note(to + e);
      }
    }
    for (idx_t i = 0; i < m; i += ROWS) {
      const idx_t rows = m - i < ROWS ? m - i : ROWS;
      for (idx_t q = 0; q < deep; q += STEPS) {
        const idx_t steps = deep - q < STEPS ? deep - q : STEPS;
        const bf16* a = x.from + i * x.apart + q * DEPTH * x.along;
        idx_t apart = x.apart;
        if (x.along != 1 || rows < ROWS || k - q * DEPTH < steps * DEPTH) {
          put_rows(rows, k - q * DEPTH, steps, {a, x.apart, x.along}, some);
          a = (const bf16*)some;
          apart = 2 * STEPS * SIDE;
        }
        if (j == 0)
          for (idx_t r = 0; r < ROWS; r++)
            for (idx_t p = 0; p < steps; p++) of_rows.note(a + r * apart + p * DEPTH);
        // What comes next into the second cache, a part beside each block.
        const bool goes_on = q + STEPS < deep;
        const bf16* const next = goes_on ? a + steps * DEPTH : x.from + (i + ROWS) * x.apart;
        const idx_t left = goes_on ? deep - q - STEPS : i + ROWS < m ? deep : 0, fetched = left < STEPS ? left : STEPS;
        const idx_t lines = (fetched + wide - 1) / wide;
        for (idx_t s = 0; s < wide; s++) {
          if (x.along == 1)
            for (idx_t p = s * lines; p < (s + 1) * lines && p < fetched; p++)
              for (idx_t r = 0; r < ROWS; r++) __builtin_prefetch(next + r * x.apart + p * DEPTH, 0, 2);
          if (!goes_on) {  // where sums go
            const C* const to = c + (TURNED ? (j + s * COLUMNS) * ldc + i : i * ldc + j + s * COLUMNS);
            for (idx_t e = 0; e < ROWS; e++)
              for (idx_t b = 0; b < COLUMNS; b += 64 / (idx_t)sizeof(C)) __builtin_prefetch(to + e * ldc + b, 1, 2);
          }
          block(registers, steps, a, apart * (idx_t)sizeof *a, panel + (q * wide + s * steps) * 2 * TILE, sums + s * BLOCK, q > 0);
          if (!goes_on && s)  // of the block before, which is in the first cache
            result.template put_block<TURNED>(i, j + (s - 1) * COLUMNS, rows, COLUMNS, sums + (s - 1) * BLOCK);
        }
      }
      const idx_t last = wide - 1;
      result.template put_block<TURNED>(i, j + last * COLUMNS, rows, columns - last * COLUMNS, sums + last * BLOCK);
    }
  }
  return {result.smallest.is_less(pairs::LEAST_SUM), !of_rows.is_less(pairs::LARGE), !of_columns.is_less(pairs::LARGE)};
}
// The same of any length of the sum, into floats.
template <class R, bool TURNED>
static inline Found long_product(idx_t m, idx_t n, idx_t k, Source x, Source y, float* c, idx_t ldc) {
  Found found{};
  for (idx_t l = 0; l == 0 || l < k; l += SOME_DEPTH) {
    const idx_t deep = k - l < SOME_DEPTH ? k - l : SOME_DEPTH;
    const Source left{x.from + l * x.along, x.apart, x.along}, right{y.from + l * y.along, y.apart, y.along};
    const Found of = product<R, TURNED>(m, n, deep, left, right, c, ldc, l > 0);
    found = {of.is_small, found.has_large_rows || of.has_large_rows, found.has_large_columns || of.has_large_columns};
  }
  return found;
}
}  // namespace amx
#endif
