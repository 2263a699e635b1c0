// Products of matrices by code of our own, on the calling thread, of operands of any types whose rows may be any distance
// apart, or whose elements lie in any other order: blocks of them are put together for the caches, converted on the way, and
// tiles of the result summed in registers. Whole numbers wrap, and sums of them in any order are the same. Where elements lie
// is looked up by rows and by columns while they are put together, as Matthews does ("High-Performance Tensor Contraction
// without Transposition", 2016).
#pragma once
#include "vec_cpu.h"
namespace packed {
// How sums of type S are cut into tiles, by registers of so many bytes: as many as there are, or fewer. Where units are half
// as wide as registers, half the registers' bytes are faster: fewer columns, and longer sums in the first cache.
template <class S, int BYTES> struct Tiling {
  using Sum = S;
  using Term = If<FLOATING<S>, S, Uint<sizeof(S)>>;
  static constexpr idx_t LANES = BYTES / (sizeof(S) == 8 ? 8 : 4);
  using Line = Reg<Term, LANES>;
  static constexpr idx_t ROWS = BYTES == 64 ? 12 : 6;  // of a tile, by two registers of columns
  static constexpr idx_t COLUMNS = 2 * LANES;
  static constexpr idx_t DEPTH = 8192 / BYTES;         // of a block: a panel of B takes 16 KiB of the first cache
  static constexpr idx_t MOST_ROWS = BYTES * 9 / 2;    // of a block of A: 144 KiB of the second cache, of f64 288
  static constexpr idx_t MOST_COLUMNS = 4096 / (idx_t)sizeof(S);  // of a block of B: at most 1 MiB
  static constexpr idx_t PANEL = DEPTH * ROWS;  // of A
  static_assert(MOST_ROWS % ROWS == 0 && MOST_COLUMNS % COLUMNS == 0);
};
VDEV idx_t least(idx_t a, idx_t b) { return a < b ? a : b; }
template <class R> VDEV R multiply_add(R a, R b, R c) {
  if constexpr (FLOATING<Element<R>>) return core::fma(a, b, c);
  else return a * b + c;
}
// The first `count` of a register's elements, which follow each other in memory, converted; 0 for the others.
template <class Tiles, class T> VDEV typename Tiles::Line line(const T* from, idx_t count) {
  constexpr int L = Tiles::LANES;
  using Line = typename Tiles::Line;
  if (__builtin_expect(count >= L, 1)) return core::as<Line>(cast<typename Tiles::Sum>(load<L, 1>(from)).v);
  return count > 0 ? core::as<Line>(cast<typename Tiles::Sum>(load_masked<L, 1>(from, count)).v) : Line{};
}
// An operand whose lines, along which its elements follow each other in memory, are `ld` apart. Those of A lie along the sum,
// those of B across it; of TURNED ones it is the other way round.
template <bool TURNED_, class T> struct Dense {
  static constexpr bool TURNED = TURNED_, IN_LINES = true;
  using Type = T;
  const T* from;
  idx_t ld;
  // The part from there on; `lines` of it, and so many elements of each, are asked for.
  VDEV Dense block(idx_t x, idx_t, idx_t y, idx_t) const { return {from + x * ld + y, ld}; }
  // The first `count` of a register's elements of line `x`, from `y` on.
  template <class Tiles> VDEV typename Tiles::Line get(idx_t x, idx_t y, idx_t count) const {
    return line<Tiles>(from + x * ld + y, count);
  }
};
template <bool TURNED, class T> VDEV Dense<TURNED, T> dense(const T* from, idx_t ld) { return {from, ld}; }
#ifdef VEC_SHUFFLES
// L elements of memory that are STEP apart, from registers that reach no further than the first and the last of them.
template <int STEP, int L> constexpr int begin_of(int register_) {
  return register_ * L < (L - 1) * (STEP - 1) ? register_ * L : (L - 1) * (STEP - 1);
}
// Where lane `lane` is in what was taken of the registers before and then in this one.
template <int STEP, int REGISTER_, int L> constexpr int taken_from(int lane) {
  constexpr int BEFORE = begin_of<STEP, L>(REGISTER_ - 1) + L, BEGIN = begin_of<STEP, L>(REGISTER_);
  const int at = lane * STEP;
  if (at < BEFORE) return REGISTER_ == 1 ? at : lane;
  return at < BEGIN + L ? L + at - BEGIN : lane;
}
template <int STEP, int REGISTER_, class R, int... I> VDEV R taken(const Element<R>* from, R before, core::Indices<I...> lanes) {
  constexpr int L = LANES<R>;
  R next;
  memcpy(&next, from + begin_of<STEP, L>(REGISTER_), sizeof next);
  const R both = __builtin_shufflevector(before, next, taken_from<STEP, REGISTER_, L>(I)...);
  if constexpr (REGISTER_ == STEP - 1) return both;
  else return taken<STEP, REGISTER_ + 1>(from, both, lanes);
}
template <int STEP, class Tiles, class T> VDEV typename Tiles::Line line_of_every(const T* from) {
  constexpr int L = Tiles::LANES;
  Reg<Uint<sizeof(T)>, L> first;
  memcpy(&first, from, sizeof first);
  first = taken<STEP, 1>((const Uint<sizeof(T)>*)from, first, core::FirstIndices<L>{});
  T elements[L];
  memcpy(elements, &first, sizeof first);
  return line<Tiles>(elements, L);
}
#endif
// One whose lines begin at across(x), with elements at along(y) from there: functions of whole numbers.
constexpr idx_t MOST_LOOKED_UP = 1024 + 32;  // of a block, and a register more
template <class T> struct Block {
  const T* from;
  idx_t across[MOST_LOOKED_UP], along[MOST_LOOKED_UP];
  idx_t step[MOST_LOOKED_UP];    // to the next element
  int in_steps[MOST_LOOKED_UP];  // elements from there on that are as far apart
  template <class Tiles> VDEV typename Tiles::Line get(idx_t x, idx_t y, idx_t count) const {
    constexpr int L = Tiles::LANES;
    using Line = typename Tiles::Line;
    if (count <= 0) return Line{};
    const T *const start = from + across[x], *const first = start + along[y];
    if (in_steps[y] >= least(count, L)) {
      if (step[y] == 1) return line<Tiles>(first, count);
#ifdef VEC_SHUFFLES
      if (count >= L && step[y] == 2) return line_of_every<2, Tiles>(first);
      if (count >= L && step[y] == 3) return line_of_every<3, Tiles>(first);
#endif
    }
    const auto lanes = load_lanes<L>([&](int l) { return start[along[y + l]]; }, least(count, L));
    return core::as<Line>(cast<typename Tiles::Sum>(lanes).v);
  }
};
template <bool TURNED_, class T, class X, class Y> struct Spread {
  static constexpr bool TURNED = TURNED_, IN_LINES = false;
  using Type = T;
  const T* from;
  X across;
  Y along;
  VDEV Block<T> block(idx_t x, idx_t lines, idx_t y, idx_t elements) const {
    Block<T> found;
    found.from = from;
    for (idx_t i = 0; i < lines; i++) found.across[i] = across(x + i);
    for (idx_t i = elements - 1; i >= 0; i--) {
      const bool last = i == elements - 1;
      found.along[i] = along(y + i);
      found.step[i] = last ? 1 : found.along[i + 1] - found.along[i];
      found.in_steps[i] = last ? 1 : i < elements - 2 && found.step[i + 1] == found.step[i] ? found.in_steps[i + 1] + 1 : 2;
    }
    return found;
  }
};
template <bool TURNED, class T, class X, class Y> VDEV Spread<TURNED, T, X, Y> spread(const T* from, X across, Y along) {
  return {from, across, along};
}
// A block of A: rows as they are, or of a TURNED one panels of ROWS with the elements of each step along the sum side by
// side; 0 in rows of the last tile that are not there.
template <class Tiles, bool TURNED, class A>
static inline void take(idx_t rows, idx_t depth, const A& a, typename Tiles::Sum* to) {
  constexpr idx_t L = Tiles::LANES, ROWS = Tiles::ROWS, DEPTH = Tiles::DEPTH, PANEL = Tiles::PANEL;
  if constexpr (TURNED) {
    for (idx_t p = 0; p < depth; p++)
      for (idx_t i = 0; i < rows; i += ROWS)
        VEC_UNROLL for (idx_t h = 0; h < ROWS; h += L) {
          const auto r = a.template get<Tiles>(p, i + h, rows - i - h);
          // No further than this step's: what overlaps the next one's g++ 12 may store after that (-ftree-loop-distribution).
          memcpy(to + i / ROWS * PANEL + p * ROWS + h, &r, sizeof *to * least(L, ROWS - h));
        }
  } else {
    for (idx_t i = 0; i < (rows + ROWS - 1) / ROWS * ROWS; i++)
      for (idx_t p = 0; p < depth; p += L) {
        const auto r = a.template get<Tiles>(i, p, i < rows ? depth - p : 0);
        memcpy(to + i * DEPTH + p, &r, sizeof r);
      }
  }
}
// A block of B as panels of COLUMNS: the elements of each step along the sum side by side.
template <class Tiles, bool TURNED, class B>
static inline void pack(idx_t columns, idx_t depth, const B& b, typename Tiles::Sum* to) {
  using Line = typename Tiles::Line;
  constexpr idx_t L = Tiles::LANES, C = Tiles::COLUMNS, DEPTH = Tiles::DEPTH;
  if constexpr (!TURNED) {
    constexpr idx_t STEPS = 8;  // at a time, of all panels: memory is read in rows
    for (idx_t first = 0; first < depth; first += STEPS)
      for (idx_t j = 0; j < columns; j += C)
        for (idx_t p = first; p < least(depth, first + STEPS); p++) {
          const Line r[2] = {b.template get<Tiles>(p, j, columns - j), b.template get<Tiles>(p, j + L, columns - j - L)};
          memcpy(to + j * DEPTH + p * C, r, sizeof r);
        }
  } else {
    for (idx_t j = 0; j < (columns + C - 1) / C * C; j += L)
      for (idx_t p = 0; p < depth; p += L) {
        Line r[L];
        VEC_UNROLL for (idx_t i = 0; i < L; i++) r[i] = b.template get<Tiles>(j + i, p, j + i < columns ? depth - p : 0);
        core::transpose(r);
        VEC_UNROLL for (idx_t i = 0; i < L; i++) memcpy(to + j / C * C * DEPTH + (p + i) * C + j % C, &r[i], sizeof r[i]);
      }
  }
}
constexpr idx_t AHEAD = 8;  // steps
// ROWS x COLUMNS of C, or added to it. APART, ALONG: from one row of A to the next, 0: `lda`; and from one step of the
// sum to the next.
template <class Tiles, idx_t APART, idx_t ALONG, class S = typename Tiles::Sum>
static __attribute__((noinline)) void tile(idx_t depth, const S* a, idx_t lda, const S* b, S* c, idx_t ldc, bool adds) {
  const idx_t apart = APART ? APART : lda;
  constexpr idx_t ROWS = Tiles::ROWS, COLUMNS = Tiles::COLUMNS;
  using R = typename Tiles::Line;
  R sums[ROWS][2];
#pragma GCC unroll 12
  for (idx_t i = 0; i < ROWS; i++) {
    sums[i][0] = sums[i][1] = R{};
    __builtin_prefetch(c + i * ldc);
    __builtin_prefetch((const char*)(c + i * ldc) + sizeof sums[i] - 1);
  }
#pragma GCC unroll 4
  for (idx_t p = 0; p < depth; p++, a += ALONG, b += COLUMNS) {
    __builtin_prefetch(b + AHEAD * COLUMNS);
    R y[2];
    memcpy(&y[0], b, sizeof y[0]);
    memcpy(&y[1], b + Tiles::LANES, sizeof y[1]);
#pragma GCC unroll 12
    for (idx_t i = 0; i < ROWS; i++) {
      const R x = core::fill<R>((typename Tiles::Term)a[i * apart]);
      sums[i][0] = multiply_add(x, y[0], sums[i][0]);
      sums[i][1] = multiply_add(x, y[1], sums[i][1]);
    }
  }
#pragma GCC unroll 12
  for (idx_t i = 0; i < ROWS; i++)
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      S* const to = c + i * ldc + h * Tiles::LANES;
      if (adds) {
        R before;
        memcpy(&before, to, sizeof before);
        sums[i][h] += before;
      }
      memcpy(to, &sums[i][h], sizeof(R));
    }
}
// Whether rows of A are read where they lie: they are of the sum's type, and so few columns of B are multiplied by them
// that putting them together would take longer than it saves. Rows of a tile must not share one set of the first cache.
constexpr idx_t FEW_COLUMNS = 512, WAYS = 8, SET = 4096;
template <class Tiles> VDEV bool in_place(idx_t columns, idx_t ld) {
  const idx_t apart = ld * (idx_t)sizeof(typename Tiles::Sum) % SET;
  return columns <= FEW_COLUMNS && (Tiles::ROWS <= WAYS || (apart >= 64 && apart <= SET - 64));
}
// Row-major C[m, n] = A[m, k] B[k, n], or += where `adds`, summed in Tiles::Sum; of A and B the part from row i0 and column
// j0 on.
template <class Tiles, class A, class B, class S = typename Tiles::Sum>
static inline void product(idx_t m, idx_t n, idx_t k, const A& a, idx_t i0, const B& b, idx_t j0, S* c, idx_t ldc, bool adds) {
  using Term = typename Tiles::Term;
  constexpr idx_t ROWS = Tiles::ROWS, C = Tiles::COLUMNS, DEPTH = Tiles::DEPTH;
  constexpr idx_t APART = A::TURNED ? 1 : DEPTH, ALONG = A::TURNED ? ROWS : 1, PANEL = Tiles::PANEL;
  constexpr bool MAY_STAY = A::IN_LINES && !A::TURNED && SAME<typename A::Type, S>;
  static_assert(Tiles::MOST_COLUMNS + 32 <= MOST_LOOKED_UP);
  alignas(64) S left[Tiles::MOST_ROWS / ROWS * PANEL], right[Tiles::MOST_COLUMNS * DEPTH], edge[ROWS * C];
  for (idx_t jb = 0; jb < n; jb += Tiles::MOST_COLUMNS)
    for (idx_t l = 0; l == 0 || l < k; l += DEPTH) {
      const idx_t columns = least(n - jb, Tiles::MOST_COLUMNS), depth = least(k - l, DEPTH);
      const bool adding = adds || l > 0;
      if constexpr (B::TURNED) pack<Tiles, true>(columns, depth, b.block(j0 + jb, columns, l, depth), right);
      else pack<Tiles, false>(columns, depth, b.block(l, depth, j0 + jb, columns), right);
      for (idx_t ib = 0; ib < m; ib += Tiles::MOST_ROWS) {
        const idx_t rows = least(m - ib, Tiles::MOST_ROWS);
        const S* stays = nullptr;
        idx_t there = 0, lda = 0;  // rows that are not moved
        if constexpr (MAY_STAY) {
          stays = a.block(i0 + ib, rows, l, depth).from;
          lda = a.ld;
          if (in_place<Tiles>(columns, lda)) there = rows / ROWS * ROWS;
        }
        if constexpr (A::TURNED) take<Tiles, true>(rows, depth, a.block(l, depth, i0 + ib, rows), left);
        else if (there < rows) take<Tiles, false>(rows - there, depth, a.block(i0 + ib + there, rows - there, l, depth), left);
        for (idx_t j = 0; j < columns; j += C)
          for (idx_t i = 0; i < rows; i += ROWS) {
            const bool whole = rows - i >= ROWS && columns - j >= C;
            S *const to = c + (ib + i) * ldc + jb + j, *const out = whole ? to : edge;
            const idx_t ld = whole ? ldc : C;
            const S* const y = right + j * DEPTH;
            if (i < there) tile<Tiles, 0, 1>(depth, stays + i * lda, lda, y, out, ld, whole && adding);
            else tile<Tiles, APART, ALONG>(depth, left + (i - there) / ROWS * PANEL, 0, y, out, ld, whole && adding);
            if (whole) continue;
            for (idx_t r = 0; r < ROWS && r < rows - i; r++)
              for (idx_t q = 0; q < C && q < columns - j; q++)
                to[r * ldc + q] = (S)((Term)edge[r * C + q] + (adding ? (Term)to[r * ldc + q] : (Term)0));
          }
      }
    }
}
}  // namespace packed
