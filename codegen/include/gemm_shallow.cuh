// Matrix products with few products a sum, of which storing the result is what takes time: a warp keeps the operand of its columns
// in registers while rows pass by. Nothing goes through shared memory, and no thread waits for another.
//
// A thread has RUN neighbouring columns of each of its rows in registers, without an exchange: the tensor cores number rows,
// columns and products as they like, and here their rows are columns of the product, dealt out so that a thread's lie side by side.
#pragma once
#include "gemm_tiles.cuh"

// A block's tile of the product, ROWS x COLUMNS; each of WARPS_M x WARPS_N warps computes a part of it. GROUP: see tile_of; with 1,
// rows are dealt to the blocks of the same columns in turns, so that all of them together go through the result once from its
// beginning to its end, and each tile is one of rows far apart. RUN: columns that the epilogue is called for. CHUNK: elements that
// an operand is called for.
template <class T_, int ROWS_, int COLUMNS_, int WARPS_M_, int WARPS_N_, int GROUP_, int RUN_, int CHUNK_> struct ShallowTile {
  using T = T_;
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_;
  static constexpr int GROUP = GROUP_, RUN = RUN_, CHUNK = CHUNK_;
  static constexpr bool DEALT = GROUP == 1;
  static constexpr int WARP_ROWS = ROWS / WARPS_M, WARP_COLUMNS = COLUMNS / WARPS_N;
};

// Whether there is nothing beyond the last row or column of a tile.
template <class Tile, class Extents> constexpr bool WHOLE_ROWS = Extents::ROWS % Tile::ROWS == 0;
template <class Tile, class Extents> constexpr bool WHOLE_COLUMNS = Extents::COLUMNS % Tile::COLUMNS == 0;

// A vector of 4 bytes or more, or zeros, by whole registers.
template <class T, int W> VDEV Vec<T, W> only_where(bool there, const Vec<T, W>& x) {
  static_assert(sizeof x % 4 == 0, "whole registers");
  uint32_t words[sizeof x / 4];
  memcpy(words, &x, sizeof x);
  VEC_UNROLL for (int i = 0; i < (int)(sizeof x / 4); i++) words[i] = there ? words[i] : 0;
  Vec<T, W> r;
  memcpy(&r, words, sizeof r);
  return r;
}

// to[i][k] = an operand's element of row or column line(i), of OF, and product first + k, of DEPTH. Zero beyond the products;
// rows and columns beyond the last (WHOLE: there are none) have values of others: nobody looks at what becomes of them, and
// without a branch all loads are on their way at once. Lines are neighbours, CHUNK by CHUNK, where memory has them side by side.
template <int CHUNK, int OF, bool WHOLE, int DEPTH, int LINES, int DEEP, class T, class Operand, class Line>
VDEV void gather(T (&to)[LINES][DEEP], const Operand& operand, int batch, Line line, int first) {
  constexpr bool LAST = Operand::DEPTH_LAST;
  VEC_UNROLL for (int i = 0; i < LINES; i += LAST ? 1 : CHUNK)
    VEC_UNROLL for (int k = 0; k < DEEP; k += LAST ? CHUNK : 1) {
      const bool there = first + k < DEPTH;
      const int at = WHOLE || line(i) < OF ? line(i) : 0, deep = there ? first + k : 0;
      const auto run = only_where(there, LAST ? operand(batch, at, deep, DEPTH - deep) : operand(batch, deep, at, OF - at));
      VEC_UNROLL for (int l = 0; l < CHUNK; l++)
        if (LAST ? k + l < DEEP : i + l < LINES) to[LAST ? i : i + l][LAST ? k + l : k] = run.v[l];
    }
}

// The multiplying of a warp by mma.sync. In this instruction lane l has rows l / 4 and l / 4 + 8 of the first matrix, which are two
// neighbouring columns of the product here, and column l / 4 of the second one, which is a row of the product; of both it has
// OWN products of each sum. It gets sums of its two columns, and of rows 2 (l % 4) and the next.
template <class Tile, class Extents, bool ROWS_APART> struct TensorWarp {
  using T = typename Tile::T;
  using Acc = If<SAME<T, int8_t>, int32_t, float>;
  static constexpr int WORD = 4 / (int)sizeof(T), OWN = 2 * WORD, DEEP = 4 * OWN;  // products of a register, a thread, an instruction
  static constexpr int STEPS = (Extents::DEPTH + DEEP - 1) / DEEP;
  static constexpr int RUNS = Tile::WARP_COLUMNS / (8 * Tile::RUN), BLOCKS = Tile::WARP_COLUMNS / 16;
  static constexpr int EIGHTS = ROWS_APART ? 1 : Tile::CHUNK, STEP = 8 * EIGHTS, OWN_ROWS = 2 * EIGHTS;  // rows that pass by at once
  static_assert(RUNS > 0 && Tile::WARP_COLUMNS % (8 * Tile::RUN) == 0 && Tile::WARP_ROWS % (2 * STEP) == 0, "whole runs and steps");

  uint32_t columns[STEPS][BLOCKS][4];
  struct Rows { uint32_t words[STEPS][EIGHTS][2]; };

  static VDEV int lane() { return threadIdx.x % 32; }
  static VDEV int column_of(int run) { return (run * 8 + lane() / 4) * Tile::RUN; }
  // Of the eight that lane l has products of, one for each l / 4; of the two that it gets sums of.
  static VDEV int row_of(int eight, int of) { return ROWS_APART ? eight * 8 + of : of * EIGHTS + eight; }
  static VDEV int own_row(int i) { return row_of(i / 2, lane() % 4 * 2 + i % 2); }

  static VDEV uint32_t word(const Lane<T>* from) {
    uint32_t r;
    memcpy(&r, from, sizeof r);
    return r;
  }
  template <class Right> VDEV void load_columns(const Right& right, int batch, int column) {
    VEC_UNROLL for (int step = 0; step < STEPS; step++) {
      Lane<T> x[2 * BLOCKS][OWN];
      gather<Tile::CHUNK, Extents::COLUMNS, WHOLE_COLUMNS<Tile, Extents>, Extents::DEPTH>(
          x, right, batch, [=](int i) { return column + column_of(i / Tile::RUN) + i % Tile::RUN; },
          step * DEEP + lane() % 4 * OWN);
      VEC_UNROLL for (int i = 0; i < 2 * BLOCKS; i++)
        VEC_UNROLL for (int half = 0; half < 2; half++) columns[step][i / 2][half * 2 + i % 2] = word(x[i] + half * WORD);
    }
  }
  template <class Left> static VDEV void load_rows(Rows& rows, const Left& left, int batch, int row) {
    VEC_UNROLL for (int step = 0; step < STEPS; step++) {
      Lane<T> x[EIGHTS][OWN];
      gather<Tile::CHUNK, Extents::ROWS, WHOLE_ROWS<Tile, Extents>, Extents::DEPTH>(
          x, left, batch, [=](int i) { return row + row_of(i, lane() / 4); }, step * DEEP + lane() % 4 * OWN);
      VEC_UNROLL for (int i = 0; i < EIGHTS; i++)
        VEC_UNROLL for (int half = 0; half < 2; half++) rows.words[step][i][half] = word(x[i] + half * WORD);
    }
  }
  // products[i][r]: run r of the thread's row i.
  VDEV void multiply(Vec<Acc, Tile::RUN> (&products)[OWN_ROWS][RUNS], const Rows& rows) const {
    VEC_UNROLL for (int eight = 0; eight < EIGHTS; eight++)
      VEC_UNROLL for (int block = 0; block < BLOCKS; block++) {
        Acc sums[4] = {};
        VEC_UNROLL for (int step = 0; step < STEPS; step++) {
          const uint32_t* row = rows.words[step][eight];
          if constexpr (SAME<T, int8_t>) mma_16x8x32_s8(sums, columns[step][block], row[0], row[1]);
          else mma_16x8x16<T>(sums, columns[step][block], row[0], row[1]);
        }
        VEC_UNROLL for (int i = 0; i < 4; i++) {
          const int at = block * 2 + i / 2;
          products[eight * 2 + i % 2][at / Tile::RUN].v[at % Tile::RUN] = sums[i];
        }
      }
  }
};

// The multiplying of a warp by fma, in the order of depth, from the first product on. All lanes have the same rows.
template <class Tile, class Extents, bool ROWS_APART> struct FmaWarp {
  using Acc = typename Tile::T;
  static constexpr int DEPTH = Extents::DEPTH, RUNS = Tile::WARP_COLUMNS / (32 * Tile::RUN);
  static constexpr int STEP = ROWS_APART ? (DEPTH <= 4 ? 4 : DEPTH <= 8 ? 2 : 1) : Tile::CHUNK, OWN_ROWS = STEP;
  static_assert(RUNS > 0 && Tile::WARP_COLUMNS % (32 * Tile::RUN) == 0 && Tile::WARP_ROWS % (2 * STEP) == 0, "whole runs and steps");

  Acc columns[RUNS * Tile::RUN][DEPTH];
  struct Rows { Acc x[STEP][DEPTH]; };

  static VDEV int column_of(int run) { return (run * 32 + (int)threadIdx.x % 32) * Tile::RUN; }
  static VDEV int own_row(int i) { return i; }

  template <class Right> VDEV void load_columns(const Right& right, int batch, int column) {
    gather<Tile::CHUNK, Extents::COLUMNS, WHOLE_COLUMNS<Tile, Extents>, DEPTH>(
        columns, right, batch, [=](int i) { return column + column_of(i / Tile::RUN) + i % Tile::RUN; }, 0);
  }
  template <class Left> static VDEV void load_rows(Rows& rows, const Left& left, int batch, int row) {
    gather<Tile::CHUNK, Extents::ROWS, WHOLE_ROWS<Tile, Extents>, DEPTH>(
        rows.x, left, batch, [=](int i) { return row + i; }, 0);
  }
  VDEV void multiply(Vec<Acc, Tile::RUN> (&products)[OWN_ROWS][RUNS], const Rows& rows) const {
    VEC_UNROLL for (int i = 0; i < STEP; i++)
      VEC_UNROLL for (int j = 0; j < RUNS * Tile::RUN; j++) {
        Acc sum = (Acc)(FLOATING<Acc> ? -0.0 : 0.0);  // plus x is x
        VEC_UNROLL for (int k = 0; k < DEPTH; k++) sum = multiply_add(rows.x[i][k], columns[j][k], sum);
        products[i][j / Tile::RUN].v[j % Tile::RUN] = sum;
      }
  }
};

// The block's tile of the product, handed to `epilogue`: see gemm_epilogue.cuh, but for RUN columns at a time. Warp: TensorWarp or
// FmaWarp. left, right: operands as Tile::T, computed CHUNK columns at a time.
template <template <class, class, bool> class Warp_, class Tile, class Extents, class Left, class Right, class Epilogue>
VDEV void gemm_shallow(const Left& left, const Right& right, const Epilogue& epilogue) {
  using Warp = Warp_<Tile, Extents, Left::DEPTH_LAST>;
  constexpr bool ALL_ROWS = WHOLE_ROWS<Tile, Extents>, ALL_COLUMNS = WHOLE_COLUMNS<Tile, Extents>;
  const TilePlace place = tile_of<Extents, Tile::ROWS, Tile::COLUMNS, Tile::GROUP>(blockIdx.x);
  const int warp = threadIdx.x / 32;
  constexpr int STEP = Warp::STEP, DOWN = (Extents::ROWS + Tile::ROWS - 1) / Tile::ROWS;
  constexpr int NEXT = Tile::DEALT ? DOWN * Tile::WARPS_M * STEP : STEP;  // rows from one step to the next
  const int row = (place.row * Tile::WARPS_M + warp / Tile::WARPS_N) * (Tile::DEALT ? STEP : Tile::WARP_ROWS);
  const int column = place.column * Tile::COLUMNS + warp % Tile::WARPS_N * Tile::WARP_COLUMNS;
  if (row >= Extents::ROWS || column >= Extents::COLUMNS) return;

  Warp own;
  own.load_columns(right, place.batch, column);
  const auto use = [&](const typename Warp::Rows& rows, int from) {
    const auto each = [&](auto f) {
      VEC_UNROLL for (int i = 0; i < Warp::OWN_ROWS; i++)
        VEC_UNROLL for (int run = 0; run < Warp::RUNS; run++) {
          const int r = from + Warp::own_row(i), c = column + Warp::column_of(run);
          if ((ALL_ROWS || r < Extents::ROWS) && (ALL_COLUMNS || c < Extents::COLUMNS)) f(i, run, r, c, Extents::COLUMNS - c);
        }
    };
    typename Epilogue::Fetched ahead[Warp::OWN_ROWS][Warp::RUNS];
    each([&](int i, int run, int r, int c, int left) { ahead[i][run] = epilogue.fetch(place.batch, r, c, left); });
    Vec<typename Warp::Acc, Tile::RUN> products[Warp::OWN_ROWS][Warp::RUNS];
    own.multiply(products, rows);
    each([&](int i, int run, int r, int c, int left) { epilogue(place.batch, r, c, products[i][run], left, ahead[i][run]); });
  };
  // Two sets of rows in turns: one is multiplied while the other is on its way, and none is moved. Behind the last ones the first
  // ones come once more, without a branch.
  const int end = row + Tile::WARP_ROWS / STEP * NEXT;
  typename Warp::Rows even, odd;
  Warp::load_rows(even, left, place.batch, row);
  VEC_ROLLED for (int at = row; at < end; at += 2 * NEXT) {
    Warp::load_rows(odd, left, place.batch, at + NEXT);
    use(even, at);
    Warp::load_rows(even, left, place.batch, at + 2 * NEXT < end ? at + 2 * NEXT : row);
    use(odd, at + NEXT);
  }
}
