// Tiles of a matrix product: which one a block computes, and how those of the operands come into shared memory.
#pragma once
#include "device_cuda.cuh"
#include "vec_cuda.cuh"
#ifdef FP_EMULATE
#define VEC_ROLLED
#else
#define VEC_ROLLED _Pragma("unroll 1")  // a long body, whose iterations gain nothing from each other
#endif

template <class T> constexpr int CHUNK = 16 / (int)sizeof(T);  // elements of 16 bytes

// Rows, columns, products of a sum, and how many such products there are.
template <int BATCHES_, int ROWS_, int COLUMNS_, int DEPTH_> struct Extents {
  static constexpr int BATCHES = BATCHES_, ROWS = ROWS_, COLUMNS = COLUMNS_, DEPTH = DEPTH_;
};

// The tile of one block: blocks that run at the same time compute tiles of GROUP rows of tiles, which share what they read.
struct TilePlace { int batch, row, column; };  // in tiles
template <class Extents, int ROWS, int COLUMNS, int GROUP> VDEV TilePlace tile_of(int block) {
  constexpr int DOWN = (Extents::ROWS + ROWS - 1) / ROWS, ACROSS = (Extents::COLUMNS + COLUMNS - 1) / COLUMNS;
  const int batch = block / (DOWN * ACROSS), tile = block % (DOWN * ACROSS);
  const int first = tile / (GROUP * ACROSS) * GROUP, within = tile % (GROUP * ACROSS);
  const int height = DOWN - first < GROUP ? DOWN - first : GROUP;
  return {batch, first + within % height, within / height};
}

// LINES lines of CHUNKS chunks of 16 bytes. Chunk c of a line lies at place c ^ turn, where the turn goes with the line: the
// same chunk of 8 lines, which ldmatrix reads at once, then lies in all 32 banks.
template <int LINES_, int CHUNKS_> struct SwizzledTile {
  static constexpr int LINES = LINES_, CHUNKS = CHUNKS_, BYTES = LINES * CHUNKS * 16;
  static constexpr int TURNS = CHUNKS < 8 ? CHUNKS : 8;
  static_assert(CHUNKS % TURNS == 0 && 8 % TURNS == 0, "turned chunks stay in their line");
  static VDEV uint32_t at(int line, int chunk) { return (line * CHUNKS + (chunk ^ line / (8 / TURNS) % TURNS)) * 16; }
};

// What an operand is: copied BYTES at a time, or computed (0). DEPTH_LAST: its columns are the products of a sum; otherwise
// its rows are.
template <int BYTES_, bool DEPTH_LAST_> struct Copied {
  static constexpr int BYTES = BYTES_;
  static constexpr bool DEPTH_LAST = DEPTH_LAST_;
};
template <bool DEPTH_LAST> using Computed = Copied<0, DEPTH_LAST>;

// The part of a matrix that goes into one tile: from `line` and `column` on, of LINES and COLUMNS in all. What is beyond is
// zero. WHOLE: whether these are whole tiles, so that nothing is.
template <int LINES_, int COLUMNS_, class Tile, int TILE_COLUMNS> struct Window {
  static constexpr int LINES = LINES_, COLUMNS = COLUMNS_;
  static constexpr bool WHOLE_LINES = LINES % Tile::LINES == 0, WHOLE_COLUMNS = COLUMNS % TILE_COLUMNS == 0;
  int batch, line, column;
  VDEV bool has(int at_line, int at_column) const {
    return (WHOLE_LINES || at_line < LINES) && (WHOLE_COLUMNS || at_column < COLUMNS);
  }
};

// An operand that lies in memory as the tile wants it, copied without the threads: Operand::at(batch, line, column) is where
// Operand::BYTES bytes of it are.
template <class T, class Tile, int THREADS, class Operand, class Window>
VDEV void copy_tile(uint32_t to, const Operand& operand, Window w) {
  constexpr int BYTES = Operand::BYTES, PARTS = 16 / BYTES, PER_LINE = Tile::CHUNKS * PARTS, COUNT = Tile::LINES * PER_LINE;
  VEC_UNROLL for (int i = 0; i < (COUNT + THREADS - 1) / THREADS; i++) {
    const int item = i * THREADS + threadIdx.x, line = item / PER_LINE, part = item % PER_LINE;
    if (COUNT % THREADS != 0 && item >= COUNT) break;
    const int from = w.line + line, column = w.column + part * (BYTES / (int)sizeof(T));
    copy_async<BYTES>(
        to + Tile::at(line, part / PARTS) + part % PARTS * BYTES, operand.at(w.batch, from, column), w.has(from, column));
  }
}

// An operand that is computed: Operand()(batch, line, column, columns left) is a chunk of it. It waits in registers until
// the tile it goes to is free.
template <class T, class Tile, int THREADS> struct HeldTile {
  static constexpr int COUNT = Tile::LINES * Tile::CHUNKS, EACH = (COUNT + THREADS - 1) / THREADS;
  Vec<T, CHUNK<T>> chunks[EACH];

  template <class Operand, class Window> VDEV void compute(const Operand& operand, Window w) {
    VEC_UNROLL for (int i = 0; i < EACH; i++) {
      const int item = i * THREADS + threadIdx.x, line = w.line + item / Tile::CHUNKS;
      const int column = w.column + item % Tile::CHUNKS * CHUNK<T>;
      const bool there = w.has(line, column) && (COUNT % THREADS == 0 || item < COUNT);
      chunks[i] = there ? operand(w.batch, line, column, Window::COLUMNS - column) : Vec<T, CHUNK<T>>{};
    }
  }
  VDEV void put(unsigned char* to) const {
    VEC_UNROLL for (int i = 0; i < EACH; i++) {
      const int item = i * THREADS + threadIdx.x;
      if (COUNT % THREADS != 0 && item >= COUNT) break;
      shared_store<T, CHUNK<T>>((T*)(to + Tile::at(item / Tile::CHUNKS, item % Tile::CHUNKS)), chunks[i]);
    }
  }
};

// Lanes from n on are zero, whatever was computed there.
template <class T, int W> VDEV Vec<T, W> only_first(const Vec<T, W>& x, int n) {
  Vec<T, W> r;
  VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = i < n ? x.v[i] : Lane<T>{};
  return r;
}
// Part p of a run, W columns wide, taken and put.
template <int W, class T, int N> VDEV Vec<T, W> part(const Vec<T, N>& run, int p) {
  Vec<T, W> r;
  VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = run.v[p * W + i];
  return r;
}
template <int W, class T, int N> VDEV void put_part(Vec<T, N>& run, int p, const Vec<T, W>& x) {
  VEC_UNROLL for (int i = 0; i < W; i++) run.v[p * W + i] = x.v[i];
}
template <class Acc> VDEV Acc multiply_add(Acc a, Acc b, Acc sum) {
  if constexpr (FLOATING<Acc>) return core::fma(a, b, sum);
  else return (Acc)((Uint<sizeof(Acc)>)a * (Uint<sizeof(Acc)>)b + (Uint<sizeof(Acc)>)sum);
}
