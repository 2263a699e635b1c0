// Lists of slices on a CPU: for each place of a scatter the numbers of the slices that go there, in rising order.
#pragma once
#include "loops_cpu.h"
// Of the places from `low` to `high` - 1, by a counting sort of `n` slices: O(n + high - low). place: of a slice, by its number;
// slices of other places are in no list.
struct SliceLists {
  idx_t low;
  int32_t *first, *order;
  template <class F> SliceLists(idx_t n, idx_t low, idx_t high, const F& place) : low(low) {
    const idx_t places = high - low;
    first = (int32_t*)__builtin_malloc(4 * (places + 2 + 2 * n));
    order = first + places + 2;
    int32_t* RESTRICT own = order + n;
    for (idx_t p = 0; p < places + 2; p++) first[p] = 0;
    for (idx_t i = 0; i < n; i++) {
      const uint64_t p = (uint64_t)place(i) - (uint64_t)low;
      own[i] = p < (uint64_t)places ? (int32_t)p : -1;
      if (own[i] >= 0) first[own[i] + 2]++;
    }
    for (idx_t p = 1; p < places; p++) first[p + 1] += first[p];
    for (idx_t i = 0; i < n; i++)
      if (own[i] >= 0) order[first[own[i] + 1]++] = (int32_t)i;
  }
  SliceLists(const SliceLists&) = delete;
  ~SliceLists() { __builtin_free(first); }
  VDEV idx_t begin(idx_t place) const { return first[place - low]; }
  VDEV idx_t end(idx_t place) const { return first[place - low + 1]; }
};
#define WALK(a, lists, place) FP_NO_UNROLL for (idx_t a = lists.begin(place), a##_end = lists.end(place); a < a##_end; a++)
