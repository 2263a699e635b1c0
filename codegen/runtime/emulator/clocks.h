// What of other threads' work a thread is sure to see: vector clocks, so that races are found on any order of threads.
//
// A full barrier of the block orders everything before it: it begins an epoch, and older accesses need no look. Within an epoch
// each thread has a row of clocks, one for every thread of its block: what it knows of them, by the barriers that they shared.
// Barriers of warps need the row's part of their own warp only; the first other one widens all rows.
#pragma once
#include "report.h"

namespace emulator {
constexpr int AGENTS = 8;  // hardware that writes by itself has clocks, too: after those of the threads

struct Clocks {
  int width;             // of a row
  bool wide;
  uint32_t* rows;        // of all threads
  uint64_t* stamps;      // by thread: the epoch that its row is of
  uint32_t* clocks;      // of the threads' own work, from 1
  uint64_t epoch, born;  // now, and when the block began
  struct { uint64_t epoch; uint32_t clock; }* fences;  // by thread: its last fence_async_shared
};
inline uint64_t epochs = 0;  // of all blocks
inline Array<int> epoch_blocks;  // of which block each epoch of the launch is
// knowledge.h
inline void whole_block_meets(Block& b);
inline void meet_knowledge(Block& b, const int* threads, int count);

inline void begin_clocks(Block& b) {
  if (!b.clocks) b.clocks = (Clocks*)calloc(1, sizeof(Clocks));
  Clocks& o = *b.clocks;
  const int width = (b.threads + WARP - 1) / WARP * WARP + AGENTS;  // rows are cleared warp by warp
  if (o.width < width) {
    o.width = width;
    o.rows = (uint32_t*)realloc((void*)o.rows, sizeof(uint32_t) * o.width * b.threads);
    o.stamps = (uint64_t*)realloc((void*)o.stamps, sizeof(uint64_t) * b.threads);
    o.clocks = (uint32_t*)realloc((void*)o.clocks, sizeof(uint32_t) * b.threads);
    o.fences = (decltype(o.fences))realloc((void*)o.fences, sizeof(*o.fences) * b.threads);
  }
  for (int i = 0; i < b.threads; i++) {
    o.stamps[i] = 0;
    o.clocks[i] = 1;
    o.fences[i] = {0, 0};
  }
  o.epoch = o.born = ++epochs;
  o.wide = false;
  epoch_blocks.push(b.number);
}
inline void begin_epoch(Block& b) {
  whole_block_meets(b);
  b.clocks->epoch = ++epochs;
  b.clocks->wide = false;
  epoch_blocks.push(b.number);
}
// The row of a thread, from `first` on as far as rows are used now.
inline uint32_t* row_of(Clocks& o, int thread) {
  uint32_t* row = o.rows + (size_t)thread * o.width;
  if (o.stamps[thread] != o.epoch) {
    if (o.wide) memset(row, 0, sizeof(uint32_t) * o.width);
    else memset(row + (thread & ~(WARP - 1)), 0, sizeof(uint32_t) * WARP);
    o.stamps[thread] = o.epoch;
  }
  return row;
}
inline void widen(Block& b) {
  Clocks& o = *b.clocks;
  if (o.wide) return;
  for (int i = 0; i < b.threads; i++) {
    if (o.stamps[i] != o.epoch) continue;
    uint32_t* row = o.rows + (size_t)i * o.width;
    const int first = i & ~(WARP - 1), end = first + WARP < o.width ? first + WARP : o.width;
    memset(row, 0, sizeof(uint32_t) * first);
    memset(row + end, 0, sizeof(uint32_t) * (o.width - end));
  }
  o.wide = true;
}
inline void join(uint32_t* into, const uint32_t* other, int count) {
  for (int i = 0; i < count; i++) into[i] = into[i] > other[i] ? into[i] : other[i];
}
// Whether thread t is sure to see what thread (or agent) u did when its clock was `clock`, in this epoch.
inline bool sees(Clocks& o, int t, int u, uint32_t clock) {
  if (t == u) return true;
  if (!o.wide && (t ^ u) >= WARP) return false;
  return o.stamps[t] == o.epoch && o.rows[(size_t)t * o.width + u] >= clock;
}
// These threads wait for each other: afterwards each sees all that they did before.
inline void meet_clocks(Block& b, const int* threads, int count, bool one_warp) {
  Clocks& o = *b.clocks;
  meet_knowledge(b, threads, count);
  if (!one_warp) widen(b);
  static uint32_t* all = nullptr;
  static int capacity = 0;
  if (capacity < o.width) all = (uint32_t*)realloc((void*)all, sizeof(uint32_t) * (capacity = o.width));
  const int first = o.wide ? 0 : threads[0] & ~(WARP - 1), length = o.wide ? o.width : WARP;
  memset(all + first, 0, sizeof(uint32_t) * (first + length <= o.width ? length : o.width - first));
  const int used = first + length <= o.width ? length : o.width - first;
  for (int i = 0; i < count; i++) {
    uint32_t* row = row_of(o, threads[i]);
    row[threads[i]] = o.clocks[threads[i]];
    join(all + first, row + first, used);
  }
  for (int i = 0; i < count; i++) {
    memcpy(o.rows + (size_t)threads[i] * o.width + first, all + first, sizeof(uint32_t) * used);
    o.clocks[threads[i]]++;
  }
}
// For barriers where some arrive and others wait: the clocks (`width` of them) of what has arrived.
inline void release_clocks(Block& b, int thread, uint32_t* clocks) {
  widen(b);
  Clocks& o = *b.clocks;
  uint32_t* row = row_of(o, thread);
  row[thread] = o.clocks[thread]++;
  join(clocks, row, o.width);
}
inline void acquire_clocks(Block& b, int thread, const uint32_t* clocks) {
  widen(b);
  join(row_of(*b.clocks, thread), clocks, b.clocks->width);
}
}  // namespace emulator
