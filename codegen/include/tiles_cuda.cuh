// Tiles in shared memory: parts of tensors that lie across the lanes of a kernel, turned around by way of it. A tile lies there as
// it came: what a kernel reads across its lanes as the tensor has it, what it writes across them as its lanes have it. It is turned
// around when it is read from there: by ldmatrix where whole warps do and elements have 2 bytes, else element by element. Tensors
// are accessed 16 bytes at a time along their own consecutive elements, where they are aligned so.
#pragma once
// Element (i, j), j along the chunks of 16 bytes that came. A thread reads W elements down i at a time. Chunks of a row change
// places by its number, so that threads that read down side by side, and the rows of a matrix of ldmatrix (0, 1, W, W + 1, 2 W,
// ...), find theirs in different banks.
template <class T, int I, int J, int W> struct SharedTile {
  static constexpr int HIGH = I, WIDE = J, CHUNK = 16 / (int)sizeof(T), CHUNKS = (J + CHUNK - 1) / CHUNK;
  // A power of two, or whole groups of eight chunks: all 32 banks.
  static constexpr int ROW = CHUNKS > 4 ? (CHUNKS + 7) / 8 * 8 : CHUNKS > 2 ? 4 : CHUNKS, GROUP = ROW < 8 ? ROW : 8;
  alignas(16) T at[I * ROW * CHUNK];
  static VDEV uint32_t place(uint32_t i, uint32_t j) {
    return (i * ROW + (j / CHUNK ^ ((i / W ^ i % 2 * 4) & (GROUP - 1)))) * CHUNK + j % CHUNK;
  }
  // Elements (i + k, j), k < n.
  template <int N> VDEV Vec<T, N> down(int i, int j, int n) const {
    Vec<T, N> x{};
    VEC_UNROLL for (int k = 0; k < N; k++) if (k < n) x.v[k] = shared_load<T, 1>(&at[place(i + k, j)]).v[0];
    return x;
  }
  // Elements (i .. i + 7, j) by all lanes of a warp, of a block whose rows have TX threads: lane l has i = i0 + 8 (l % 4),
  // j = j0 + l / 4; i0 and j0 are multiples of 32 and 8.
  template <int TX> VDEV Vec<T, 8> down_by_warp(uint32_t i, uint32_t j) const {
    static_assert(sizeof(T) == 2 && W == 8, "matrices of 8 x 8, two elements of a register side by side");
    const uint32_t lane = (threadIdx.y * TX + threadIdx.x) % 32;
    // A lane's register m holds its elements 2 m and 2 m + 1, which are in the same two rows of matrix m for the same l % 4.
    const uint32_t row = (i & ~31u) + lane % 8 / 2 * 8 + lane / 8 * 2 + lane % 2;
    uint32_t r[4];
    load_matrix_x4_transposed(r, shared_address(&at[place(row, j & ~7u)]));
    Vec<T, 8> x;
    memcpy(&x, r, sizeof x);
    return x;
  }
  // Elements (i, j + k).
  template <int N> VDEV void put(int i, int j, const Vec<T, N>& x) {
    constexpr int EACH_ = N < CHUNK ? N : CHUNK;
    VEC_UNROLL for (int c = 0; c < N; c += EACH_) {
      Vec<T, EACH_> part;
      VEC_UNROLL for (int k = 0; k < EACH_; k++) part.v[k] = x.v[c + k];
      shared_store(&at[place(i, j + c)], part);
    }
  }
};
VCONST int power_above(int n) { return n < 2 ? 1 : 2 * power_above((n + 1) / 2); }
// Begins tile(i, j) = base[i * stride + j], i < high, j < wide; `filled` ends it. WHOLE: all of the tile is there. RUN: elements of
// the tensor that are aligned together; LAST: of those behind the last whole chunk. Lanes side by side copy chunks side by side. Index: as wide as the kernel's indices.
template <int TX, int TY, int RUN, int LAST, bool WHOLE, class T, int I, int J, int W, class Index>
VDEV void fill(SharedTile<T, I, J, W>& tile, const T* base, Index stride, int high, int wide) {
  using S = SharedTile<T, I, J, W>;
  constexpr int N = S::CHUNK, THREADS = TX * TY, ALL = power_above(S::CHUNKS);
  constexpr int NEAR = ALL < THREADS ? ALL : THREADS, HIGH = THREADS / NEAR;
  const uint32_t thread = threadIdx.y * TX + threadIdx.x;
  VEC_UNROLL for (int j0 = 0; j0 < S::CHUNKS; j0 += NEAR) {
    const int j = (j0 + (int)(thread % NEAR)) * N, own = thread / NEAR % HIGH;
    if (S::CHUNKS % NEAR != 0 && j >= J) continue;
    const T* mine = base + (own * stride + j);
    _Pragma("unroll 8") for (int i0 = 0; i0 < I; i0 += HIGH) {
      const int i = i0 ^ own;  // i0 + own, in bits that `place` can be taken apart by
      if (I % HIGH != 0 && i >= I) continue;
      if (!WHOLE && (i >= high || j >= wide)) continue;
      T* to = &tile.at[S::place(i, j)];
      const T* from = mine + i0 * stride;
      const bool chunk = WHOLE && J % N == 0 ? true : j + N <= (WHOLE ? J : wide);
      if constexpr (RUN >= N) {
        if (chunk) copy_async<16>(shared_address(to), from);
        else shared_store<T, N>(to, load_masked<N, LAST, LAST>(from, wide - j));
      } else {
        shared_store<T, N>(to, chunk ? load<N, RUN>(from) : load_masked<N, LAST, LAST>(from, wide - j));
      }
    }
  }
}
// All tiles are there for all threads.
VDEV void filled() {
  copy_async_commit();
  copy_async_wait<0>();
  block_barrier();
}
// out[j * stride + i] = tile(i, j), i < high, j < wide.
template <int TX, int TY, int RUN, int LAST, bool WHOLE, class T, int I, int J, int W, class Index>
VDEV void empty(T* out, Index stride, const SharedTile<T, I, J, W>& tile, int high, int wide) {
  constexpr int N = SharedTile<T, I, J, W>::CHUNK, THREADS = TX * TY;
  const uint32_t thread = threadIdx.y * TX + threadIdx.x;
  if constexpr (WHOLE && sizeof(T) == 2 && I % 32 == 0 && J % 8 == 0 && THREADS % 32 == 0) {
    constexpr int DOWN = I / 32, UNITS = DOWN * (J / 8), WARPS = THREADS / 32;
    _Pragma("unroll 4") for (int u0 = 0; u0 < UNITS; u0 += WARPS) {
      const uint32_t u = u0 + thread / 32;
      if (UNITS % WARPS != 0 && u >= UNITS) break;  // the whole warp
      const Index i = u % DOWN * 32 + thread % 4 * 8, j = u / DOWN * 8 + thread % 32 / 4;
      store<N, RUN>(out + j * stride + i, tile.template down_by_warp<TX>(i, j));
    }
  } else {
    constexpr int NEAR = I > 4 * N ? 8 : power_above((I + N - 1) / N);
    VEC_UNROLL for (int i0 = 0; i0 < I; i0 += NEAR * N) {
      const int i = i0 + (int)(thread % NEAR) * N;
      if (I % (NEAR * N) != 0 && i >= I) continue;
      _Pragma("unroll 4") for (int j0 = 0; j0 < J; j0 += THREADS / NEAR) {
        const int j = j0 + (int)(thread / NEAR);
        if (J % (THREADS / NEAR) != 0 && j >= J) continue;
        if (WHOLE && I % N == 0) {
          store<N, RUN>(out + j * stride + i, tile.template down<N>(i, j, N));
        } else if (i < high && j < wide) {
          store_masked<N, RUN, LAST>(out + j * stride + i, tile.template down<N>(i, j, high - i), high - i);
        }
      }
    }
  }
}
