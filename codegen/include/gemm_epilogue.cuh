// What a tensor-core kernel does with its accumulators: 16 rows of a warp go through shared memory, and come out as runs of
// 8 columns of a row, which a generated epilogue loads, computes and stores with whole vectors. What it loads besides can be
// fetched ahead, while sums are still computed or the rows before are handed out: few warps hide little of a memory's latency.
#pragma once
#include "gemm_tiles.cuh"

constexpr int RUN = 8;            // columns that an epilogue is given at once
constexpr int FRAGMENT_ROWS = 16; // of a warp: mma.sync and wgmma lay out 16 x 8 results in the same way

// 16 rows of COLUMNS accumulators. A row starts 8 banks after the one before, so that neither the writes of a fragment nor
// the reads of whole runs meet in a bank.
template <class Acc, int COLUMNS> struct Staging {
  static_assert(COLUMNS % RUN == 0, "whole fragments");
  static constexpr int STRIDE = COLUMNS + RUN;
  static constexpr int BYTES = FRAGMENT_ROWS * STRIDE * (int)sizeof(Acc);
  static constexpr int RUNS = COLUMNS / RUN;  // of a row

  Acc* at;

  // Columns 8 * block and on, from the registers of mma's result: of thread t, two neighbours in row t / 4 and two in row
  // t / 4 + 8.
  VDEV void put(int block, const Acc* fragment, int lane) const {
    Acc* to = at + lane / 4 * STRIDE + block * RUN + lane % 4 * 2;
    shared_store<Acc, 2>(to, Vec<Acc, 2>{{fragment[0], fragment[1]}});
    shared_store<Acc, 2>(to + 8 * STRIDE, Vec<Acc, 2>{{fragment[2], fragment[3]}});
  }

  // One run. Every other four threads begin with its second half: eight threads then read all 32 banks.
  VDEV Vec<Acc, RUN> run(int row, int run, int lane) const {
    const Acc* from = at + row * STRIDE + run * RUN;
    const bool turned = lane & 4;
    const auto first = shared_load<Acc, 4>(from + (turned ? 4 : 0)), second = shared_load<Acc, 4>(from + (turned ? 0 : 4));
    Vec<Acc, RUN> r;
    VEC_UNROLL for (int i = 0; i < 4; i++) {
      r.v[i] = turned ? second.v[i] : first.v[i];
      r.v[4 + i] = turned ? first.v[i] : second.v[i];
    }
    return r;
  }
};

// A vector as whole registers, as it was loaded: what waits over a branch is merged register by register there, and lanes of 16
// bits would be taken apart for that, which waits for the load.
template <class T, int W> struct Packed {
  uint32_t words[(W * (int)sizeof(T) + 3) / 4];
  Packed() = default;
  VDEV Packed(const Vec<T, W>& x) {
    static_assert(sizeof x == W * sizeof(T), "lanes as in memory");
    memcpy(words, &x, sizeof x);
  }
  VDEV Vec<T, W> get() const {
    Vec<T, W> x;
    memcpy(&x, words, sizeof x);
    return x;
  }
};

// COLUMNS columns of a warp's 16 rows, in the product of Extents, from (row, column) on: which runs of them are whose. Runs
// beyond the product are left out.
template <class Extents, int COLUMNS> struct Handing {
  static constexpr int RUNS = COLUMNS / RUN, ITEMS = (FRAGMENT_ROWS * RUNS + 31) / 32;  // of a thread
  idx_t batch;
  int row, column;

  template <class Use> VDEV void each(Use use) const {
    VEC_UNROLL for (int i = 0; i < ITEMS; i++) {
      const int item = i * 32 + (int)threadIdx.x % 32, r = item / RUNS, c = item % RUNS * RUN;
      if (r < FRAGMENT_ROWS && row + r < Extents::ROWS && column + c < Extents::COLUMNS)
        use(i, r, item % RUNS, Extents::COLUMNS - column - c);
    }
  }
  // What `Fetched epilogue.fetch(batch, row, column, columns left)` loads.
  template <class Epilogue> VDEV void fetch(typename Epilogue::Fetched (&ahead)[ITEMS], const Epilogue& epilogue) const {
    each([&](int i, int r, int run, int left) { ahead[i] = epilogue.fetch(batch, row + r, column + run * RUN, left); });
  }
  // Calls `epilogue(batch, row, column, Vec<Acc, 8> product, columns left, fetched)`, once all lanes have put what they have.
  template <class Acc, class Epilogue>
  VDEV void use(
      const Staging<Acc, COLUMNS>& staging, const typename Epilogue::Fetched (&ahead)[ITEMS], const Epilogue& epilogue) const {
    const int lane = threadIdx.x % 32;
    each([&](int i, int r, int run, int left) {
      epilogue(batch, row + r, column + run * RUN, staging.run(r, run, lane), left, ahead[i]);
    });
  }
};

// The whole of it, for rows of constant registers. memory: of this warp alone. fragment(block): the four registers of columns
// 8 * block and on, block being a constant.
template <class Acc, class Extents, int COLUMNS, class Fragment, class Epilogue>
VDEV void staged_epilogue(
    unsigned char* memory, const Handing<Extents, COLUMNS>& part, Fragment fragment, const Epilogue& epilogue) {
  const Staging<Acc, COLUMNS> staging{(Acc*)memory};
  const int lane = threadIdx.x % 32;
  typename Epilogue::Fetched ahead[Handing<Extents, COLUMNS>::ITEMS];
  part.fetch(ahead, epilogue);
  warp_barrier();  // the rows before these have been read
  VEC_UNROLL for (int block = 0; block < Staging<Acc, COLUMNS>::RUNS; block++) staging.put(block, fragment(block), lane);
  warp_barrier();
  part.use(staging, ahead, epilogue);
}
