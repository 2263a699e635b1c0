// What of other blocks' work a thread is sure to see: what they did before a fence and a flag that it read, before a fence of its own.
//
// A flag is a place in global memory that is touched by atomics, load_acquire and store_release alone. What a thread fenced goes with
// what it then does to flags; who reads a flag may know of it, and does so after a fence. Barriers pass this on within a block.
#pragma once
#include "clocks.h"

namespace emulator {
// What a thread of a block saw of it: all that was done before the epoch, and in it what the row of clocks says.
struct Snapshot {
  uint32_t epoch;
  int width;
  uint32_t row[1];  // `width` of them
};
struct Knowledge {
  const Snapshot* of[1];  // by the number of a block in the grid
};
struct Flag {
  const void* at;
  Knowledge* released;
};
struct Flags {
  Flag* items;
  int count, capacity;
};
inline Flags flags;
inline Array<void*> remembered;  // memory of the launch
inline int blocks_of_grid;

inline void* remember(size_t bytes) {
  void* const p = calloc(1, bytes);
  remembered.push(p);
  return p;
}
inline void forget_knowledge() {
  for (int i = 0; i < remembered.count; i++) free(remembered[i]);
  remembered.count = 0;
  free(flags.items);
  flags = {};
}
inline Flag& flag_at(const void* p) {
  if (2 * flags.count >= flags.capacity) {
    const Flags before = flags;
    flags = {(Flag*)calloc(before.capacity ? 2 * before.capacity : 64, sizeof(Flag)), 0, before.capacity ? 2 * before.capacity : 64};
    for (int i = 0; i < before.capacity; i++)
      if (before.items[i].at) flag_at(before.items[i].at).released = before.items[i].released;
    free(before.items);
  }
  uint32_t i = (uint32_t)((uint64_t)p / 4 * 0x9e3779b97f4a7c15ull >> 40);
  while (flags.items[i % flags.capacity].at && flags.items[i % flags.capacity].at != p) i++;
  Flag& f = flags.items[i % flags.capacity];
  if (!f.at) {
    f.at = p;
    flags.count++;
  }
  return f;
}

inline Snapshot* blank_snapshot(uint32_t epoch, int width) {
  Snapshot* const s = (Snapshot*)remember(sizeof(Snapshot) + width * sizeof(uint32_t));
  s->epoch = epoch;
  s->width = width;
  return s;
}
inline const Snapshot* joined(const Snapshot* a, const Snapshot* b) {
  if (!a || !b || a == b) return a ? a : b;
  if (a->epoch != b->epoch) return a->epoch > b->epoch ? a : b;
  Snapshot* const s = blank_snapshot(a->epoch, a->width);
  join(s->row, a->row, a->width);
  join(s->row, b->row, a->width);
  return s;
}
inline Knowledge* blank_knowledge() { return (Knowledge*)remember(blocks_of_grid * sizeof(const Snapshot*)); }
inline void join_into(Knowledge* into, const Knowledge* other) {
  for (int i = 0; i < blocks_of_grid; i++) into->of[i] = joined(into->of[i], other->of[i]);
}
// Neither is changed by later joins.
inline Knowledge* joined(Knowledge* a, Knowledge* b) {
  if (!a || !b || a == b) return a ? a : b;
  Knowledge* const k = blank_knowledge();
  join_into(k, a);
  join_into(k, b);
  return k;
}
inline Knowledge* known_of(const Thread& t) { return joined(t.block->known, t.known); }
inline void learn(Thread& t, Knowledge* k) {
  if (!k) return;
  t.known = joined(t.known, k);
  t.block->learned = true;
}
// What the thread knows, and has done and seen of its own block, until now.
inline Knowledge* snapshot(Thread& t) {
  Clocks& o = *t.block->clocks;
  uint32_t* const row = row_of(o, t.number);
  row[t.number] = o.clocks[t.number]++;
  Snapshot* const s = blank_snapshot((uint32_t)o.epoch, o.width);
  if (o.wide) memcpy(s->row, row, sizeof(uint32_t) * o.width);
  else memcpy(s->row + (t.number & ~(WARP - 1)), row + (t.number & ~(WARP - 1)), sizeof(uint32_t) * WARP);
  Knowledge* const k = blank_knowledge();
  if (Knowledge* const before = known_of(t)) join_into(k, before);
  k->of[t.block->number] = s;
  return k;
}

// ---- barriers within a block
inline void meet_knowledge(Block& b, const int* threads, int count) {
  if (!b.learned) return;
  Knowledge* all = nullptr;
  for (int i = 0; i < count; i++) all = joined(all, b.first[threads[i]].known);
  for (int i = 0; i < count; i++) b.first[threads[i]].known = all;
}
inline void whole_block_meets(Block& b) {
  if (!b.learned) return;
  for (int i = 0; i < b.threads; i++) {
    b.known = joined(b.known, b.first[i].known);
    b.first[i].known = nullptr;
  }
  b.learned = false;
}
// What all of a block know and did, now that they meet.
inline Knowledge* knowledge_at_barrier(Block& b) {
  whole_block_meets(b);
  Knowledge* const k = blank_knowledge();
  if (b.known) join_into(k, b.known);
  k->of[b.number] = blank_snapshot((uint32_t)b.clocks->epoch, b.clocks->width);
  return k;
}

// ---- fences and flags
inline void fence_memory(Thread& t) {
  learn(t, t.observed);
  t.observed = nullptr;
  t.fenced = snapshot(t);
}
// Read, written, or both at once: what others released there, and what this thread did.
inline void touch_flag(Thread& t, const void* p, Access access) {
  Flag& f = flag_at(p);
  if (access != RELEASE && f.released) {
    Knowledge* const seen = blank_knowledge();  // f's goes on changing
    join_into(seen, f.released);
    if (access == ACQUIRE) learn(t, seen);
    else t.observed = joined(t.observed, seen);
  }
  if (access == RELEASE) f.released = snapshot(t);
  else if (access == ATOMIC && t.fenced) {
    if (!f.released) f.released = blank_knowledge();
    join_into(f.released, t.fenced);
  }
}
}  // namespace emulator
