// Products of matrices of whole numbers, on the calling thread. They wrap, and sums of them in any order are the same.
//
// Blocks of both operands are put together as panels of the sums' type, so that rows may be any distance apart and elements
// of any type; a tile of the result is summed in registers.
#pragma once
#include "vec_cpu.h"
namespace whole {
constexpr idx_t ROWS = REGISTER_BYTES == 64 ? 12 : 6;             // of a tile, by two registers of columns
template <class S> constexpr idx_t COLUMNS = 2 * REGISTER<S>;
constexpr idx_t MOST_ROWS = 240, DEPTH = 256;                      // of a block
template <class S> constexpr idx_t MOST_COLUMNS = 1536 / sizeof(S);
static_assert(MOST_ROWS % ROWS == 0);

template <class T> VDEV auto value(T x) { return x; }
VDEV uint8_t value(boolean x) { return x.u; }
// `count` rows or columns, `apart` from each other, with `along` between elements of the sum, as panels of SIDE of them: the
// elements of each step along the sum side by side, 0 where there are none.
template <idx_t SIDE, class S, class T>
static inline void pack(idx_t count, idx_t depth, const T* from, idx_t apart, idx_t along, S* to) {
  for (idx_t first = 0; first < count; first += SIDE, from += SIDE * apart)
    for (idx_t p = 0; p < depth; p++, to += SIDE) {
      const T* const at = from + p * along;
      if (count - first >= SIDE && apart == 1)
        for (idx_t i = 0; i < SIDE; i++) to[i] = (S)value(at[i]);
      else if (count - first >= SIDE)
        for (idx_t i = 0; i < SIDE; i++) to[i] = (S)value(at[i * apart]);
      else
        for (idx_t i = 0; i < SIDE; i++) to[i] = i < count - first ? (S)value(at[i * apart]) : (S)0;
    }
}
// ROWS x COLUMNS of C, or added to it, from a panel of each operand.
template <class S> __attribute__((noinline)) static void tile(idx_t depth, const S* a, const S* b, S* c, idx_t ldc, bool adds) {
  using U = Uint<sizeof(S)>;
  using R = Reg<U, REGISTER<S>>;
  constexpr int L = REGISTER<S>;
  R sums[ROWS][2];
#pragma GCC unroll 12
  for (idx_t i = 0; i < ROWS; i++) sums[i][0] = sums[i][1] = R{};
  for (idx_t p = 0; p < depth; p++, a += ROWS, b += COLUMNS<S>) {
    R y[2];
    memcpy(y, b, sizeof y);
#pragma GCC unroll 12
    for (idx_t i = 0; i < ROWS; i++) {
      const R x = R{} + (U)a[i];
      sums[i][0] += x * y[0];
      sums[i][1] += x * y[1];
    }
  }
#pragma GCC unroll 12
  for (idx_t i = 0; i < ROWS; i++)
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      S* const to = c + i * ldc + h * L;
      R old{};
      if (adds) memcpy(&old, to, sizeof old);
      old += sums[i][h];
      memcpy(to, &old, sizeof old);
    }
}
// Row-major C[m, n] = A B, or += where `adds`, summed in S, for at most MOST_ROWS x MOST_COLUMNS<S> of it.
template <class S, class A, class B>
static inline void block(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const A* a, idx_t lda, const B* b, idx_t ldb,
                         S* c, idx_t ldc, bool adds) {
  constexpr idx_t WIDE_TILE = COLUMNS<S>;
  static_assert(MOST_COLUMNS<S> % WIDE_TILE == 0);
  alignas(64) S left[MOST_ROWS * DEPTH], right[MOST_COLUMNS<S> * DEPTH], edge[ROWS * WIDE_TILE];
  for (idx_t l = 0; l < k; l += DEPTH, adds = true) {
    const idx_t deep = k - l < DEPTH ? k - l : DEPTH;
    pack<ROWS>(m, deep, a + (a_turned ? l * lda : l), a_turned ? 1 : lda, a_turned ? lda : 1, left);
    pack<WIDE_TILE>(n, deep, b + (b_turned ? l : l * ldb), b_turned ? ldb : 1, b_turned ? 1 : ldb, right);
    for (idx_t j = 0; j < n; j += WIDE_TILE)
      for (idx_t i = 0; i < m; i += ROWS) {
        const S *const x = left + i * deep, *const y = right + j * deep;
        S* const to = c + i * ldc + j;
        if (m - i >= ROWS && n - j >= WIDE_TILE) {
          tile(deep, x, y, to, ldc, adds);
          continue;
        }
        tile(deep, x, y, edge, WIDE_TILE, false);
        for (idx_t r = 0; r < ROWS && r < m - i; r++)
          for (idx_t q = 0; q < WIDE_TILE && q < n - j; q++)
            to[r * ldc + q] = (S)((Uint<sizeof(S)>)edge[r * WIDE_TILE + q] + (adds ? (Uint<sizeof(S)>)to[r * ldc + q] : 0));
      }
  }
}
}  // namespace whole
