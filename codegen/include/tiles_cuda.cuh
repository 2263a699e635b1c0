// Tiles in shared memory: parts of tensors that lie across the lanes of a kernel, turned around on their way in or out by
// all threads of a block together. A thread turns blocks of E x E elements around in registers, so that tensors are accessed
// along their own consecutive elements and tiles along theirs, 16 bytes at a time where alignment allows.
#pragma once
template <class T> constexpr int BLOCK_EDGE = sizeof(T) == 1 ? 8 : 16 / (int)sizeof(T);
// at[row][column]. A row is an odd number of times 16 bytes: eight rows start in different banks.
template <class T, int ROWS_, int COLUMNS> struct SharedTile {
  static constexpr int PITCH = ((COLUMNS * (int)sizeof(T) + 15) / 16 | 1) * 16 / (int)sizeof(T);
  alignas(16) T at[ROWS_][PITCH];
  // The first n of W lanes.
  template <int W> VDEV Vec<T, W> get(int row, int column, long n) const {
    if (n >= W) return shared_get<T, W>(&at[row][column]);
    Vec<T, W> x{};
    VEC_UNROLL for (int l = 0; l < W; l++) if (l < n) x.v[l] = shared_load<T, 1>(&at[row][column + l]).v[0];
    return x;
  }
  template <int W> VDEV void put(int row, int column, const Vec<T, W>& x) { shared_put(&at[row][column], x); }
};
// Calls f(row, column) for every E x E block of a tile of ROWS_ x COLUMNS, each in one thread. Eight threads that access a tile
// at the same time have E columns of blocks of the same rows, or two, four of 8 / E rows: 16 bytes each in different banks.
template <int TX, int TY, int E, int ROWS_, int COLUMNS, class F> VDEV void each_block(F f) {
  constexpr int WIDE = E < 8 ? E : 8, HIGH = 8 / WIDE, GROUPS = TX * TY / 8;
  static_assert(TX * TY % 8 == 0, "threads in groups of eight");
  constexpr int DOWN = (ROWS_ + E * HIGH - 1) / (E * HIGH), RIGHT = (COLUMNS + E * WIDE - 1) / (E * WIDE);
  const int thread = threadIdx.y * TX + threadIdx.x;
  for (int g = thread / 8; g < DOWN * RIGHT; g += GROUPS) {
    const int row = (g % DOWN * HIGH + thread % 8 / WIDE) * E, column = (g / DOWN * WIDE + thread % WIDE) * E;
    if (row < ROWS_ && column < COLUMNS) f(row, column);
  }
}
// tile.at[row][column] = base[column * stride + row]. RUN: elements of the tensor that are aligned together.
template <int TX, int TY, int RUN, class T, int R, int C>
VDEV void read_across(SharedTile<T, R, C>& tile, const T* base, long stride, long rows, long columns) {
  constexpr int E = RUN < BLOCK_EDGE<T> ? RUN : BLOCK_EDGE<T>;
  each_block<TX, TY, E, R, C>([&](int row, int column) {
    if (row >= rows || column >= columns) return;
    Vec<T, E> x[E];
    VEC_UNROLL for (int i = 0; i < E; i++) {
      // In the columns beyond the last one, the last one again.
      const long c = column + i < columns ? column + i : columns - 1;
      x[i] = load_masked<E, E>(base + c * stride + row, rows - row);
    }
    VEC_UNROLL for (int r = 0; r < E; r++) {
      Vec<T, E> y;
      VEC_UNROLL for (int i = 0; i < E; i++) y.v[i] = x[i].v[r];
      shared_store<T, E>(&tile.at[row + r][column], y);
    }
  });
}
// out[column * stride + row] = tile.at[row][column].
template <int TX, int TY, int RUN, class T, int R, int C>
VDEV void write_across(T* out, long stride, const SharedTile<T, R, C>& tile, long rows, long columns) {
  constexpr int E = RUN < BLOCK_EDGE<T> ? RUN : BLOCK_EDGE<T>;
  each_block<TX, TY, E, R, C>([&](int row, int column) {
    if (row >= rows || column >= columns) return;
    Vec<T, E> x[E];
    VEC_UNROLL for (int r = 0; r < E; r++) x[r] = tile.template get<E>(row + r < rows ? row + r : row, column, columns - column);
    VEC_UNROLL for (int i = 0; i < E; i++) {
      if (column + i >= columns) continue;
      Vec<T, E> y;
      VEC_UNROLL for (int r = 0; r < E; r++) y.v[r] = x[r].v[i];
      store_masked<E, E>(out + (column + i) * stride + row, y, rows - row);
    }
  });
}
