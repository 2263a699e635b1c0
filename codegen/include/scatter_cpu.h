// Lists of slices on a CPU: for each place of a scatter the numbers of the slices that go there, in rising order.
#pragma once
#include "loops_cpu.h"
constexpr long LISTS_ON_STACK = 1 << 19;  // bytes, of the 8 MiB that a thread has as a rule; longer lists are allocated at each call
// Of the places from `low` to `high` - 1 of M, by a counting sort of N slices: O(N + high - low). place: of a slice, by its number;
// slices of other places are in no list. Those of a task's places are picked out first, without a branch: with one, which goes
// either way as often, listing 100,000 slices by two tasks took about three times as long.
template <long N, long M> struct SliceLists {
  static constexpr long SIZE = M + 2 + 3 * (N + 1);
  static constexpr bool IS_LOCAL = 4 * SIZE <= LISTS_ON_STACK;
  idx_t low;
  int32_t *first, *order;
  int32_t local[IS_LOCAL ? SIZE : 1];
  template <class F> SliceLists(idx_t low, idx_t high, const F& place) : low(low) {
    const idx_t places = high - low;
    first = IS_LOCAL ? local : (int32_t*)__builtin_malloc(4 * SIZE);
    order = first + M + 2;
    int32_t* RESTRICT slice = order + N + 1;
    int32_t* RESTRICT to = slice + N + 1;
    idx_t own = 0;
    for (idx_t i = 0; i < N; i++) {
      const uint64_t p = (uint64_t)place(i) - (uint64_t)low;
      slice[own] = (int32_t)i;
      to[own] = (int32_t)p;
      own += p < (uint64_t)places;
    }
    for (idx_t p = 0; p < places + 2; p++) first[p] = 0;
    for (idx_t k = 0; k < own; k++) first[to[k] + 2]++;
    for (idx_t p = 1; p < places; p++) first[p + 1] += first[p];
    for (idx_t k = 0; k < own; k++) order[first[to[k] + 1]++] = slice[k];
  }
  SliceLists(const SliceLists&) = delete;
  ~SliceLists() {
    if (!IS_LOCAL) __builtin_free(first);
  }
  VDEV idx_t begin(idx_t place) const { return first[place - low]; }
  VDEV idx_t end(idx_t place) const { return first[place - low + 1]; }
};
#define WALK(a, lists, place) FP_NO_UNROLL for (idx_t a = lists.begin(place), a##_end = lists.end(place); a < a##_end; a++)
