// Matrix products on sm_90a: product[m, n] = sum over k of a[m, k] b[k, n], tile by tile, over a persistent grid.
//
// In each block one warp group, the producer, brings tiles of a and b to shared memory by tensor maps; the others, the
// consumers, multiply them by wgmma and hand the sums to the epilogue. Tiles go through a ring of stages: a full barrier
// per stage says that its bytes are there, an empty one that nobody reads them any more. The producer runs ahead, into
// the next tile while the consumers are at an epilogue. Consumers share the rows of each tile, or (PINGPONG) take tiles in
// turns: then one multiplies while the others are at their epilogues. Blocks of a cluster have tiles below each other and the
// same columns: each brings its part of b to all of them.
//
// A stage holds DEPTH of the summed axis: a row of 128 bytes of a K-major operand. It is swizzled over 128 bytes:
// K-major: [rows][DEPTH]; MN-major (ACROSS): [rows / 64][DEPTH][64].
#pragma once
#include "device_sm90.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_tiles.cuh"

// How a product is cut. ROWS, COLUMNS: of a tile. STAGES: of the ring. CONSUMERS: warp groups that multiply. PINGPONG: each of
// them its own tiles. CLUSTER: blocks. GROUP: tiles below each other that come before those of the next column. STAGED: columns that a warp's
// epilogue passes through shared memory at once. A_ACROSS, B_ACROSS: the operand's rows, not its summed axis, are
// contiguous in memory.
template <class T_, int ROWS_, int COLUMNS_, int STAGES_, int CONSUMERS_, bool PINGPONG_, int CLUSTER_, int GROUP_, int STAGED_,
          bool A_ACROSS_, bool B_ACROSS_>
struct WgmmaTile {
  using T = T_;
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, STAGES = STAGES_, CONSUMERS = CONSUMERS_, CLUSTER = CLUSTER_;
  static constexpr int GROUP = GROUP_, STAGED = STAGED_, DEPTH = 64, SWIZZLE = 128;
  static constexpr bool PINGPONG = PINGPONG_, A_ACROSS = A_ACROSS_, B_ACROSS = B_ACROSS_;
  static constexpr int SHARERS = PINGPONG ? 1 : CONSUMERS;  // consumers of a tile
  static constexpr int M64 = ROWS / (64 * SHARERS);         // products of 64 rows that a consumer computes side by side
  static constexpr int A_BYTES = ROWS * SWIZZLE, B_BYTES = COLUMNS * SWIZZLE;
  static constexpr int STAGING_BYTES = CONSUMERS * 4 * Staging<float, STAGED>::BYTES;
  static constexpr int B = STAGES * A_BYTES, STAGING = B + STAGES * B_BYTES, FULL = STAGING + STAGING_BYTES;
  static constexpr int EMPTY = FULL + STAGES * 8, TURN = EMPTY + STAGES * 8, SHARED_BYTES = TURN + (PINGPONG ? CONSUMERS * 8 : 0);
  static constexpr int SUMS = M64 * COLUMNS / 2;  // accumulators of a consumer's thread
  static constexpr int THREADS = 128 * (CONSUMERS + 1);
  static_assert(ROWS % (64 * SHARERS) == 0 && COLUMNS % 8 == 0 && COLUMNS <= 256, "what wgmma multiplies");
  static_assert(COLUMNS % STAGED == 0, "whole passes through shared memory");
  static_assert(B_ACROSS ? COLUMNS % 64 == 0 : COLUMNS % (8 * CLUSTER) == 0, "boxes of whole swizzled rows");
};

// Where a stage of the ring is, and how often the ring was gone round, by parity.
template <int STAGES> struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  VDEV void advance() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
  VDEV void advance(int stages) {
    stage += stages;
    parity ^= stage / STAGES & 1;
    stage %= STAGES;
  }
};

// Where tile t of the blocks of one rank of each cluster begins. Extents: see gemm_tiles.cuh.
template <class Tile, class Extents> VDEV TilePlace tile_place(int t, int rank) {
  const TilePlace place = tile_of<Extents, Tile::ROWS * Tile::CLUSTER, Tile::COLUMNS, Tile::GROUP>(t);
  return {place.batch, (place.row * Tile::CLUSTER + rank) * Tile::ROWS, place.column * Tile::COLUMNS};
}
template <class Tile, class Extents> constexpr int TILES = Extents::BATCHES *
    ((Extents::ROWS + Tile::ROWS * Tile::CLUSTER - 1) / (Tile::ROWS * Tile::CLUSTER)) *
    ((Extents::COLUMNS + Tile::COLUMNS - 1) / Tile::COLUMNS);

// One thread's work. load_a(to, bar, batch, row, depth), load_b(to, bar, batch, column, depth, mask): bring a box.
template <class Tile, class Extents, int DEPTHS, class LoadA, class LoadB>
VDEV void wgmma_produce(uint32_t base, int rank, LoadA load_a, LoadB load_b) {
  const uint16_t everybody = (1 << Tile::CLUSTER) - 1;
  RingPlace<Tile::STAGES> at;
  for (int t = blockIdx.x / Tile::CLUSTER; t < TILES<Tile, Extents>; t += gridDim.x / Tile::CLUSTER) {
    const TilePlace tile = tile_place<Tile, Extents>(t, rank);
    for (int depth = 0; depth < DEPTHS; depth++, at.advance()) {
      const uint32_t a = base + at.stage * Tile::A_BYTES, b = base + Tile::B + at.stage * Tile::B_BYTES;
      const uint32_t full = base + Tile::FULL + 8 * at.stage;
      barrier_wait(base + Tile::EMPTY + 8 * at.stage, at.parity ^ 1);  // of a new barrier the phase before is over
      barrier_expect(full, Tile::A_BYTES + Tile::B_BYTES);
      constexpr int RUN = 64, RUN_BYTES = Tile::DEPTH * Tile::SWIZZLE;  // of an operand that lies across
      if constexpr (Tile::A_ACROSS) {
        for (int i = 0; i < Tile::ROWS / RUN; i++) load_a(a + i * RUN_BYTES, full, tile.batch, tile.row + i * RUN, depth);
      } else load_a(a, full, tile.batch, tile.row, depth);
      if constexpr (Tile::B_ACROSS) {
        for (int i = rank; i < Tile::COLUMNS / RUN; i += Tile::CLUSTER)
          load_b(b + i * RUN_BYTES, full, tile.batch, tile.column + i * RUN, depth, everybody);
      } else {
        constexpr int PART = Tile::COLUMNS / Tile::CLUSTER;
        load_b(b + rank * PART * Tile::SWIZZLE, full, tile.batch, tile.column + rank * PART, depth, everybody);
      }
    }
  }
}

// Descriptor of 16 of the summed axis, `step` of four in a stage.
template <bool ACROSS> VDEV uint64_t stage_descriptor(uint32_t rows, int step) {
  if constexpr (ACROSS) return matrix_descriptor(rows + step * 16 * 128, 64 * 128, 1024);
  else return matrix_descriptor(rows + step * 32, 16, 1024);
}

// A consumer's work: warp group `group` has rows [64 M64 group, 64 M64 (group + 1)) of each tile, or every CONSUMERS-th tile.
// In turns, nobody waits for a stage that is two rounds ahead: the parity of its barrier would be that of one long past.
template <class Tile, class Extents, int DEPTHS, class Epilogue>
VDEV void wgmma_consume(unsigned char* shared, uint32_t base, int group, int rank, const Epilogue& epilogue) {
  constexpr int M64 = Tile::M64, COLUMNS = Tile::COLUMNS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  constexpr int PARTS = COLUMNS / Tile::STAGED, OTHERS = Tile::CONSUMERS / Tile::SHARERS - 1, STEP = 1 + OTHERS;
  using Stage = Staging<float, Tile::STAGED>;
  using Part = Handing<Extents, Tile::STAGED>;
  const Stage staging{(float*)(shared + Tile::STAGING + (group * 4 + warp) * Stage::BYTES)};
  const int first_row = (Tile::PINGPONG ? 0 : group * M64) * 64, turn = Tile::PINGPONG ? group : 0;
  float sums[M64][COLUMNS / 2];
  auto release = [&](int stage) {  // to every block whose copies write into it
    if constexpr (Tile::CLUSTER == 1) {
      if (lane == 0) barrier_arrive(base + Tile::EMPTY + 8 * stage);
    } else if (lane < Tile::CLUSTER) barrier_arrive_at(base + Tile::EMPTY + 8 * stage, lane);
  };
  const int clusters = gridDim.x / Tile::CLUSTER;
  RingPlace<Tile::STAGES> at;
  at.advance(turn * DEPTHS);
  uint32_t parity = group == 0;  // of our turn: the first one begins with the first group
  for (int t = blockIdx.x / Tile::CLUSTER + turn * clusters; t < TILES<Tile, Extents>; t += STEP * clusters) {
    const TilePlace tile = tile_place<Tile, Extents>(t, rank);
    if constexpr (Tile::PINGPONG) barrier_wait(base + Tile::TURN + 8 * group, parity);
    parity ^= 1;
    int before = 0;
    for (int depth = 0; depth < DEPTHS; depth++, at.advance()) {
      barrier_wait(base + Tile::FULL + 8 * at.stage, at.parity);
      const uint32_t a = base + at.stage * Tile::A_BYTES + first_row * Tile::SWIZZLE;
      const uint32_t b = base + Tile::B + at.stage * Tile::B_BYTES;
      wgmma_fence();
      VEC_UNROLL for (int step = 0; step < Tile::DEPTH / 16; step++)
        VEC_UNROLL for (int i = 0; i < M64; i++)
          wgmma<typename Tile::T, COLUMNS, Tile::A_ACROSS, Tile::B_ACROSS>(
              sums[i], stage_descriptor<Tile::A_ACROSS>(a + i * 64 * Tile::SWIZZLE, step),
              stage_descriptor<Tile::B_ACROSS>(b, step), depth + step != 0);
      wgmma_commit();
      wgmma_wait<1>();  // the stage before this one is multiplied
      if (depth) release(before);
      before = at.stage;
    }
    if constexpr (Tile::PINGPONG) {
      if (lane == 0) barrier_arrive(base + Tile::TURN + 8 * (group + 1 == Tile::CONSUMERS ? 0 : group + 1));
      at.advance(OTHERS * DEPTHS);
    }
    const auto part_at = [&](int part) {
      const int row = tile.row + first_row + part / PARTS * 64 + warp * 16;
      return Part{tile.batch, row, tile.column + part % PARTS * Tile::STAGED};
    };
    typename Epilogue::Fetched ahead[Part::ITEMS];
    part_at(0).fetch(ahead, epilogue);
    wgmma_wait<0>();
    release(before);
    // One text of the epilogue for all parts of the tile: registers are numbered, so each part is put by a text of its own.
    VEC_ROLLED for (int part = 0; part < M64 * PARTS; part++) {
      typename Epilogue::Fetched now[Part::ITEMS];
      VEC_UNROLL for (int i = 0; i < Part::ITEMS; i++) now[i] = ahead[i];
      if (part + 1 < M64 * PARTS) part_at(part + 1).fetch(ahead, epilogue);
      warp_barrier();  // the part before this one has been read
      VEC_UNROLL for (int i = 0; i < M64 * PARTS; i++)
        if (i == part)
          VEC_UNROLL for (int block = 0; block < Tile::STAGED / 8; block++)
            staging.put(block, &sums[i / PARTS][(i % PARTS * Tile::STAGED / 8 + block) * 4], lane);
      warp_barrier();
      part_at(part).use(staging, now, epilogue);
    }
  }
}

// The whole kernel of THREADS threads a block and SHARED_BYTES of shared memory. DEPTHS: stages that the sums of a tile go
// through. epilogue: see gemm_epilogue.cuh.
template <class Tile, class Extents, int DEPTHS, class LoadA, class LoadB, class Epilogue>
VDEV void multiply_wgmma(unsigned char* shared, LoadA load_a, LoadB load_b, const Epilogue& epilogue) {
  const uint32_t base = shared_address(shared);
  // By way of a shuffle the compiler knows that a warp has one group: descriptors are computed once for all lanes.
  const int group = shuffle_from((int)threadIdx.x / 128, 0), rank = Tile::CLUSTER > 1 ? (int)cluster_rank() : 0;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::STAGES; s++) {
      barrier_init(base + Tile::FULL + 8 * s, 1);
      barrier_init(base + Tile::EMPTY + 8 * s, Tile::SHARERS * 4 * Tile::CLUSTER);  // a thread of each warp that reads it
    }
    for (int c = 0; c < (Tile::PINGPONG ? Tile::CONSUMERS : 0); c++) barrier_init(base + Tile::TURN + 8 * c, 4);
    fence_barrier_init();
  }
  if constexpr (Tile::CLUSTER > 1) cluster_meet();
  else block_barrier();
  // Where sums take few registers, consumers need no more than they have, and ptxas cannot tell how many that is (C7508).
  constexpr bool TRADES = Tile::CONSUMERS > 1 && Tile::SUMS > 32;
  if (group == Tile::CONSUMERS) {
    if constexpr (TRADES) registers_down<Tile::CONSUMERS == 2 ? 40 : 32>();
    if (threadIdx.x % 128 == 0) wgmma_produce<Tile, Extents, DEPTHS>(base, rank, load_a, load_b);
  } else {
    if constexpr (TRADES) registers_up<Tile::CONSUMERS == 2 ? 232 : 160>();
    wgmma_consume<Tile, Extents, DEPTHS>(shared, base, group, rank, epilogue);
  }
  if constexpr (Tile::CLUSTER > 1) cluster_meet();  // a block stays as long as others signal its barriers
}
