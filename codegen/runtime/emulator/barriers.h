// Barriers of a block, and what lanes of a warp do together.
#pragma once
#include "clocks.h"
#include "schedule.h"

namespace emulator {
// Barriers are `.aligned`: the lanes of a warp come to one together, and by one instruction. Called by the last to come.
inline void check_aligned(Block& b, int id, const char* what, Site site) {
  for (int first = 0; first < b.threads; first += WARP) {
    uint32_t come = 0;
    Site at = site;
    for (int i = first; i < first + WARP && i < b.threads; i++) {
      const Thread& t = b.first[i];
      const bool last = &t == &self();
      if (!last && (t.state != WAITING || t.wait != AT_BARRIER || t.barrier != id)) continue;
      const Site own = last ? site : t.site;
      if (come && !same(own, at))
        fail(site, "divergent %s: lanes of warp %d come to those of %s:%d and %s:%d", what, first / WARP, at.file, at.line, own.file, own.line);
      come |= 1u << t.lane;
      at = own;
    }
    if (come && come != lanes_of(b.first[first]))
      fail(site, "divergent %s: of warp %d the lanes %08x come, and the others do not", what, first / WARP, come);
  }
}
inline void release(Barrier& barrier, int id, const char* what, Site site) {
  Block& b = block();
  check_aligned(b, id, what, site);
  if (barrier.expected == b.threads) begin_epoch(b);
  else {
    int threads[MOST_THREADS], count = 0;
    threads[count++] = self().number;
    for (int i = 0; i < b.threads; i++)
      if (const Thread& t = b.first[i]; t.state == WAITING && t.wait == AT_BARRIER && t.barrier == id) threads[count++] = i;
    meet_clocks(b, threads, count, false);
  }
  for (int i = 0; i < b.threads; i++) {
    Thread& t = b.first[i];
    if (t.state == WAITING && t.wait == AT_BARRIER && t.barrier == id) wake(t);
  }
  barrier = {};
}

inline void arrive(int id, int expected, bool whole, const char* what, Site site) {
  Block& b = block();
  Barrier& barrier = b.barriers[id];
  if (whole && b.live < b.threads) {
    const Thread* gone = b.first;
    while (gone->state != DONE) gone++;
    fail(site, "%s that thread %d never reaches: it is through", what, gone->number);
  }
  if (barrier.arrived && barrier.expected != expected)
    fail(site, "%s %d for %d threads, where others wait for %d (%s:%d)", what, id, expected, barrier.expected, barrier.site.file, barrier.site.line);
  if (whole && barrier.arrived && !same(barrier.site, site))
    fail(site, "divergent %s: others of the block wait at the one of %s:%d", what, barrier.site.file, barrier.site.line);
  if (!barrier.arrived) {
    barrier.expected = expected;
    barrier.site = site;
  }
  Thread& t = self();
  t.barrier = id;
  t.expected = expected;
  if (++barrier.arrived == expected) {
    release(barrier, id, what, site);
    may_yield();
    return;
  }
  wait(AT_BARRIER, what, site);
}

// Meets the other lanes of `mask`, which must call the same. `complete` gets the warp's threads once all are there.
inline void meet(Collective complete, uint32_t mask, void* frame, const char* what, Site site) {
  Thread& t = self();
  Thread* lanes = warp_of(t);
  if (!(mask >> t.lane & 1)) fail(site, "%s with mask %08x, which does not name lane %d itself", what, mask, t.lane);
  const uint32_t there = mask & lanes_of(t), me = 1u << t.lane;
  Warp& warp = t.block->warps[t.number / WARP];
  const bool expected = warp.waiting && warp.mask == mask && warp.collective == complete && !(warp.done & there);
  uint32_t present = expected ? warp.waiting : 0;
  for (uint32_t rest = expected ? 0 : there; rest; rest &= rest - 1) {
    Thread& u = lanes[__builtin_ctz(rest)];
    if (u.state == DONE) fail(site, "%s with mask %08x, but lane %d is through", what, mask, u.lane);
    if (u.state != WAITING || u.wait != AT_WARP) continue;
    if (u.mask != mask) {
      if (u.mask >> t.lane & 1)
        fail(site, "%s with mask %08x, where lane %d waits for this one with mask %08x (%s:%d)", what, mask, u.lane, u.mask, u.site.file, u.site.line);
      continue;  // it meets others first, and may come here then
    }
    if (u.collective != complete) fail(site, "%s, where lane %d waits for this one at %s (%s:%d)", what, u.lane, u.what, u.site.file, u.site.line);
    present |= 1u << u.lane;
  }
  t.frame = frame;
  t.mask = mask;
  t.collective = complete;
  if ((present | me) != there) {
    if (expected) warp.waiting |= me;
    else if (!warp.waiting) warp = {warp.done, present | me, mask, complete};
    return wait(AT_WARP, what, site);
  }
  if (expected) warp.waiting = 0;
  t.site = site;
  complete(lanes, there);
  for (uint32_t rest = there & ~(1u << t.lane); rest; rest &= rest - 1) wake(lanes[__builtin_ctz(rest)]);
  may_yield();
}

struct Shuffled {
  void* value;
  int bytes, how, lane;
};
inline void shuffle(Thread* lanes, uint32_t mask) {
  uint64_t values[WARP] = {};
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const Shuffled& f = *(Shuffled*)lanes[l].frame;
    memcpy(&values[l], f.value, f.bytes);
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const Shuffled& f = *(Shuffled*)lanes[l].frame;
    int from = l;
    switch (f.how) {
      case XOR: from = l ^ f.lane; break;
      case DOWN: from = l + f.lane < WARP ? l + f.lane : l; break;
      case UP: from = l - f.lane >= 0 ? l - f.lane : l; break;
      case FROM: from = f.lane & (WARP - 1); break;
    }
    if (from >= WARP || !(mask >> from & 1)) {
      machine.current = &lanes[l];
      fail(lanes[l].site, "shuffle from lane %d, which does not take part (mask %08x)", from, mask);
    }
    memcpy(f.value, &values[from], f.bytes);
  }
}
inline void meet_lanes(Thread* lanes, uint32_t mask) {
  int threads[WARP], count = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) threads[count++] = lanes[__builtin_ctz(rest)].number;
  meet_clocks(*lanes[0].block, threads, count, true);
}
struct Vote {
  bool x;
  uint32_t all;
};
inline void vote(Thread* lanes, uint32_t mask) {
  uint32_t all = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    all |= (uint32_t)((Vote*)lanes[l].frame)->x << l;
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) ((Vote*)lanes[__builtin_ctz(rest)].frame)->all = all;
}
}  // namespace emulator

extern "C" {
void emulator_block_barrier(emulator::Site site) {
  using namespace emulator;
  arrive(0, block().threads, true, "block_barrier", site);
}
void emulator_named_barrier(int id, int threads, emulator::Site site) {
  using namespace emulator;
  if (id < 0 || id >= BARRIERS) fail(site, "named_barrier %d: there are 0 to %d", id, BARRIERS - 1);
  if (threads <= 0 || threads % WARP || threads > block().threads)
    fail(site, "named_barrier for %d threads: expected a multiple of %d, at most the block's %d", threads, WARP, block().threads);
  arrive(id, threads, false, "named_barrier", site);
}
void emulator_warp_barrier(uint32_t mask, emulator::Site site) {
  emulator::meet(emulator::meet_lanes, mask, nullptr, "warp_barrier", site);
}
void emulator_shuffle(void* value, int bytes, int how, int lane, uint32_t mask, emulator::Site site) {
  emulator::Shuffled frame{value, bytes, how, lane};
  emulator::self().site = site;
  emulator::meet(emulator::shuffle, mask, &frame, "shuffle", site);
}
uint32_t emulator_ballot(bool x, uint32_t mask, emulator::Site site) {
  emulator::Vote frame{x, 0};
  emulator::meet(emulator::vote, mask, &frame, "ballot", site);
  return frame.all;
}
}
