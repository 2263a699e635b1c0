// Matrix products by fma, of any dtype on any device: operands come through registers into shared memory as the sums' dtype,
// where a thread finds what it multiplies side by side. Sums run in the order of depth, from the first product on.
#pragma once
#include "gemm_epilogue.cuh"
#include "gemm_tiles.cuh"

// A block's tile of the product, ROWS x COLUMNS, in steps of DEPTH products; each of WARPS_M x WARPS_N warps computes a part
// of it, each thread RUN columns of as many rows as that takes. GROUP: see tile_of.
template <class Acc_, int ROWS_, int COLUMNS_, int DEPTH_, int WARPS_M_, int WARPS_N_, int GROUP_> struct FmaTile {
  using Acc = Acc_;
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, DEPTH = DEPTH_, GROUP = GROUP_;
  static constexpr int WARPS_N = WARPS_N_, THREADS = 32 * WARPS_M_ * WARPS_N;
  static constexpr int WARP_ROWS = ROWS / WARPS_M_, WARP_COLUMNS = COLUMNS / WARPS_N;
  static constexpr int ACROSS = WARP_COLUMNS / RUN, OWN_ROWS = WARP_ROWS / (32 / ACROSS);  // threads of a warp, rows of one
  static constexpr int TOGETHER = CHUNK<Acc>;                                              // elements of an access
  static_assert(32 % ACROSS == 0 && OWN_ROWS % TOGETHER == 0, "whole accesses");
};

// An operand's tile: a line for each product of a sum, of LENGTH rows or columns. Columns lie so that the first accesses of
// all threads are side by side, then the second ones: together they read all banks.
template <class Tile, int LENGTH, bool COLUMNS, class Operand> struct FmaFeed {
  using Acc = typename Tile::Acc;
  static constexpr int TOGETHER = Tile::TOGETHER, PARTS = RUN / TOGETHER;
  static constexpr int STRIDE = LENGTH + TOGETHER;  // lines begin in different banks
  static constexpr int BYTES = Tile::DEPTH * STRIDE * (int)sizeof(Acc);
  static constexpr int LINES = Operand::DEPTH_LAST ? LENGTH : Tile::DEPTH;
  static constexpr int CHUNKS = (Operand::DEPTH_LAST ? Tile::DEPTH : LENGTH) / TOGETHER;
  static constexpr int COUNT = LINES * CHUNKS, EACH = (COUNT + Tile::THREADS - 1) / Tile::THREADS;

  const Operand& operand;
  int batch, first, length, depth;
  Vec<Acc, TOGETHER> chunks[EACH];

  static VDEV int place(int at) {
    if constexpr (!COLUMNS) return at;
    else return (at / TOGETHER % PARTS * (LENGTH / RUN) + at / RUN) * TOGETHER + at % TOGETHER;
  }
  // What this thread brings of the tile of step `step`, into registers.
  VDEV void compute(int step) {
    const int deep = step * Tile::DEPTH;
    const int line0 = Operand::DEPTH_LAST ? first : deep, lines = Operand::DEPTH_LAST ? length : depth;
    const int column0 = Operand::DEPTH_LAST ? deep : first, columns = Operand::DEPTH_LAST ? depth : length;
    VEC_UNROLL for (int i = 0; i < EACH; i++) {
      const int item = i * Tile::THREADS + threadIdx.x, line = line0 + item / CHUNKS;
      const int column = column0 + item % CHUNKS * TOGETHER;
      const bool there = line < lines && column < columns && (COUNT % Tile::THREADS == 0 || item < COUNT);
      chunks[i] = there ? operand(batch, line, column, columns - column) : Vec<Acc, TOGETHER>{};
    }
  }
  VDEV void put(Acc* to) const {
    VEC_UNROLL for (int i = 0; i < EACH; i++) {
      const int item = i * Tile::THREADS + threadIdx.x, line = item / CHUNKS, column = item % CHUNKS * TOGETHER;
      if (COUNT % Tile::THREADS != 0 && item >= COUNT) break;
      if constexpr (!Operand::DEPTH_LAST) shared_store<Acc, TOGETHER>(to + line * STRIDE + place(column), chunks[i]);
      else
        VEC_UNROLL for (int k = 0; k < TOGETHER; k++)
          shared_store<Acc, 1>(to + (column + k) * STRIDE + place(line), Vec<Acc, 1>{{chunks[i].v[k]}});
    }
  }
};

// The block's tile of the product, handed to `epilogue`: see gemm_epilogue.cuh.
//
// left, right: operands in Acc, computed CHUNK<Acc> columns at a time. shared: two tiles of each.
template <class Tile, class Extents, class Left, class Right, class Epilogue>
VDEV void gemm_fma(unsigned char* shared, const Left& left, const Right& right, const Epilogue& epilogue) {
  using Acc = typename Tile::Acc;
  constexpr int STEPS = (Extents::DEPTH + Tile::DEPTH - 1) / Tile::DEPTH, TOGETHER = Tile::TOGETHER;
  constexpr int DEPTH = Extents::DEPTH < Tile::DEPTH ? Extents::DEPTH : Tile::DEPTH;  // few products: no zero is added
  const TilePlace place = tile_of<Extents, Tile::ROWS, Tile::COLUMNS, Tile::GROUP>(blockIdx.x);
  const int row = place.row * Tile::ROWS, column = place.column * Tile::COLUMNS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int own_row = warp / Tile::WARPS_N * Tile::WARP_ROWS + lane / Tile::ACROSS * Tile::OWN_ROWS;
  const int own_column = warp % Tile::WARPS_N * Tile::WARP_COLUMNS + lane % Tile::ACROSS * RUN;

  FmaFeed<Tile, Tile::ROWS, false, Left> rows{left, place.batch, row, Extents::ROWS, Extents::DEPTH};
  FmaFeed<Tile, Tile::COLUMNS, true, Right> columns{right, place.batch, column, Extents::COLUMNS, Extents::DEPTH};
  constexpr int STAGE_BYTES = decltype(rows)::BYTES + decltype(columns)::BYTES;
  const auto of_rows = [&](int step) { return (Acc*)(shared + step % 2 * STAGE_BYTES); };
  const auto of_columns = [&](int step) { return (Acc*)(shared + step % 2 * STAGE_BYTES + decltype(rows)::BYTES); };
  const auto compute = [&](int step) {
    rows.compute(step);
    columns.compute(step);
  };
  const auto put = [&](int step) {
    rows.put(of_rows(step));
    columns.put(of_columns(step));
  };

  Acc sums[Tile::OWN_ROWS][RUN];
  VEC_UNROLL for (int i = 0; i < Tile::OWN_ROWS; i++)
    VEC_UNROLL for (int j = 0; j < RUN; j++) sums[i][j] = (Acc)(FLOATING<Acc> && STEPS > 0 ? -0.0 : 0.0);  // plus x is x
  if constexpr (STEPS > 0) {
    compute(0);
    put(0);
    block_barrier();
  }
  VEC_ROLLED for (int step = 0; step < STEPS; step++) {
    if (step + 1 < STEPS) compute(step + 1);
    const Acc *a = of_rows(step) + own_row, *b = of_columns(step) + own_column / RUN * TOGETHER;
    VEC_UNROLL for (int k = 0; k < DEPTH; k++) {
      Acc x[Tile::OWN_ROWS], y[RUN];
      VEC_UNROLL for (int i = 0; i < Tile::OWN_ROWS; i += TOGETHER) {
        const auto run = shared_load<Acc, TOGETHER>(a + k * decltype(rows)::STRIDE + i);
        VEC_UNROLL for (int l = 0; l < TOGETHER; l++) x[i + l] = run.v[l];
      }
      VEC_UNROLL for (int p = 0; p < RUN / TOGETHER; p++) {
        const auto run = shared_load<Acc, TOGETHER>(b + k * decltype(columns)::STRIDE + p * (Tile::COLUMNS / RUN) * TOGETHER);
        VEC_UNROLL for (int l = 0; l < TOGETHER; l++) y[p * TOGETHER + l] = run.v[l];
      }
      VEC_UNROLL for (int i = 0; i < Tile::OWN_ROWS; i++)
        VEC_UNROLL for (int j = 0; j < RUN; j++) sums[i][j] = multiply_add(x[i], y[j], sums[i][j]);
    }
    if (step + 1 < STEPS) put(step + 1);  // where the step before this one was, which everybody has left
    block_barrier();
  }

  if (column + own_column < Extents::COLUMNS) {
    VEC_UNROLL for (int i = 0; i < Tile::OWN_ROWS; i++) {
      if (row + own_row + i >= Extents::ROWS) break;
      Vec<Acc, RUN> product;
      VEC_UNROLL for (int j = 0; j < RUN; j++) product.v[j] = sums[i][j];
      const int at = row + own_row + i, from = column + own_column, left = Extents::COLUMNS - from;
      epilogue(place.batch, at, from, product, left, epilogue.fetch(place.batch, at, from, left));
    }
  }
}
