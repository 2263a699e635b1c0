// Which thread runs next. A thread runs until it waits for others; seeds choose the order, and how late copies are.
#pragma once
#include "report.h"

namespace emulator {
enum Order { FORWARD, BACKWARD, RANDOM, GREEDY_WARP, GREEDY_THREAD };
struct Plan {
  Order order;
  bool late;       // asynchronous copies happen when somebody waits for them, not at once
  bool shuffled;   // blocks run in any order
  // Whether wgmma reads its operands when somebody waits for it, even where copies come at once: then they can overtake it.
  // Clusters that begin side by side, whether or not one waits for another.
  int together() const { return order == RANDOM ? 3 : 1; }
  bool late_products() const { return late || order != GREEDY_THREAD; }
};
// The first seeds cover what differs most; later ones mix.
inline Plan plan_of(uint64_t seed) {
  constexpr Plan FIRST[] = {{FORWARD, true, false}, {GREEDY_WARP, true, true}, {BACKWARD, false, false}, {RANDOM, true, true}, {GREEDY_THREAD, false, true}};
  if (seed < 5) return FIRST[seed];
  const uint64_t h = seed * 0x9e3779b97f4a7c15ull >> 33;
  return {(Order)(h % 5), h / 5 % 2 == 0, h / 10 % 2 == 0};
}
inline Plan plan __attribute__((visibility("hidden")));

inline uint64_t draw() {
  machine.random = machine.random * 6364136223846793005ull + 1442695040888963407ull;
  return machine.random >> 33;
}
inline void set_ready(Thread& t) { machine.ready[t.global >> 6] |= 1ull << (t.global & 63); }
inline void clear_ready(Thread& t) { machine.ready[t.global >> 6] &= ~(1ull << (t.global & 63)); }
// The first ready thread from `start` on, around the end; -1 if none.
inline int ready_from(int start) {
  const int words = (machine.threads.count + 63) >> 6;
  int w = start >> 6;
  uint64_t bits = machine.ready[w] & ~0ull << (start & 63);
  for (int i = 0; i <= words; i++) {
    if (bits) return (w << 6) + __builtin_ctzll(bits);
    w = w + 1 == words ? 0 : w + 1;
    bits = machine.ready[w];
  }
  return -1;
}
// The last ready thread before `end`, around the beginning.
inline int ready_before(int end) {
  const int words = (machine.threads.count + 63) >> 6;
  int w = end >> 6;
  uint64_t bits = w < words ? machine.ready[w] & ~(~0ull << (end & 63)) : 0;
  for (int i = 0; i <= words; i++) {
    if (bits) return (w << 6) + 63 - __builtin_clzll(bits);
    w = w == 0 ? words - 1 : w - 1;
    bits = machine.ready[w];
  }
  return -1;
}
inline int choose(int after) {
  const int n = machine.threads.count;
  switch (plan.order) {
    case FORWARD: return ready_from(after + 1 < n ? after + 1 : 0);
    case BACKWARD: return ready_before(after > 0 ? after : n);
    case RANDOM: return ready_from(draw() % n);
    case GREEDY_WARP: {
      const int in_warp = after % machine.blocks[0].threads % WARP;
      const int first = after - in_warp;
      const int next = ready_from(first);
      if (next >= first && next < first + WARP) return next;
      return ready_from(draw() % n);
    }
    case GREEDY_THREAD: return ready_from((int)(machine.launch->seed * 37 % n));
  }
  return -1;
}

void fiber();
[[noreturn]] void deadlock();
// Something that can happen although no thread can run: copies that run by themselves. False if there is nothing.
inline bool (*happen)() = nullptr;

// Lets the next thread run. Returns when the one that called it is next again. `from`: where to save what runs now.
inline void switch_from(Place* from) {
  Machine& m = machine;
  int next;
  while ((next = choose(m.current->global)) < 0)
    if (!happen || !happen()) deadlock();
  Thread& t = m.threads[next];
  if (&t == m.current && t.state == READY && from == &t.place) return;
  m.current = &t;
  threadIdx = t.index;
  blockIdx = t.block->index;
  m.launch->switches++;
  if (t.state == NEW) {
    t.state = READY;
    t.stack = m.stacks.take();
    begin(&t.place, t.stack, fiber);
  }
  go(from, &t.place);
}
// After a switch: the stack that was left behind is free.
inline void arrived() {
  if (machine.leaving) machine.stacks.give(machine.leaving);
  machine.leaving = nullptr;
}
// The current thread waits until somebody wakes it.
inline void wait(Wait kind, const char* what, Site site) {
  Thread& t = self();
  machine.launch->waited = 1;
  t.state = WAITING;
  t.wait = kind;
  t.what = what;
  t.site = site;
  clear_ready(t);
  switch_from(&t.place);
  arrived();
}
inline void wake(Thread& t) {
  t.state = READY;
  t.wait = NOTHING;
  set_ready(t);
}
// After something was completed by the current thread: others may run before it goes on.
inline void may_yield() {
  if (plan.order == RANDOM && draw() % 2) {
    Thread& t = self();
    switch_from(&t.place);
    arrived();
  }
}

// Called on the last of them: everybody waits for something.
inline void deadlock() {
  Text text;
  text.add("deadlock: ");
  int listed = 0;
  for (int i = 0; i < machine.threads.count;) {
    Thread& t = machine.threads[i];
    int end = i + 1;
    for (; end < machine.threads.count; end++) {
      Thread& u = machine.threads[end];
      if (u.block != t.block || u.state != t.state || (u.state == WAITING && (u.wait != t.wait || !same(u.site, t.site) || u.mask != t.mask))) break;
    }
    if (listed++ < 8) {
      text.add("%sblock (%u, %u, %u) threads %d to %d ", listed > 1 ? "; " : "", t.block->index.x, t.block->index.y, t.block->index.z, t.number, machine.threads[end - 1].number);
      if (t.state == DONE) text.add("are through");
      else {
        text.add("wait at ");
        text.where(t.site);
        text.add(" (%s", t.what);
        if (t.wait == AT_WARP) text.add(", mask %08x", t.mask);
        if (t.wait == AT_BARRIER) text.add(", %d of %d", t.block->barriers[t.barrier].arrived, t.expected);
        text.add(")");
      }
    }
    i = end;
  }
  if (listed > 8) text.add("; and %d more", listed - 8);
  stop();
}
}  // namespace emulator
