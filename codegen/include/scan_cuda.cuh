// Running sums along the lanes of a row that TX threads share, vector by vector: each thread's own lanes, then what threads before
// it have, then what all vectors before came to. The order of terms is the same in every run.
#pragma once
// What a scan has come to in a row. turn: of the two sets of slots by which warps tell each other; -1 ahead of the first vector.
template <class T> struct Carry {
  Vec<T, 1> total;
  int turn;
};
template <int W, class T> VDEV Carry<T> no_carry(T none) { return {splat<1>(none), -1}; }
// One more vector of each thread of a row, in the order of threads. shared: 2 TY TX / 32 slots, where rows are longer than a warp.
template <int TX, int TY, class F, class T, int W>
VDEV Vec<T, W> scan_x(unsigned char* shared, F f, Carry<T>& carry, const Vec<T, W>& x) {
  constexpr int NEAR = TX < 32 ? TX : 32;
  const int lane = (threadIdx.y * TX + threadIdx.x) % 32, place = lane % NEAR, first = lane - place;
  const uint32_t mask = NEAR == 32 ? ~0u : ((1u << NEAR % 32) - 1) << first;
  const auto from = [=](const Vec<T, 1>& y, int other) { return from_words<Vec<T, 1>>(shuffled_from(as_words(y), other, mask)); };
  Vec<T, W> own = x;
  Vec<T, 1> all{{x.v[0]}};
  VEC_UNROLL for (int i = 1; i < W; i++) {
    all = f(all, Vec<T, 1>{{x.v[i]}});
    own.v[i] = all.v[0];
  }
  VEC_UNROLL for (int k = 1; k < NEAR; k *= 2) {
    const auto before = from(all, place < k ? lane : lane - k);
    if (place >= k) all = f(before, all);
  }
  auto before = carry.total, total = from(all, first + NEAR - 1);
  if constexpr (TX > 32) {
    constexpr int WARPS = TX / 32;
    if (carry.turn < 0) {
      row_barrier<TX, TY>();  // until nobody reads what the row before came to
      carry.turn = 0;
    }
    const int slots = (carry.turn * TY + threadIdx.y) * WARPS, warp = threadIdx.x / 32;
    if (place == 0) put_slot(shared, slots + warp, total);
    row_barrier<TX, TY>();  // the set of the turn before has been read by then, too
    VEC_UNROLL for (int i = 0; i < WARPS; i++) {
      const auto part = get_slot<Vec<T, 1>>(shared, slots + i);
      if (i < warp) before = f(before, part);
      total = i == 0 ? part : f(total, part);
    }
    carry.turn ^= 1;
  }
  const auto near = from(all, place == 0 ? lane : lane - 1);
  if (place > 0) before = f(before, near);
  carry.total = f(carry.total, total);
  return f(splat<W>(before), own);
}
