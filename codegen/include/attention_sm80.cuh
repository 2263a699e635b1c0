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

// Lines of CHUNKS chunks of 16 bytes, turned so that lines of one fragment lie in different banks.
template <int LINES_, int CHUNKS_> struct SliceTile {
  static constexpr int LINES = LINES_, CHUNKS = CHUNKS_, BYTES = LINES * CHUNKS * 16;
  static_assert(CHUNKS == 2 || CHUNKS == 4 || CHUNKS % 8 == 0, "turned chunks stay in their line");
  static VDEV int turn(int line) {
    return CHUNKS == 2 ? line / 8 % 2 : CHUNKS == 4 ? line / 8 % 4 : line / 8 % 4 * 2 + line % 2;
  }
  static VDEV uint32_t at(int line, int chunk) { return (line * CHUNKS + (chunk ^ turn(line))) * 16; }
};
// Chunks of a line of N 16-bit elements, as tiles can be turned.
constexpr int chunks_of(int n) { return n <= 16 ? 2 : n <= 32 ? 4 : (n + 63) / 64 * 8; }

// Results of reductions in a row: REDUCTIONS of them.
template <int REDUCTIONS> struct RowValues { Vec<float, 1> of[REDUCTIONS]; };

// The part of an operand that goes into a tile at `to`: copied without the threads, or computed by them.
template <class T, class Tile, int THREADS, class Operand, class Window>
VDEV void bring(unsigned char* to, const Operand& operand, const Window& window) {
  if constexpr (Operand::BYTES > 0) {
    copy_tile<T, Tile, THREADS>(shared_address(to), operand, window);
  } else {
    HeldTile<T, Tile, THREADS> computed;
    computed.compute(operand, window);
    computed.put(to);
  }
}

// T: of the operands. Product: its extents. WIDTH: columns of the second product; 0: there is none. STAGES: tiles of an operand
// that are in shared memory or on their way. REDUCTIONS: of a row.
template <class T, class Product, int WIDTH, int BLOCKS, int WARPS, int STAGES, int REDUCTIONS> struct Strip {
  static constexpr int THREADS = 32 * WARPS, ROWS = FRAGMENT_ROWS * BLOCKS;
  static constexpr int STEP = SLICE * WARPS, TILES = (Product::COLUMNS + STEP - 1) / STEP;  // columns of a tile
  static constexpr int DEEP = (Product::DEPTH + 15) / 16, ACROSS = (WIDTH + 15) / 16;       // steps of mma
  static constexpr bool WHOLE = Product::ROWS % ROWS == 0 && Product::COLUMNS % STEP == 0;
  using Left = SwizzledTile<ROWS, chunks_of(Product::DEPTH)>;
  using Right = SliceTile<STEP, chunks_of(Product::DEPTH)>;
  using Values = SliceTile<STEP, chunks_of(WIDTH)>;
  using Partial = Staging<float, 16 * ACROSS + (ACROSS == 0) * RUN>;  // of a warp, of the second product
  // Shared memory: stages, then the left operand; the partial sums take their place; behind them the rows' reductions.
  static constexpr int STAGE_BYTES = WIDTH > 0 && Values::BYTES > Right::BYTES ? Values::BYTES : Right::BYTES;
  static constexpr int TILE_BYTES = STAGES * STAGE_BYTES + Left::BYTES, PARTIAL_BYTES = WIDTH > 0 ? WARPS * Partial::BYTES : 0;
  static constexpr int REDUCED_AT = TILE_BYTES > PARTIAL_BYTES ? TILE_BYTES : PARTIAL_BYTES;
  static constexpr int SHARED_BYTES = REDUCED_AT + REDUCTIONS * ROWS * WARPS * (int)sizeof(float);

  unsigned char* shared;
  int batch, row, lane, warp;
  float held[BLOCKS][TILES][4][4];
  RowValues<REDUCTIONS> found[BLOCKS][2];  // of rows lane / 4 and lane / 4 + 8

  VDEV explicit Strip(unsigned char* memory) : shared(memory) {
    constexpr int DOWN = (Product::ROWS + ROWS - 1) / ROWS;
    batch = blockIdx.x / DOWN;
    row = blockIdx.x % DOWN * ROWS;
    lane = threadIdx.x % 32;
    warp = threadIdx.x / 32;
  }
  VDEV unsigned char* stage(int tile) const { return shared + tile % STAGES * STAGE_BYTES; }
  // Of this thread: the first of its 8 columns of a tile, and one of its rows.
  VDEV int column(int tile) const { return tile * STEP + warp * SLICE + lane % 4 * RUN; }
  VDEV int row_of(int block, int half) const { return row + block * FRAGMENT_ROWS + half * 8 + lane / 4; }
  VDEV bool there(int block, int half, int tile) const {
    return WHOLE || (row_of(block, half) < Product::ROWS && column(tile) < Product::COLUMNS);
  }
  VDEV Vec<float, RUN> get(int block, int half, int tile) const {
    Vec<float, RUN> x;
    VEC_UNROLL for (int i = 0; i < RUN; i++) x.v[i] = held[block][tile][i / 2][half * 2 + i % 2];
    return x;
  }
  VDEV void put(int block, int half, int tile, const Vec<float, RUN>& x) {
    VEC_UNROLL for (int i = 0; i < RUN; i++) held[block][tile][i / 2][half * 2 + i % 2] = x.v[i];
  }
  template <class Phase> VDEV auto computed(const Phase& phase, int block, int half, int tile) const {
    const int at = column(tile);
    return phase(batch, row_of(block, half), at, get(block, half, tile), Product::COLUMNS - at, found[block][half]);
  }

  // held = the product.
  template <class A, class B> VDEV void multiply(const A& left, const B& right) {
    const auto begin = [&](int tile) {
      if (tile < TILES)
        bring<T, Right, THREADS>(
            stage(tile), right, Window<Product::COLUMNS, Product::DEPTH, Right, 8 * Right::CHUNKS>{batch, tile * STEP, 0});
      copy_async_commit();  // an empty group counts, too
    };
    unsigned char* const rows = shared + STAGES * STAGE_BYTES;
    bring<T, Left, THREADS>(rows, left, Window<Product::ROWS, Product::DEPTH, Left, 8 * Left::CHUNKS>{batch, row, 0});
    VEC_UNROLL for (int tile = 0; tile < STAGES - 1; tile++) begin(tile);
    uint32_t a[DEEP][BLOCKS][4];
    VEC_UNROLL for (int tile = 0; tile < TILES; tile++) {
      copy_async_wait<STAGES - 2>();
      block_barrier();  // the tile is there, and nobody reads the one before any more
      begin(tile + STAGES - 1);
      if (tile == 0) VEC_UNROLL for (int k = 0; k < DEEP; k++) load_fragments<Left, true, false>(a[k], shared_address(rows), 0, k, lane);
      VEC_UNROLL for (int i = 0; i < BLOCKS; i++)
        VEC_UNROLL for (int b = 0; b < 4; b++)
          VEC_UNROLL for (int j = 0; j < 4; j++) held[i][tile][b][j] = 0.0f;
      VEC_UNROLL for (int k = 0; k < DEEP; k++)
        VEC_UNROLL for (int b = 0; b < 4; b += 2) {
          // Two fragments, of each the halves in depth.
          const int line = warp * SLICE + slice_column(b + lane / 16, lane % 8);
          uint32_t columns[4];
          load_matrix_x4(columns, shared_address(stage(tile)) + Right::at(line, 2 * k + lane / 8 % 2));
          VEC_UNROLL for (int i = 0; i < BLOCKS; i++) {
            mma_16x8x16<T>(held[i][tile][b], a[k][i], columns[0], columns[1]);
            mma_16x8x16<T>(held[i][tile][b + 1], a[k][i], columns[2], columns[3]);
          }
        }
    }
  }

  // found.of[I] = what `join` makes of phase(...) in all columns of a row; held becomes that phase's values if KEPT.
  template <int I, bool KEPT, class Phase, class Join> VDEV void reduce(const Phase& phase, float identity, Join join) {
    float* const slots = (float*)(shared + REDUCED_AT) + I * ROWS * WARPS;
    VEC_UNROLL for (int i = 0; i < BLOCKS; i++)
      VEC_UNROLL for (int half = 0; half < 2; half++) {
        auto all = splat<RUN>(identity);
        VEC_UNROLL for (int tile = 0; tile < TILES; tile++) {
          if (!there(i, half, tile)) continue;
          auto x = computed(phase, i, half, tile);
          if (KEPT) put(i, half, tile, x);
          if (Product::COLUMNS % RUN != 0) x = first_lanes(Product::COLUMNS - column(tile), x, splat<RUN>(identity));
          all = join(all, x);
        }
        auto one = join_lanes(join, all);
        VEC_UNROLL for (int k = 1; k < 4; k *= 2) one = join(one, Vec<float, 1>{{shuffle_xor(one.v[0], k)}});
        if (lane % 4 == 0) shared_store<float, 1>(slots + (i * FRAGMENT_ROWS + half * 8 + lane / 4) * WARPS + warp, one);
      }
    block_barrier();
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

  // ---- the second product: its first tiles come while rows are reduced
  template <class C> VDEV void begin_second(const C& values, int tile) {
    if (tile < TILES)
      bring<T, Values, THREADS>(
          stage(tile), values, Window<Product::COLUMNS, WIDTH, Values, 8 * Values::CHUNKS>{batch, tile * STEP, 0});
    copy_async_commit();
  }
  template <class C> VDEV void prepare(const C& values) {
    block_barrier();  // nobody reads the tiles of the first any more
    VEC_UNROLL for (int tile = 0; tile < STAGES - 1; tile++) begin_second(values, tile);
  }
  // Hands the sums over columns of phase(...), of type T, and `values` to `epilogue`: see gemm_epilogue.cuh.
  template <class Phase, class C, class Epilogue> VDEV void multiply_again(const Phase& phase, const C& values, const Epilogue& epilogue) {
    float sums[BLOCKS][2 * ACROSS][4] = {};
    VEC_UNROLL for (int tile = 0; tile < TILES; tile++) {
      copy_async_wait<STAGES - 2>();
      block_barrier();
      begin_second(values, tile + STAGES - 1);
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
      VEC_UNROLL for (int p = 0; p < 2; p++)
        VEC_UNROLL for (int j = 0; j < 2 * ACROSS; j += 2) {
          // Two blocks of 8 columns, of each the halves in depth.
          const int line = warp * SLICE + slice_column(2 * p + lane / 8 % 2, lane % 8);
          uint32_t columns[4];
          load_matrix_x4_transposed(columns, shared_address(stage(tile)) + Values::at(line, j + lane / 16));
          VEC_UNROLL for (int i = 0; i < BLOCKS; i++) {
            mma_16x8x16<T>(sums[i][j], a[i][p], columns[0], columns[1]);
            mma_16x8x16<T>(sums[i][j + 1], a[i][p], columns[2], columns[3]);
          }
        }
    }
    copy_async_wait<0>();
    VEC_UNROLL for (int i = 0; i < BLOCKS; i++) {
      block_barrier();  // the stages, or the rows before, have been read
      const Partial own{(float*)(shared + warp * Partial::BYTES)};
      VEC_UNROLL for (int j = 0; j < 2 * ACROSS; j++) own.put(j, sums[i][j], lane);
      block_barrier();
      VEC_UNROLL for (int item = threadIdx.x; item < FRAGMENT_ROWS * 2 * ACROSS; item += THREADS) {
        const int r = item / (2 * ACROSS), run = item % (2 * ACROSS), left = WIDTH - run * RUN;
        const int at = row + i * FRAGMENT_ROWS + r;
        if (at >= Product::ROWS || left <= 0) continue;
        const auto ahead = epilogue.fetch(batch, at, run * RUN, left);
        auto x = Partial{(float*)shared}.run(r, run, lane);
        VEC_UNROLL for (int w = 1; w < WARPS; w++)
          x = add_(x, Partial{(float*)(shared + w * Partial::BYTES)}.run(r, run, lane));
        epilogue(batch, at, run * RUN, x, left, ahead);
      }
    }
  }
};
