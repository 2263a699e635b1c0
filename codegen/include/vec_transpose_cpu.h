// Tiles: parts of tensors that lie across the lanes of a kernel, turned around in registers on their way into the cache
// or out of it. They hold elements as memory does: nothing but places changes.
#pragma once
// at[t][l]: t along the tensor's consecutive elements, l along the kernel's lanes, in whole blocks of B by B.
template <class T, int ROWS, int COLUMNS> struct Tile {
  static constexpr int B = REGISTER<T>, R = (ROWS + B - 1) / B * B, C = (COLUMNS + B - 1) / B * B;
  using Row = Reg<Uint<sizeof(T)>, B>;  // of a block
  alignas(64) T at[R][C];
};

// Whether there are only whole blocks, as far as is known when compiling.
VDEV bool whole_blocks(long rows, long columns, int block) {
  return __builtin_constant_p(rows) && __builtin_constant_p(columns) && rows % block == 0 && columns % block == 0;
}

// Elements of a block's row, at most MOST, as a number that compilers know no more of: code for each would be long.
template <int MOST> VDEV long count_in_block(long n) {
  __asm__("" : "+r"(n));
  if (n > MOST) __builtin_unreachable();
  return n;
}

namespace core {
#ifdef VEC_SHUFFLES
template <int HALF, class R, int... I> VDEV R interleaved(R a, R b, Indices<I...>) {
  return __builtin_shufflevector(a, b, (HALF * LANES<R> / 2 + I / 2 + I % 2 * LANES<R>)...);
}
#endif
// r[i][j] becomes r[j][i], in log2(B) rounds: each interleaves registers i and i + B / 2 into 2 i and 2 i + 1.
template <class R, int B> VDEV void transpose(R (&r)[B]) {
  static_assert(LANES<R> == B);
#ifdef VEC_SHUFFLES
  VEC_UNROLL for (int round = 1; round < B; round *= 2) {
    R t[B];
    VEC_UNROLL for (int i = 0; i < B / 2; i++) {
      t[2 * i] = interleaved<0>(r[i], r[i + B / 2], FirstIndices<B>{});
      t[2 * i + 1] = interleaved<1>(r[i], r[i + B / 2], FirstIndices<B>{});
    }
    VEC_UNROLL for (int i = 0; i < B; i++) r[i] = t[i];
  }
#else
  for (int i = 0; i < B; i++)
    for (int j = 0; j < i; j++) {
      const auto x = lane(r[i], j);
      set_lane(r[i], j, lane(r[j], i));
      set_lane(r[j], i, x);
    }
#endif
}
}  // namespace core

// tile.at[t][l] = p[l * stride + t] for t < rows and l < columns; nothing else of p is read.
template <class T, int ROWS, int COLUMNS>
VDEV void read_across(Tile<T, ROWS, COLUMNS>& tile, const T* p, long stride, long rows, long columns) {
  using Block = Tile<T, ROWS, COLUMNS>;
  constexpr int B = Block::B;
  VEC_NO_UNROLL for (long l = 0; l < columns; l += B) VEC_NO_UNROLL for (long t = 0; t < rows; t += B) {
    const T* from = p + l * stride + t;
    typename Block::Row r[B];
    if (whole_blocks(rows, columns, B) || __builtin_expect(l + B <= columns && t + B <= rows, 1)) {
      VEC_UNROLL for (int i = 0; i < B; i++) memcpy(&r[i], from + i * stride, sizeof r[i]);
    } else {
      using E = Uint<sizeof(T)>;
      for (int i = 0; i < B; i++) {
        r[i] = core::load_first<typename Block::Row>((const E*)(from + i * stride), count_in_block<ROWS>(l + i < columns ? rows - t : 0));
      }
    }
    core::transpose(r);
    VEC_UNROLL for (int i = 0; i < B; i++) memcpy(&tile.at[t + i][l], &r[i], sizeof r[i]);
  }
}
// p[l * stride + t] = tile.at[t][l] for t < rows and l < columns; nothing else of p is written. PAST: past the caches.
template <bool PAST, class T, int ROWS, int COLUMNS>
VDEV void write_across(T* p, long stride, const Tile<T, ROWS, COLUMNS>& tile, long rows, long columns) {
  using Block = Tile<T, ROWS, COLUMNS>;
  using E = Uint<sizeof(T)>;
  constexpr int B = Block::B;
  VEC_NO_UNROLL for (long l = 0; l < columns; l += B) VEC_NO_UNROLL for (long t = 0; t < rows; t += B) {
    T* to = p + l * stride + t;
    typename Block::Row r[B];
    VEC_UNROLL for (int i = 0; i < B; i++) memcpy(&r[i], &tile.at[t + i][l], sizeof r[i]);
    core::transpose(r);
    if (whole_blocks(rows, columns, B) || __builtin_expect(l + B <= columns && t + B <= rows, 1)) {
      VEC_UNROLL for (int i = 0; i < B; i++) {
        if constexpr (PAST) store_stream<B, 1>((E*)(to + i * stride), Vec<E, B>{r[i]});
        else memcpy(to + i * stride, &r[i], sizeof r[i]);
      }
    } else {
      for (int i = 0; i < B; i++) core::store_first((E*)(to + i * stride), r[i], count_in_block<ROWS>(l + i < columns ? rows - t : 0));
    }
  }
}
// Brings what read_across would read from p on nearer to the cores, the t-th part of ROWS; any address will do.
template <int ROWS, int COLUMNS, class T> VDEV void fetch_across(const T* p, long stride, long t) {
  for (long l = t * COLUMNS / ROWS; l < (t + 1) * COLUMNS / ROWS; l++)
    for (long i = 0; i < ROWS; i += 64 / (long)sizeof(T)) __builtin_prefetch(p + l * stride + i);
}
