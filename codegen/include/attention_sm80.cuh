// Products of matrices whose rows are reduced and gone over again while they are on the chip, by mma.sync (sm_80 and later):
//   product = left right^T;  held = f(product);  r0 = max over columns of held;  held = g(held, r0);  r1 = sum of held;  ...
// A block owns 16 * BLOCKS rows of one batch with all of their columns, in registers: its warps share the columns. What follows
// from held and the rows' results is stored, or it is the left operand of a second product, over the columns.
//
// mma.sync says which element of a fragment a thread gets, not which column an element is. Here element e of fragment b, of four
// that are a warp's 32 columns, is column 8 (e / 2) + 2 b + e % 2: each thread then has 8 neighbours of a row, which are whole
// vectors in memory, and two fragments side by side are one of the second product's left operand as they are.
#pragma once
#include "gemm_sm80.cuh"

constexpr int SLICE = 32;  // columns that a warp has of each tile
VDEV int slice_column(int fragment, int element) { return 8 * (element / 2) + 2 * fragment + element % 2; }

// A value that the compiler takes as it comes: what is added to it stays apart, as the constant part of an address.
VDEV int settled(int x) {
#ifndef FP_EMULATE
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// Lines of CHUNKS chunks of 16 bytes, turned so that lines of one fragment lie in different banks.
template <int LINES_, int CHUNKS_> struct SliceTile {
  static constexpr int LINES = LINES_, CHUNKS = CHUNKS_, BYTES = LINES * CHUNKS * 16;
  static_assert(CHUNKS >= 2 && (CHUNKS & (CHUNKS - 1)) == 0, "turned chunks stay in their line");
  static VCONST int turn(int line) {
    return CHUNKS == 2 ? line / 8 % 2 : CHUNKS == 4 ? line / 8 % 4 : line / 8 % 4 * 2 + line % 2;
  }
  static VCONST uint32_t at(int line, int chunk) { return (line * CHUNKS + (chunk ^ turn(line))) * 16; }
  // A place so many lines and chunks further on, which have no bit in common with its own; `place` may be in a tile that is
  // aligned to a line. Of constants this is a constant, and of the chunk's bits the only instruction.
  static VDEV uint32_t moved(uint32_t place, int lines, int chunks) {
    return (place ^ (uint32_t)((chunks ^ turn(lines)) * 16)) + lines * CHUNKS * 16;
  }
};
// Chunks of a line of so many 16-bit elements.
VCONST int chunks_of(int elements) { return power_above((elements + 15) / 16) * 2; }

// Results of reductions in a row: REDUCTIONS of them.
template <int REDUCTIONS> struct RowValues { Vec<float, 1> of[REDUCTIONS]; };

// An operand whose lines lie STEP elements apart, or not evenly: 0. The compiler cannot tell, since an index may wrap.
template <class Operand, int STEP_> struct Lines : Operand {
  static constexpr int STEP = STEP_;
};
// The part of an operand that goes into a tile at `to`: copied without the threads, or computed by them.
// thread: of THREADS, which are all of the block's where the operand is computed.
template <class T, class Tile, int THREADS, class Operand, class Window>
VDEV void bring(unsigned char* to, const Operand& operand, const Window& w, int thread) {
  constexpr int BYTES = Operand::BYTES;
  if constexpr (BYTES > 0) {
    constexpr int PARTS = 16 / BYTES, PER_LINE = Tile::CHUNKS * PARTS, LINES = THREADS / PER_LINE;  // lines at once
    static_assert((LINES & (LINES - 1)) == 0 && LINES > 0, "lines of a thread apart by a power of two");
    const int line = thread / PER_LINE, part = thread % PER_LINE, column = w.column + part * (BYTES / (int)sizeof(T));
    const uint32_t place = shared_address(to) + Tile::at(line, part / PARTS) + part % PARTS * BYTES;
    const auto at = [&](int i) {
      if constexpr (Operand::STEP > 0) return operand.at(w.batch, w.line + line, column) + (int64_t)i * Operand::STEP;
      else return operand.at(w.batch, w.line + line + i, column);
    };
    VEC_UNROLL for (int i = 0; i < Tile::LINES; i += LINES) {
      if (Tile::LINES % LINES != 0 && line + i >= Tile::LINES) break;
      copy_async<BYTES>(Tile::moved(place, i, 0), at(i), w.has(w.line + line + i, column));
    }
  } else {
    HeldTile<T, Tile, THREADS> computed;
    computed.compute(operand, w);
    computed.put(to);
  }
}

// Where the first phase gives value(), whatever the product: generated, for all points of a box. NoBlanks: nowhere.
struct NoBlanks {
  enum { SOME = false };
  static VDEV float value() { return 0.0f; }
  static VDEV bool all(int, int, int, int) { return false; }  // rows from, to, columns from, to: all included
};

// A block's GROUPS of WARPS warps have a strip of 16 * BLOCKS rows each, TURNS times one after the other, and share the right
// operands' tiles. With several turns all of these stay in shared memory, and the groups do not wait for each other.
// T: of the operands. Product: its extents. WIDTH: columns of the second product; 0: there is none. STAGES: tiles of an operand
// that are in shared memory or on their way. REDUCTIONS: of a row. Blanks: of what the first phase makes of the product.
template <class T, class Product, int WIDTH, int BLOCKS, int WARPS, int GROUPS, int STAGES, int TURNS, int REDUCTIONS, class Blanks>
struct Strip {
  static constexpr int GROUP_THREADS = 32 * WARPS, THREADS = GROUPS * GROUP_THREADS;
  static constexpr int ROWS = FRAGMENT_ROWS * BLOCKS, DOWN = (Product::ROWS + ROWS - 1) / ROWS, EACH = GROUPS * TURNS;
  static constexpr int STEP = SLICE * WARPS, TILES = (Product::COLUMNS + STEP - 1) / STEP;  // columns of a tile
  static constexpr int DEEP = (Product::DEPTH + 15) / 16, ACROSS = (WIDTH + 15) / 16;       // steps of mma
  static constexpr bool WHOLE_ROWS = Product::ROWS % ROWS == 0 && DOWN % EACH == 0;
  static constexpr bool WHOLE = WHOLE_ROWS && Product::COLUMNS % STEP == 0, RESIDENT = TURNS > 1;
  static_assert(!RESIDENT || (TILES <= STAGES && WIDTH == 0), "all tiles stay");
  using Left = SliceTile<ROWS, chunks_of(Product::DEPTH)>;
  using Right = SliceTile<STEP, chunks_of(Product::DEPTH)>;
  using Values = SliceTile<STEP, chunks_of(WIDTH)>;
  using Partial = Staging<float, 16 * ACROSS + (ACROSS == 0) * RUN>;  // of a warp, of the second product
  // Shared memory: stages, then left operands; the partial sums take their place; behind them the rows' reductions.
  static constexpr int STAGE_BYTES = WIDTH > 0 && Values::BYTES > Right::BYTES ? Values::BYTES : Right::BYTES;
  static constexpr int LEFT_AT = STAGES * STAGE_BYTES, TILE_BYTES = LEFT_AT + GROUPS * Left::BYTES;
  static constexpr int PARTIAL_BYTES = WIDTH > 0 ? GROUPS * WARPS * Partial::BYTES : 0;
  static constexpr int REDUCED_AT = TILE_BYTES > PARTIAL_BYTES ? TILE_BYTES : PARTIAL_BYTES;

  unsigned char* shared;
  int batch, strip, group, thread, lane, warp;  // thread and warp: of the group
  int row, own_row, own_column;                 // the first row of the strip; the first row and column of the thread
  float held[BLOCKS][TILES][4][4];
  Vec<float, 1> blank[BLOCKS][2];          // what is held wherever a slice is blank, of rows lane / 4 and lane / 4 + 8
  RowValues<REDUCTIONS> found[BLOCKS][2];  // of the same rows

  VDEV explicit Strip(unsigned char* memory) : shared(memory) {
    // Where rows differ in their work, those with the most of it come first: as a rule the last ones.
    constexpr int BATCHES = Product::BATCHES, PER_BATCH = (DOWN + EACH - 1) / EACH;
    group = GROUPS > 1 ? threadIdx.x / GROUP_THREADS : 0;
    thread = threadIdx.x - group * GROUP_THREADS;
    lane = threadIdx.x % 32;
    warp = thread / 32;
    batch = Blanks::SOME ? blockIdx.x % BATCHES : blockIdx.x / PER_BATCH;
    strip = (Blanks::SOME ? PER_BATCH - 1 - blockIdx.x / BATCHES : blockIdx.x % PER_BATCH) * EACH + group;
    own_column = settled(warp * SLICE + lane % 4 * RUN);
    begin(0);
  }
  // The group's next strip; false where there is none.
  VDEV bool begin(int turn) {
    row = (strip + turn * GROUPS) * ROWS;
    own_row = settled(row + lane / 4);
    VEC_UNROLL for (int i = 0; i < 2 * BLOCKS; i++) blank[i / 2][i % 2].v[0] = Blanks::value();
    return WHOLE_ROWS || row < Product::ROWS;
  }
  VDEV void group_barrier() const {
    if constexpr (GROUPS == 1) block_barrier();
    else named_barrier(1 + group, GROUP_THREADS);
  }
  // Of this thread: the first of its 8 columns of a tile, and one of its rows.
  VDEV int column(int tile) const { return own_column + tile * STEP; }
  VDEV int row_of(int block, int half) const { return own_row + block * FRAGMENT_ROWS + half * 8; }
  VDEV bool there(int block, int half, int tile) const {
    return WHOLE || (row_of(block, half) < Product::ROWS && column(tile) < Product::COLUMNS);
  }
  // Whether the warp's slice is blank, and whether all slices of a tile are.
  VDEV bool is_blank(int tile) const {
    const int first = tile * STEP + warp * SLICE;
    return Blanks::all(row, row + ROWS - 1, first, first + SLICE - 1);
  }
  VDEV bool is_blank_tile(int tile) const {
    const int first = row - group * ROWS;
    return Blanks::all(first, first + GROUPS * ROWS - 1, tile * STEP, tile * STEP + STEP - 1);
  }

  VDEV Vec<float, RUN> get(int block, int half, int tile) const {
    Vec<float, RUN> x;
    VEC_UNROLL for (int i = 0; i < RUN; i++) x.v[i] = held[block][tile][i / 2][half * 2 + i % 2];
    return x;
  }
  // What a phase makes of the 8 columns of a thread in one row. Of a slice that is blank all of them hold the same.
  template <class Phase> VDEV auto computed(const Phase& phase, int block, int half, int tile, const Vec<float, RUN>& x) const {
    const int at = column(tile);
    return phase(batch, row_of(block, half), at, x, Product::COLUMNS - at, found[block][half]);
  }
  template <class Phase> VDEV auto computed(const Phase& phase, int block, int half, int tile) const {
    if (Blanks::SOME && is_blank(tile)) return computed(phase, block, half, tile, splat<RUN>(blank[block][half]));
    return computed(phase, block, half, tile, get(block, half, tile));
  }

  // The part of the left operand that is a strip, as a Window: rows beyond the last are zero, those of a whole strip, too.
  struct Rows {
    static constexpr int COLUMNS = Product::DEPTH;
    int batch, line, column;
    VDEV bool has(int at_line, int at_column) const {
      return (WHOLE_ROWS || at_line < Product::ROWS) && (COLUMNS % (8 * Left::CHUNKS) == 0 || at_column < COLUMNS);
    }
  };
  template <class Tile, int LENGTH, class Operand> VDEV void bring_tile(const Operand& operand, int tile) const {
    if (tile < TILES)
      bring<T, Tile, THREADS>(
          shared + tile % STAGES * STAGE_BYTES, operand,
          Window<Product::COLUMNS, LENGTH, Tile, 8 * Tile::CHUNKS>{batch, tile * STEP, 0}, threadIdx.x);
    copy_async_commit();  // an empty group counts, too
  }
  // All of the right operand, for all turns.
  template <class B> VDEV void keep(const B& right) const {
    VEC_UNROLL for (int tile = 0; tile < TILES; tile++) bring_tile<Right, Product::DEPTH>(right, tile);
    copy_async_wait<0>();
    block_barrier();
  }

  // held = the product.
  template <class A, class B> VDEV void multiply(const A& left, const B& right) {
    unsigned char* const rows = shared + LEFT_AT + group * Left::BYTES;
    const auto next = [&](int tile) {
      if (Blanks::SOME && tile < TILES && is_blank_tile(tile)) copy_async_commit();
      else bring_tile<Right, Product::DEPTH>(right, tile);
    };
    bring<T, Left, GROUP_THREADS>(rows, left, Rows{batch, row, 0}, thread);
    if (RESIDENT) {
      copy_async_commit();
      copy_async_wait<0>();
      group_barrier();
    } else {
      VEC_UNROLL for (int tile = 0; tile < STAGES - 1; tile++) next(tile);
    }
    // Of four matrices, two fragments and of each the halves in depth.
    const uint32_t own = shared_address(shared) + Right::at(warp * SLICE + slice_column(lane / 16, lane % 8), lane / 8 % 2);
    uint32_t a[DEEP][BLOCKS][4];
    VEC_UNROLL for (int tile = 0; tile < TILES; tile++) {
      if (!RESIDENT) {
        copy_async_wait<STAGES - 2>();
        block_barrier();  // the tile is there, and nobody reads the one before any more
        next(tile + STAGES - 1);
      }
      if (tile == 0) VEC_UNROLL for (int k = 0; k < DEEP; k++) load_fragments<Left, true, false>(a[k], shared_address(rows), 0, k, lane);
      if (Blanks::SOME && is_blank(tile)) continue;
      VEC_UNROLL for (int i = 0; i < BLOCKS; i++)
        VEC_UNROLL for (int e = 0; e < 16; e++) held[i][tile][e / 4][e % 4] = 0.0f;
      VEC_UNROLL for (int k = 0; k < DEEP; k++)
        VEC_UNROLL for (int b = 0; b < 4; b += 2) {
          uint32_t columns[4];
          load_matrix_x4(columns, Right::moved(own, slice_column(b, 0), 2 * k) + tile % STAGES * STAGE_BYTES);
          VEC_UNROLL for (int i = 0; i < BLOCKS; i++) {
            mma_16x8x16<T>(held[i][tile][b], a[k][i], columns[0], columns[1]);
            mma_16x8x16<T>(held[i][tile][b + 1], a[k][i], columns[2], columns[3]);
          }
        }
    }
  }

  // found.of[I] = what `join` makes of phase(...) in all columns of a row; held becomes that phase's values if KEPT.
  template <int I, bool KEPT, class Phase, class Join> VDEV void reduce(const Phase& phase, float identity, Join join) {
    float* const slots = (float*)(shared + REDUCED_AT) + (I * GROUPS + group) * ROWS * WARPS;
    VEC_UNROLL for (int i = 0; i < BLOCKS; i++)
      VEC_UNROLL for (int half = 0; half < 2; half++) {
        auto all = splat<RUN>(identity);
        Vec<float, 1> held_blank = blank[i][half];
        VEC_UNROLL for (int tile = 0; tile < TILES; tile++) {
          if (!there(i, half, tile)) continue;
          const auto take = [&](Vec<float, RUN> x) {
            if (Product::COLUMNS % RUN != 0) x = first_lanes(Product::COLUMNS - column(tile), x, splat<RUN>(identity));
            all = join(all, x);
          };
          if (Blanks::SOME && is_blank(tile)) {
            auto x = splat<RUN>(blank[i][half]);
            if (I > 0) x = computed(phase, i, half, tile, x);  // the first phase has been: it is where blanks come from
            if (KEPT) held_blank.v[0] = x.v[0];
            take(x);
          } else {
            const auto x = computed(phase, i, half, tile, get(i, half, tile));
            if (KEPT) VEC_UNROLL for (int e = 0; e < RUN; e++) held[i][tile][e / 2][half * 2 + e % 2] = x.v[e];
            take(x);
          }
        }
        blank[i][half] = held_blank;
        auto one = join_lanes(join, all);
        VEC_UNROLL for (int k = 1; k < 4; k *= 2) one = join(one, Vec<float, 1>{{shuffle_xor(one.v[0], k)}});
        if (lane % 4 == 0) shared_store<float, 1>(slots + (i * FRAGMENT_ROWS + half * 8 + lane / 4) * WARPS + warp, one);
      }
    group_barrier();
    VEC_UNROLL for (int i = 0; i < BLOCKS; i++)
      VEC_UNROLL for (int half = 0; half < 2; half++) {
        const float* const from = slots + (i * FRAGMENT_ROWS + half * 8 + lane / 4) * WARPS;
        auto all = shared_load<float, 4>(from);
        VEC_UNROLL for (int w = 4; w < WARPS; w += 4) all = join(all, shared_load<float, 4>(from + w));
        found[i][half].of[I] = join_lanes(join, all);
      }
  }

  // phase(...) stores what it computes.
  template <class Phase> VDEV void store(const Phase& phase) const {
    VEC_UNROLL for (int i = 0; i < BLOCKS; i++)
      VEC_UNROLL for (int tile = 0; tile < TILES; tile++)
        VEC_UNROLL for (int half = 0; half < 2; half++)
          if (there(i, half, tile)) computed(phase, i, half, tile);
  }

  // The first tiles of the second product's right operand, which come while rows are reduced.
  template <class C> VDEV void prepare(const C& values) const {
    block_barrier();  // nobody reads the tiles of the first any more
    VEC_UNROLL for (int tile = 0; tile < STAGES - 1; tile++) bring_tile<Values, WIDTH>(values, tile);
  }
  // Hands the sums over columns of phase(...), of type T, and `values` to `epilogue`: see gemm_epilogue.cuh.
  template <class Phase, class C, class Epilogue> VDEV void multiply_again(const Phase& phase, const C& values, const Epilogue& epilogue) const {
    // Of four matrices, the halves in depth of two blocks of 8 columns.
    const uint32_t own = shared_address(shared) + Values::at(warp * SLICE + slice_column(lane / 8 % 2, lane % 8), lane / 16);
    float sums[BLOCKS][2 * ACROSS][4] = {};
    VEC_UNROLL for (int tile = 0; tile < TILES; tile++) {
      copy_async_wait<STAGES - 2>();
      block_barrier();  // the tile is there, and nobody reads the one before any more
      bring_tile<Values, WIDTH>(values, tile + STAGES - 1);
      uint32_t a[BLOCKS][2][4];  // of the slice's halves
      VEC_UNROLL for (int i = 0; i < BLOCKS; i++)
        VEC_UNROLL for (int half = 0; half < 2; half++) {
          Vec<T, RUN> x{};
          if (there(i, half, tile)) x = computed(phase, i, half, tile);
          if (Product::COLUMNS % RUN != 0) x = only_first(x, Product::COLUMNS - column(tile));
          uint32_t words[4];
          memcpy(words, &x, sizeof words);
          VEC_UNROLL for (int b = 0; b < 4; b++) a[i][b / 2][half + b % 2 * 2] = words[b];
        }
      warp_barrier();  // lanes may have parted: fragments are all lanes' together
      VEC_UNROLL for (int p = 0; p < 2; p++)
        VEC_UNROLL for (int j = 0; j < 2 * ACROSS; j += 2) {
          uint32_t columns[4];
          load_matrix_x4_transposed(columns, Values::moved(own, slice_column(2 * p, 0), j) + tile % STAGES * STAGE_BYTES);
          VEC_UNROLL for (int i = 0; i < BLOCKS; i++) {
            mma_16x8x16<T>(sums[i][j], a[i][p], columns[0], columns[1]);
            mma_16x8x16<T>(sums[i][j + 1], a[i][p], columns[2], columns[3]);
          }
        }
    }
    copy_async_wait<0>();
    VEC_UNROLL for (int i = 0; i < BLOCKS; i++) {
      block_barrier();  // the stages, or the rows before, have been read
      unsigned char* const parts = shared + group * WARPS * Partial::BYTES;
      const Partial own_part{(float*)(parts + warp * Partial::BYTES)};
      VEC_UNROLL for (int j = 0; j < 2 * ACROSS; j++) own_part.put(j, sums[i][j], lane);
      block_barrier();
      VEC_UNROLL for (int from = 0; from < FRAGMENT_ROWS * 2 * ACROSS; from += GROUP_THREADS) {
        const int item = from + thread, r = item / (2 * ACROSS), run = item % (2 * ACROSS), left = WIDTH - run * RUN;
        const int at = row + i * FRAGMENT_ROWS + r;
        if (r >= FRAGMENT_ROWS || at >= Product::ROWS || left <= 0) continue;
        const auto ahead = epilogue.fetch(batch, at, run * RUN, left);
        auto x = Partial{(float*)parts}.run(r, run, lane);
        VEC_UNROLL for (int w = 1; w < WARPS; w++) x = add_(x, Partial{(float*)(parts + w * Partial::BYTES)}.run(r, run, lane));
        epilogue(batch, at, run * RUN, x, left, ahead);
      }
    }
  }
};
