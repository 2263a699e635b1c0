// Barriers in shared memory that count arrivals and bytes (mbarrier), phase by phase.
//
// A barrier is 8 bytes of shared memory, as on the device: whoever overwrites it is found out when it is used.
#pragma once
#include "memory.h"

namespace emulator {
struct Phase {
  int64_t bytes : 24;  // announced and not come yet, or the other way round
  uint64_t pending : 12, expected : 12, parity : 1, mark : 15;
};
static_assert(sizeof(Phase) == 8, "as an mbarrier");
constexpr uint64_t PHASE_MARK = 0x1a5c;
constexpr int64_t MOST_PHASE_BYTES = (1 << 20) - 1;  // PTX: the range of a transaction count

// A barrier that was begun. Clocks of what has arrived in this phase, and in those that are over: who waits sees those.
struct Begun {
  uint32_t bar;
  int by;       // the thread that began it
  bool fenced;  // and made it known to copies and to other blocks
  uint32_t *arrived, *over;
  Knowledge *arrived_known, *over_known;  // of other blocks
};
inline Array<Begun> begun[MOST_BLOCKS];

inline Begun& begun_at(Block& b, uint32_t bar) {
  Array<Begun>& all = begun[b.slot];
  int i = 0;
  while (all[i].bar != bar) i++;
  return all[i];
}
inline void must_be_known(Block& b, uint32_t bar, const char* to, Site site) {
  if (!begun_at(b, bar).fenced)
    fail(site, "barrier at byte %u of shared memory of block %d of the cluster was begun without fence_barrier_init: %s may not know of it", bar - SHARED_BASE, b.rank, to);
}
inline void forget_phases(Block& b) {
  Array<Begun>& all = begun[b.slot];
  for (int i = 0; i < all.count; i++) {
    free(all[i].arrived);
    free(all[i].over);
  }
  all.count = 0;
}

inline unsigned char* shared_of(Block& b, uint32_t address, uint32_t bytes, const char* what, Site site) {
  const uint32_t at = address - SHARED_BASE;
  if (at >= machine.launch->shared_bytes || at + bytes > machine.launch->shared_bytes)
    fail(site, "%s of %u bytes at byte %d of the %u of shared memory", what, bytes, (int)at, machine.launch->shared_bytes);
  return b.shared + at;
}
// Checks that a barrier was begun there.
inline Phase& phase_at(Block& b, uint32_t bar, Site site) {
  if (bar % 8) fail(site, "barrier at byte %u of shared memory is not aligned to 8", bar - SHARED_BASE);
  Phase& p = *(Phase*)shared_of(b, bar, 8, "barrier", site);
  if (p.mark != PHASE_MARK)
    fail(site, "barrier at byte %u of shared memory of block %d of the cluster was never begun, or overwritten", bar - SHARED_BASE, b.rank);
  return p;
}
// Ends the phase if all has come.
inline void settle(Block& b, uint32_t bar, Phase& p) {
  if (p.pending || p.bytes) return;
  p.parity ^= 1;
  p.pending = p.expected;
  Begun& clocks = begun_at(b, bar);
  join(clocks.over, clocks.arrived, b.clocks->width);
  clocks.over_known = joined(clocks.over_known, clocks.arrived_known);
  for (int i = 0; i < b.threads; i++) {
    Thread& t = b.first[i];
    if (t.state == WAITING && t.wait == AT_PHASE && (uint32_t)t.barrier == bar && (uint64_t)t.expected != p.parity) wake(t);
  }
}
inline void come(Block& b, uint32_t bar, int64_t bytes, Site site) {
  Phase& p = phase_at(b, bar, site);
  const int64_t left = p.bytes + bytes;
  if (left > MOST_PHASE_BYTES || left < -MOST_PHASE_BYTES) fail(site, "barrier with %lld bytes on their way", (long long)left);
  p.bytes = left;
  if (bytes < 0) settle(b, bar, p);
}
// Barriers of a block that is through: all that was announced came, and no more.
inline void check_phases(Block& b) {
  for (int i = 0; i < begun[b.slot].count; i++) {
    const uint32_t bar = begun[b.slot][i].bar;
    const Phase& p = phase_at(b, bar, {"end", 0});
    if (p.bytes)
      fail({"end", 0}, "barrier at byte %u of shared memory was told of %lld bytes %s", bar - SHARED_BASE,
           (long long)(p.bytes > 0 ? p.bytes : -p.bytes), p.bytes > 0 ? "that never came" : "fewer than came");
  }
}
}  // namespace emulator

extern "C" {
void emulator_barrier_init(uint32_t bar, int arrivals, emulator::Site site) {
  using namespace emulator;
  if (arrivals < 1 || arrivals >= 1 << 12) fail(site, "barrier for %d arrivals", arrivals);
  if (bar % 8) fail(site, "barrier at byte %u of shared memory is not aligned to 8", bar - SHARED_BASE);
  Phase& p = *(Phase*)shared_of(block(), bar, 8, "barrier", site);
  shadow_store(self(), bar - SHARED_BASE, 8, site, id_of(site));
  p.bytes = 0;
  p.pending = p.expected = arrivals;
  p.parity = 0;
  p.mark = PHASE_MARK;
  Array<Begun>& all = begun[block().slot];
  for (int i = 0; i < all.count; i++)
    if (all[i].bar == bar) {  // begun again
      all[i].by = self().number;
      all[i].fenced = false;
      return;
    }
  const int width = block().clocks->width;
  all.push({bar, self().number, false, (uint32_t*)calloc(width, sizeof(uint32_t)), (uint32_t*)calloc(width, sizeof(uint32_t)), nullptr, nullptr});
}
void emulator_fence_barrier_init() {
  using namespace emulator;
  Array<Begun>& all = begun[block().slot];
  for (int i = 0; i < all.count; i++) all[i].fenced |= all[i].by == self().number;
}
void emulator_fence_async_shared() {
  using namespace emulator;
  Clocks& o = *block().clocks;
  o.fences[self().number] = {o.epoch, o.clocks[self().number]++};
}
// own: at the own block's barrier. bytes: announced with the arrival.
void emulator_barrier_arrive(uint32_t bar, uint32_t rank, bool own, uint32_t bytes, emulator::Site site) {
  using namespace emulator;
  if (!own && rank >= (uint32_t)block().cluster->size) fail(site, "arrival at block %u of a cluster of %d", rank, block().cluster->size);
  Block& b = own ? block() : peer(block(), rank);
  if (!b.live) fail(site, "arrival at block %d of the cluster, which is through", b.rank);
  if (bytes) come(b, bar, bytes, site);
  Phase& p = phase_at(b, bar, site);
  if (!own && &b != &block()) must_be_known(b, bar, "other blocks", site);
  if (!p.pending) fail(site, "arrival at a barrier where all %u of this phase have come", (unsigned)p.expected);
  p.pending--;
  // What another block's thread did to its own memory is not known here: its arrivals order nothing that clocks know of.
  if (&b == &block()) {
    Begun& at = begun_at(b, bar);
    release_clocks(b, self().number, at.arrived);
    at.arrived_known = joined(at.arrived_known, self().known);
  }
  settle(b, bar, p);
  may_yield();
}
void emulator_barrier_wait(uint32_t bar, uint32_t parity, emulator::Site site) {
  using namespace emulator;
  if (parity > 1) fail(site, "barrier_wait for parity %u", parity);
  while (phase_at(block(), bar, site).parity == parity) {
    self().barrier = (int)bar;
    self().expected = (int)parity;
    wait(AT_PHASE, "barrier_wait", site);
  }
  const Begun& at = begun_at(block(), bar);
  acquire_clocks(block(), self().number, at.over);
  learn(self(), at.over_known);
}
}
