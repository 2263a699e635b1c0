// What threads of a block have, combined: of the TX threads of a row, of the TY threads of a column. All of them get it.
#pragma once
// A vector in shared memory, aligned to its size or to 16 bytes: EACH elements of it in one access, CHUNKS times. `step`
// elements from one of these to the next.
template <class T, int W> constexpr int EACH = W * (int)sizeof(T) < 16 ? W : 16 / (int)sizeof(T);
template <class T, int W> VDEV Vec<T, W> shared_get(const T* p, int step = EACH<T, W>) {
  constexpr int N = EACH<T, W>;
  Vec<T, W> x;
  VEC_UNROLL for (int c = 0; c < W / N; c++) {
    const auto part = shared_load<T, N>(p + c * step);
    VEC_UNROLL for (int i = 0; i < N; i++) x.v[c * N + i] = part.v[i];
  }
  return x;
}
template <class T, int W> VDEV void shared_put(T* p, const Vec<T, W>& x, int step = EACH<T, W>) {
  constexpr int N = EACH<T, W>;
  VEC_UNROLL for (int c = 0; c < W / N; c++) {
    Vec<T, N> part;
    VEC_UNROLL for (int i = 0; i < N; i++) part.v[i] = x.v[c * N + i];
    shared_store<T, N>(p + c * step, part);
  }
}
// A value of any type by way of registers of 32 bits, in slots of whole accesses.
template <class V> constexpr int SLOT = ((int)sizeof(V) + 15) / 16 * 4;
template <class V> VDEV Vec<uint32_t, SLOT<V>> as_words(const V& x) {
  Vec<uint32_t, SLOT<V>> w{};
  memcpy(&w, &x, sizeof x);
  return w;
}
template <class V> VDEV V from_words(const Vec<uint32_t, SLOT<V>>& w) {
  V x;
  memcpy(&x, &w, sizeof x);
  return x;
}
template <class V> VDEV V shuffled(const V& x, int lanes, uint32_t mask) {
  auto w = as_words(x);
  VEC_UNROLL for (int i = 0; i < ((int)sizeof(V) + 3) / 4; i++) w.v[i] = shuffle_xor(w.v[i], lanes, mask);
  return from_words<V>(w);
}
template <int N> VDEV Vec<uint32_t, N> shuffled_from(Vec<uint32_t, N> w, int lane, uint32_t mask) {
  VEC_UNROLL for (int i = 0; i < N; i++) w.v[i] = shuffle_from(w.v[i], lane, mask);
  return w;
}
template <class V> VDEV void put_slot(unsigned char* slots, int i, const V& x) {
  shared_put((uint32_t*)slots + i * SLOT<V>, as_words(x));
}
template <class V> VDEV V get_slot(const unsigned char* slots, int i) {
  return from_words<V>(shared_get<uint32_t, SLOT<V>>((const uint32_t*)slots + i * SLOT<V>));
}
// All threads of a row, if they are not of one warp.
template <int TX, int TY> VDEV void row_barrier() {
  static_assert(TX % 32 == 0 && TY < 16, "rows of whole warps, and a barrier for each");
  if constexpr (TY == 1) block_barrier();
  else named_barrier(1 + threadIdx.y, TX);
}
// f must not mind the order of its arguments. shared: TY * TX / 32 slots, where rows are longer than a warp.
template <int TX, int TY, class F, class V> VDEV V join_x(unsigned char* shared, F f, V x) {
  constexpr int NEAR = TX < 32 ? TX : 32;
  const int lane = (threadIdx.y * TX + threadIdx.x) % 32;
  const uint32_t mask = NEAR == 32 ? ~0u : ((1u << NEAR % 32) - 1) << (lane & ~(NEAR - 1));
  VEC_UNROLL for (int k = NEAR / 2; k; k /= 2) x = f(x, shuffled(x, k, mask));
  if constexpr (TX > 32) {
    constexpr int WARPS = TX / 32;
    row_barrier<TX, TY>();  // until nobody reads what the row joined last
    if (threadIdx.x % 32 == 0) put_slot(shared, threadIdx.y * WARPS + threadIdx.x / 32, x);
    row_barrier<TX, TY>();
    x = get_slot<V>(shared, threadIdx.y * WARPS);
    VEC_UNROLL for (int i = 1; i < WARPS; i++) x = f(x, get_slot<V>(shared, threadIdx.y * WARPS + i));
  }
  return x;
}
// shared: TX * TY slots. All threads of the block call it. Of many rows, some first take in what the others have: that every
// thread reads every row would take longer than what is summed.
template <int TX, int TY, class F, class V> VDEV V join_y(unsigned char* shared, F f, V x) {
  constexpr int NEAR = TY < 16 ? TY : TY < 64 ? 4 : 8;
  block_barrier();  // until nobody reads what was joined last
  put_slot(shared, threadIdx.y * TX + threadIdx.x, x);
  block_barrier();
  if constexpr (NEAR < TY) {
    if (threadIdx.y < NEAR) {
      for (int i = threadIdx.y + NEAR; i < TY; i += NEAR) x = f(x, get_slot<V>(shared, i * TX + threadIdx.x));
      put_slot(shared, threadIdx.y * TX + threadIdx.x, x);
    }
    block_barrier();
  }
  x = get_slot<V>(shared, threadIdx.x);
  for (int i = 1; i < NEAR; i++) x = f(x, get_slot<V>(shared, i * TX + threadIdx.x));
  return x;
}
// Vectors that one thread writes and reads again, in shared memory for lack of registers: chunk c of vector v of thread t is
// at (v * CHUNKS + c) * THREADS + t, so that threads side by side use all banks.
template <class T, int W, int THREADS> struct OwnRows {
  unsigned char* shared;
  VDEV T* at(int v) const {
    return (T*)shared + (v * (W / EACH<T, W>) * THREADS + (int)(threadIdx.y * blockDim.x + threadIdx.x)) * EACH<T, W>;
  }
  VDEV Vec<T, W> get(int v) const { return shared_get<T, W>(at(v), THREADS * EACH<T, W>); }
  VDEV void put(int v, const Vec<T, W>& x) const { shared_put(at(v), x, THREADS * EACH<T, W>); }
};
