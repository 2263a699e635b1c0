// Products of f32 matrices by AMX on the calling thread: each element is the sum of three bf16 pieces, x = x0 + x1 + x2.
//
// Of the nine products of pieces six are added, in f32: x0 y0, and those that are up to 2^-16 of it. What is left out is
// less than half a unit in the last place of x y. The five small ones are summed before x0 y0 is: so each sum is rounded
// about as often as by multiply-adds, in parts of DEEP elements.
//
// Pairs of elements along the sum are not neighbours: 0 goes with 16, 1 with 17, and so on, in both operands alike, so
// that two registers of floats give one of pairs.
//
// Instructions take denormals for 0, as those of gemm_pairs_cpu.h do. Pieces are multiples of their element's last place.
#pragma once
#include "gemm_amx_cpu.h"
#ifdef GEMM_AMX
namespace split {
using amx::BLOCK;
using amx::COLUMNS;
using amx::DEPTH;
using amx::ROWS;
using amx::SIDE;
using amx::TILE;
using pairs::Pair;
using pairs::Pairs;
constexpr idx_t PIECES = 3;
constexpr idx_t STEPS = 4, DEEP = STEPS * DEPTH;  // tiles along the sum for which rows stay in the first cache
constexpr idx_t MOST_COLUMNS = 256;               // of C in a panel
constexpr idx_t PANEL_STEPS = 16;                 // tiles along the sum in a panel: 768 KiB of the second cache
constexpr idx_t GROUP = 4;                        // blocks of rows whose elements lie beside each other that are read at once
constexpr int LEAST_EXPONENT = 127 - 103;         // biased: pieces of smaller elements may be denormal
constexpr int LEAST_EXPONENTS = 127 + 127 - 80;   // of the smallest elements of both operands: of smaller ones products may be
constexpr int LARGE_EXPONENT = 127 + 25;          // as pairs::LARGE
constexpr int MOST_EXPONENT = 127 + 126;          // larger elements may have infinite pieces

using Source = pairs::Strided<float>;

// Biased exponents of the smallest magnitude but 0 and of the largest.
struct Range {
  using Bits = Reg<uint32_t, SIDE>;
  Bits most{}, below = Bits{} - 1;  // the smallest one's bits minus 1
  VDEV void note(Reg<float, SIDE> x) {
    const Bits bits = core::as<Bits>(x) & 0x7fffffffu, less = bits - 1;
    most = bits > most ? bits : most;
    below = less < below ? less : below;
  }
  int largest() const {
    uint32_t found = 0;
    for (int i = 0; i < SIDE; i++) found = core::lane(most, i) > found ? core::lane(most, i) : found;
    return (int)(found >> 23);
  }
  int smallest() const {  // more than any if all are 0
    uint32_t found = ~0u;
    for (int i = 0; i < SIDE; i++) found = core::lane(below, i) < found ? core::lane(below, i) : found;
    return (int)(((uint64_t)found + 1) >> 23);
  }
};
constexpr idx_t PIECE = 2 * TILE;  // pairs from one piece to the next: tiles of both halves
// Pairs of two registers' elements, piece by piece.
VDEV void put_pieces(Reg<float, SIDE> low, Reg<float, SIDE> high, Pair* to) {
  VEC_UNROLL for (idx_t q = 0; q < PIECES; q++) {
    const Pairs half = Pairs{} + (q + 1 < PIECES ? 0x8000u : 0u);  // the last piece needs no rounding
    const Pairs l = (core::as<Pairs>(low) + half) & 0xffff0000u, h = (core::as<Pairs>(high) + half) & 0xffff0000u;
    const Pairs pair = l >> 16 | h;
    memcpy(to + q * PIECE, &pair, sizeof pair);
    low = low - core::as<Reg<float, SIDE>>(l);
    high = high - core::as<Reg<float, SIDE>>(h);
  }
}
// Tiles of SIDE rows (AS_COLUMNS: columns) and DEPTH elements along the sum of a Source; what is missing is 0. Registers hold
// neighbours in memory: elements of a row along the sum, or those of all rows at one place of it. (A Source would be handed over in
// memory, in other parts than it is written in: its reader would wait until all multiplications before it are over.)
template <bool AS_COLUMNS>
static __attribute__((noinline)) void put_tile(idx_t count, idx_t depth, const float* from, idx_t step, bool along, Pair* to,
                                               Range& range) {
  const idx_t further = along ? SIDE : SIDE * step;
  if (__builtin_expect(along != AS_COLUMNS && count >= SIDE && depth >= DEPTH, 1)) {
    VEC_NO_UNROLL for (idx_t i = 0; i < SIDE; i++, from += step, to += SIDE) {
      const auto low = ::load<SIDE, 1>(from).v, high = ::load<SIDE, 1>(from + further).v;
      range.note(low);
      range.note(high);
      put_pieces(low, high, to);
    }
    return;
  }
  alignas(64) Reg<float, SIDE> halves[2][SIDE];
  VEC_NO_UNROLL for (idx_t h = 0; h < 2; h++, from += further, along ? depth -= SIDE : 0) {
    Reg<float, SIDE> r[SIDE];
    const idx_t many = along ? count : depth - h * SIDE, each = along ? depth : count;
    if (__builtin_expect(many >= SIDE && each >= SIDE, 1)) {
      VEC_UNROLL for (idx_t i = 0; i < SIDE; i++) r[i] = ::load<SIDE, 1>(from + i * step).v;
    } else {
      for (idx_t i = 0; i < SIDE; i++) {
        Reg<float, SIDE> some{};
        if (i < many && each > 0) some = load_masked<SIDE, 1>(from + i * step, each < SIDE ? each : SIDE).v;
        r[i] = some;
      }
    }
    VEC_UNROLL for (idx_t i = 0; i < SIDE; i++) range.note(r[i]);
    if (along == AS_COLUMNS) core::transpose(r);
    memcpy(halves[h], r, sizeof r);
  }
  VEC_NO_UNROLL for (idx_t i = 0; i < SIDE; i++, to += SIDE) put_pieces(halves[0][i], halves[1][i], to);
}
// `steps` tiles' products added to ROWS x COLUMNS sums, or put there. a, b: for each step, by pieces, tiles of both halves.
// meanwhile: called with each step.
template <class R, class F>
VDEV void block(R& r, idx_t steps, const Pair* a, const Pair* b, float* sums, bool adds, const F& meanwhile) {
  constexpr idx_t ROW = COLUMNS * (idx_t)sizeof(float), STEP = PIECES * PIECE;
  const auto rows = [&](const Pair* from) {
    r.template load<4>(from, 64);
    r.template load<5>(from + TILE, 64);
  };
  const auto columns = [&](const Pair* from) {
    r.template load<6>(from, 64);
    r.template load<7>(from + TILE, 64);
  };
  const auto add = [&] {
    r.template add<0, 4, 6>();
    r.template add<1, 4, 7>();
    r.template add<2, 5, 6>();
    r.template add<3, 5, 7>();
  };
  r.template clear<0>();
  r.template clear<1>();
  r.template clear<2>();
  r.template clear<3>();
  for (idx_t p = 0; p < steps; p++) {
    const Pair *const x = a + p * STEP, *const y = b + p * STEP;
    rows(x);
    columns(y + 2 * PIECE);
    add();
    meanwhile(p);
    columns(y + PIECE);
    add();
    rows(x + PIECE);
    add();
    columns(y);
    add();
    rows(x + 2 * PIECE);
    add();
  }
  for (idx_t p = 0; p < steps; p++) {
    rows(a + p * STEP);
    columns(b + p * STEP);
    add();
  }
  alignas(64) float found[BLOCK];
  float* const to = adds ? found : sums;
  r.template store<0>(to, ROW);
  r.template store<1>(to + SIDE, ROW);
  r.template store<2>(to + SIDE * COLUMNS, ROW);
  r.template store<3>(to + SIDE * COLUMNS + SIDE, ROW);
  if (adds)
    for (idx_t i = 0; i < BLOCK; i += SIDE) {
      Reg<float, SIDE> x, y;
      memcpy(&x, found + i, sizeof x);
      memcpy(&y, sums + i, sizeof y);
      y = y + x;
      memcpy(sums + i, &y, sizeof y);
    }
}
struct Found {
  bool is_small;  // a sum is smaller than pairs::LEAST_SUM, and something may have been lost
  bool is_wrong;  // far more may have been lost
};
// Pieces of ROWS rows whose elements follow each other along the sum (`m` rows are left from x on) for `steps` tiles along it (k
// elements are left), which are made some lines at a time while others are multiplied: so reading, splitting and multiplying overlap.
struct Stretch {
  Source x;
  idx_t m, k, steps;
  Pair* to;
  idx_t done = 0;  // lines of tiles
  // ahead: what comes into the second cache meanwhile, as much as is made.
  VDEV void some(idx_t lines, Source ahead, Range& range) {
    const bool is_whole = m >= ROWS && k >= steps * DEPTH;
    const idx_t all = 2 * SIDE * steps, end = done + lines < all ? done + lines : all;
    for (; done < end; done++) {
      const idx_t tile = done / SIDE, p = tile / 2, h = tile % 2, line = done % SIDE;
      Pair* const first = to + (p * PIECES * 2 + h) * TILE;
      if (__builtin_expect(is_whole, 1)) {
        const Source from = x.at(h * SIDE + line, p * DEPTH), next = ahead.at(h * SIDE + line, p * DEPTH);
        __builtin_prefetch(next.from, 0, 2);
        __builtin_prefetch(next.from + SIDE, 0, 2);
        const auto low = ::load<SIDE, 1>(from.from).v, high = ::load<SIDE, 1>(from.from + SIDE).v;
        range.note(low);
        range.note(high);
        put_pieces(low, high, first + line * SIDE);
      } else if (line == 0) {
        put_tile<false>(m - h * SIDE, k - p * DEPTH, x.at(h * SIDE, p * DEPTH).from, x.apart, true, first, range);
      }
    }
  }
  __attribute__((noinline)) void all(Range& range) { some(2 * SIDE * STEPS, x, range); }
};
// Pieces of GROUP x ROWS rows whose elements lie beside each other, for `steps` tiles along the sum.
static __attribute__((noinline)) void put_group(idx_t m, idx_t k, idx_t steps, Source x, Pair* to, Range& range) {
  for (idx_t p = 0; p < steps; p++)
    for (idx_t h = 0; h < 2 * GROUP && h * SIDE < m; h++)
      put_tile<false>(m - h * SIDE, k - p * DEPTH, x.at(h * SIDE, p * DEPTH).from, x.along, false,
                      to + ((h / 2 * steps + p) * PIECES * 2 + h % 2) * TILE, range);
}
// m rows by n columns. C is row-major or, TURNED, column-major.
template <class R, bool TURNED>
__attribute__((target("amx-tile,amx-bf16"))) static Found product(idx_t m, idx_t n, idx_t k, Source x, Source y, float* c, idx_t ldc) {
  alignas(64) Pair panel[PANEL_STEPS * PIECES * SIDE * MOST_COLUMNS], some[2][STEPS * PIECES * SIDE * ROWS];
  alignas(64) Pair group[GROUP * PANEL_STEPS * PIECES * SIDE * ROWS];
  const bool in_groups = x.along != 1;
  alignas(64) float sums[ROWS * MOST_COLUMNS];
  R registers;
  Range of_rows, of_columns;
  amx::Smallest smallest;
  const idx_t deep = k > 0 ? (k + DEPTH - 1) / DEPTH : 1;
  for (idx_t l = 0; l < deep; l += PANEL_STEPS) {
    const idx_t panel_steps = deep - l < PANEL_STEPS ? deep - l : PANEL_STEPS;
    for (idx_t j = 0; j < n; j += MOST_COLUMNS) {
      const idx_t columns = n - j < MOST_COLUMNS ? n - j : MOST_COLUMNS, wide = (columns + COLUMNS - 1) / COLUMNS;
      // In the order in which elements lie: rows a power of two apart share sets of the caches, and banks of memory.
      const idx_t tiles = wide * panel_steps;
      for (idx_t e = 0; e < tiles; e++) {
        const idx_t s = y.along == 1 ? e / panel_steps : e % wide, p = y.along == 1 ? e % panel_steps : e / wide;
        for (idx_t h = 0; h < 2; h++) {
          const idx_t first = j + s * COLUMNS + h * SIDE, term = (l + p) * DEPTH;
          Pair* const to = panel + ((s * panel_steps + p) * PIECES * 2 + h) * TILE;
          put_tile<true>(n - first, k - term, y.at(first, term).from, y.step(), y.along == 1, to, of_columns);
        }
      }
      amx::Result<float> result{c, ldc, l > 0, {}};
      const auto stretch = [&](idx_t i, idx_t q, Pair* to) {
        const idx_t steps = panel_steps - q < STEPS ? panel_steps - q : STEPS, term = (l + q) * DEPTH;
        return Stretch{x.at(i, term), m - i, k - term, steps, to};
      };
      Stretch now = stretch(0, 0, some[0]);
      if (!in_groups) now.all(of_rows);
      for (idx_t i = 0, at = 0; i < m; i += ROWS) {
        const idx_t rows = m - i < ROWS ? m - i : ROWS, member = i / ROWS % GROUP;
        if (in_groups && member == 0) put_group(m - i, k - l * DEPTH, panel_steps, x.at(i, l * DEPTH), group, of_rows);
        for (idx_t q = 0; q < panel_steps; q += STEPS, at++) {
          const bool is_last = q + STEPS >= panel_steps;
          const idx_t steps = now.steps, next_i = is_last ? i + ROWS : i, next_q = is_last ? 0 : q + STEPS;
          Stretch next = stretch(next_i, next_q, some[(at + 1) % 2]);
          const idx_t next_steps = in_groups || next_i >= m ? 0 : next.steps;
          const Pair* const made = in_groups ? group + (member * panel_steps + q) * PIECES * PIECE : now.to;
          const Source ahead = next_q + STEPS < panel_steps ? x.at(next_i, (l + next_q + STEPS) * DEPTH) : x.at(next_i + ROWS, l * DEPTH);
          const idx_t lines = (2 * SIDE * next_steps + wide * steps - 1) / (wide * steps);
          for (idx_t s = 0; s < wide; s++) {
            float* const to = c + (TURNED ? (j + s * COLUMNS) * ldc + i : i * ldc + j + s * COLUMNS);
            const auto meanwhile = [&](idx_t p) {
              next.some(lines, ahead, of_rows);
              if (is_last)  // 4.0 -> 2.9 ms for a result of 9 MB that is in no cache
                for (idx_t e = p * (ROWS / STEPS); e < (p + 1) * (ROWS / STEPS); e++) {
                  __builtin_prefetch(to + e * ldc, 1, 2);
                  __builtin_prefetch(to + e * ldc + SIDE, 1, 2);
                }
            };
            block(registers, steps, made, panel + (s * panel_steps + q) * PIECES * 2 * TILE, sums + s * BLOCK, q > 0, meanwhile);
            if (is_last && s)  // of the block before, which is in the first cache
              result.template put_block<TURNED>(i, j + (s - 1) * COLUMNS, rows, COLUMNS, sums + (s - 1) * BLOCK);
          }
          if (next_steps) next.all(of_rows);
          now = next;
        }
        const idx_t last = wide - 1;
        result.template put_block<TURNED>(i, j + last * COLUMNS, rows, columns - last * COLUMNS, sums + last * BLOCK);
      }
      if (l + PANEL_STEPS >= deep) smallest.bits = result.smallest.bits < smallest.bits ? result.smallest.bits : smallest.bits;
    }
  }
  const int small_x = of_rows.smallest(), small_y = of_columns.smallest();
  const int large_x = of_rows.largest(), large_y = of_columns.largest(), large = large_x > large_y ? large_x : large_y;
  const bool is_whole = small_x >= LEAST_EXPONENT && small_y >= LEAST_EXPONENT && small_x + small_y >= LEAST_EXPONENTS;
  return {!is_whole && smallest.is_less(pairs::LEAST_SUM), large >= MOST_EXPONENT || (!is_whole && large >= LARGE_EXPONENT)};
}
}  // namespace split
#endif
