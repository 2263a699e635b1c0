// Matrix products by mma.sync (sm_80 and later): tiles of the operands come into shared memory while those before them are
// multiplied, fragments by ldmatrix while those before them are.
#pragma once
#include "gemm_epilogue.cuh"
#include "gemm_tiles.cuh"

// A block's tile of the product, ROWS x COLUMNS, in steps of DEPTH products, of which STAGES are on their way; each of
// WARPS_M x WARPS_N warps computes a part of it. GROUP: see tile_of.
template <class T_, int ROWS_, int COLUMNS_, int DEPTH_, int STAGES_, int WARPS_M_, int WARPS_N_, int GROUP_> struct TensorTile {
  using T = T_;
  using Acc = If<SAME<T, int8_t>, int32_t, float>;
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, DEPTH = DEPTH_, STAGES = STAGES_, GROUP = GROUP_;
  static constexpr int WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, THREADS = 32 * WARPS_M * WARPS_N;
  static constexpr int WARP_ROWS = ROWS / WARPS_M, WARP_COLUMNS = COLUMNS / WARPS_N;
  static constexpr int STAGED = WARP_COLUMNS % 64 == 0 ? 64 : WARP_COLUMNS % 32 == 0 ? 32 : 16;  // columns, in the epilogue
  static_assert(WARP_ROWS % 16 == 0 && WARP_COLUMNS % 16 == 0, "whole fragments");
  // An operand's tile: lines of the matrix, or, where DEPTH_LAST is not set, lines of one product of every sum each.
  template <int LENGTH, bool DEPTH_LAST> using Operand =
      SwizzledTile<DEPTH_LAST ? LENGTH : DEPTH, (DEPTH_LAST ? DEPTH : LENGTH) / CHUNK<T>>;
};

// Fragments of one step of 32 bytes of products, for 16 * BLOCKS rows or columns of a tile from `first` on.
template <class Tile, bool DEPTH_LAST, bool COLUMNS, int BLOCKS>
VDEV void load_fragments(uint32_t (&fragments)[BLOCKS][4], uint32_t tile, int first, int step, int lane) {
  VEC_UNROLL for (int i = 0; i < BLOCKS; i++) {
    // Of four 8 x 8 matrices, those that mma takes first are the upper and the lower rows; of columns, the halves in depth.
    const int low = lane % 8, second = lane / 8 % 2, third = lane / 16;
    const int along = first + i * 16 + 8 * (COLUMNS ? third : second), deep = COLUMNS ? second : third;
    if constexpr (DEPTH_LAST) load_matrix_x4(fragments[i], tile + Tile::at(along + low, step * 2 + deep));
    else load_matrix_x4_transposed(fragments[i], tile + Tile::at(step * 16 + 8 * deep + low, along / 8));
  }
}

template <class T, class Acc> VDEV void multiply(Acc (&sums)[4], const uint32_t (&rows)[4], const uint32_t* columns) {
  if constexpr (SAME<T, int8_t>) mma_16x8x32_s8(sums, rows, columns[0], columns[1]);
  else mma_16x8x16<T>(sums, rows, columns[0], columns[1]);
}

// One operand on its way into the stages: copied, or computed and held back until its stage is free. LENGTH: rows or columns
// of a tile, of EXTENT in all; DEPTH: products of a sum.
template <class Tile, int LENGTH, int EXTENT, int DEPTH, class Operand> struct Feed {
  using T = typename Tile::T;
  using Held = typename Tile::template Operand<LENGTH, Operand::DEPTH_LAST>;
  static constexpr int BYTES = Held::BYTES;
  static constexpr bool COPIED = Operand::BYTES > 0;

  const Operand& operand;
  int batch, first;
  HeldTile<T, Held, COPIED ? BYTES : Tile::THREADS> held;  // not used where nothing is held

  VDEV auto window(int step) const {
    const int at = step * Tile::DEPTH;
    if constexpr (Operand::DEPTH_LAST) return Window<EXTENT, DEPTH, Held, Tile::DEPTH>{batch, first, at};
    else return Window<DEPTH, EXTENT, Held, LENGTH>{batch, at, first};
  }
  // Begins to bring step `step` into a stage, which may still be read by slower warps only if it is computed.
  VDEV void begin(unsigned char* stage, int step) {
    if constexpr (COPIED) copy_tile<T, Held, Tile::THREADS>(shared_address(stage), operand, window(step));
    else held.compute(operand, window(step));
  }
  VDEV void end(unsigned char* stage) const {
    if constexpr (!COPIED) held.put(stage);
  }
};

// The block's tile of the product, handed to `epilogue`: see gemm_epilogue.cuh.
//
// left, right: operands as [row or column, depth] matrices, or, without DEPTH_LAST, as [depth, row or column]; see copy_tile
// and HeldTile. shared: STAGES tiles of each, or the staging of the epilogue, whichever is more.
template <class Tile, class Extents, class Left, class Right, class Epilogue>
VDEV void gemm_sm80(unsigned char* shared, const Left& left, const Right& right, const Epilogue& epilogue) {
  using T = typename Tile::T;
  using Acc = typename Tile::Acc;
  constexpr int STAGES = Tile::STAGES, STEPS = (Extents::DEPTH + Tile::DEPTH - 1) / Tile::DEPTH;
  constexpr int DOWN = Tile::WARP_ROWS / 16, ACROSS = Tile::WARP_COLUMNS / 8;  // fragments of a warp
  constexpr int INNER = Tile::DEPTH * (int)sizeof(T) / 32;                     // of mma, in one step
  const TilePlace place = tile_of<Extents, Tile::ROWS, Tile::COLUMNS, Tile::GROUP>(blockIdx.x);
  const int row = place.row * Tile::ROWS, column = place.column * Tile::COLUMNS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp / Tile::WARPS_N * Tile::WARP_ROWS, warp_column = warp % Tile::WARPS_N * Tile::WARP_COLUMNS;

  Feed<Tile, Tile::ROWS, Extents::ROWS, Extents::DEPTH, Left> rows{left, place.batch, row};
  Feed<Tile, Tile::COLUMNS, Extents::COLUMNS, Extents::DEPTH, Right> columns{right, place.batch, column};
  constexpr int STAGE_BYTES = decltype(rows)::BYTES + decltype(columns)::BYTES;
  const auto begin = [&](int step, int stage) {
    if (step < STEPS) {
      rows.begin(shared + stage * STAGE_BYTES, step);
      columns.begin(shared + stage * STAGE_BYTES + decltype(rows)::BYTES, step);
    }
    copy_async_commit();  // an empty group counts, too
  };
  const auto end = [&](int step, int stage) {
    if (step < STEPS) {
      rows.end(shared + stage * STAGE_BYTES);
      columns.end(shared + stage * STAGE_BYTES + decltype(rows)::BYTES);
    }
  };

  Acc sums[DOWN][ACROSS][4] = {};
  VEC_UNROLL for (int step = 0; step < STAGES - 1; step++) {
    begin(step, step);
    end(step, step);
  }
  int stage = 0, free = STAGES - 1;  // the one that is multiplied, and the one that was before
  VEC_ROLLED for (int step = 0; step < STEPS; step++) {
    copy_async_wait<STAGES - 2>();
    block_barrier();  // step `step` is there, and nobody reads the step before any more
    begin(step + STAGES - 1, free);
    const uint32_t a = shared_address(shared) + stage * STAGE_BYTES, b = a + decltype(rows)::BYTES;
    uint32_t of_rows[2][DOWN][4], of_columns[2][ACROSS / 2][4];
    const auto fetch = [&](int inner) {
      load_fragments<typename decltype(rows)::Held, Left::DEPTH_LAST, false>(of_rows[inner % 2], a, warp_row, inner, lane);
      load_fragments<typename decltype(columns)::Held, Right::DEPTH_LAST, true>(
          of_columns[inner % 2], b, warp_column, inner, lane);
    };
    fetch(0);
    VEC_UNROLL for (int inner = 0; inner < INNER; inner++) {
      if (inner + 1 < INNER) fetch(inner + 1);
      VEC_UNROLL for (int i = 0; i < DOWN; i++)
        VEC_UNROLL for (int j = 0; j < ACROSS; j++)
          multiply<T>(sums[i][j], of_rows[inner % 2][i], &of_columns[inner % 2][j / 2][j % 2 * 2]);
    }
    end(step + STAGES - 1, free);
    free = stage;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  copy_async_wait<0>();
  block_barrier();  // the stages become the staging

  unsigned char* own = shared + warp * Staging<Acc, Tile::STAGED>::BYTES;
  VEC_UNROLL for (int i = 0; i < DOWN; i++)
    VEC_UNROLL for (int from = 0; from < Tile::WARP_COLUMNS; from += Tile::STAGED)
      staged_epilogue<Acc>(
          own, Handing<Extents, Tile::STAGED>{place.batch, row + warp_row + 16 * i, column + warp_column + from},
          [&](int block) { return sums[i][from / 8 + block]; }, epilogue);
}
